"""The header's facts: answers as wide as int32_t, sizes, the digest of the model; as C and as C++."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from codegen_c.emit.banner import Origin
from codegen_c.emit.header import emit_header
from codegen_c.program.interface import Interface, Port
from codegen_c.program.status import EMPTY, FULL, MISALIGNED, NOT_READY, NOT_RESET
from tests.support.onnx_models import image_in_and_out
from tests.support.packages import Packages

_ORIGIN = Origin(generator="g", model="m.onnx", sha256="0123abcd", platform="p")
_IMAGE = Port(name="x", source="x", shape=(1, 9, 8, 3), dtype="int16", layout="NHWC")
_PLAIN = Interface(model="m", io="arena", inputs=(_IMAGE,), outputs=())
_EVERY = Interface(
    model="m", io="caller", inputs=(_IMAGE,), outputs=(), state_bytes=8, warm_up_runs=2, context="caller",
    context_bytes=64, context_alignment_bytes=64, in_flight=2,
)  # fmt: skip
_VALUES = {"ok": 0, "not_reset": NOT_RESET, "not_ready": NOT_READY, "misaligned": MISALIGNED, "empty": EMPTY}


@pytest.mark.parametrize("interface", [_PLAIN, _EVERY], ids=["one answer", "every answer"])
@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("gcc", ["-std=c11", "-fshort-enums"]),
        ("g++", ["-std=c++11", "-fshort-enums"]),
        ("arm-none-eabi-gcc", ["-std=c11", "-mcpu=cortex-m4", "-mthumb", "-fshort-enums"]),
        ("riscv64-unknown-elf-gcc", ["-std=c11", "-march=rv32imac", "-mabi=ilp32", "-ffreestanding"]),
    ],
    ids=["c", "c++", "arm", "riscv"],
)
def test_answers_are_as_wide_as_int32_and_signed(
    program: str, flags: list[str], interface: Interface, tmp_path: Path
) -> None:
    """Also where compilers give enumerations as few bytes as their values need, as Arm's do for bare metal."""
    if shutil.which(program) is None:
        pytest.skip(f"no {program}")
    word = "static_assert" if program == "g++" else "_Static_assert"
    known = _VALUES if interface is _EVERY else {"ok": 0}
    facts = ["sizeof(m_status) == 4", "(m_status)-1 < (m_status)0", "M_X_BYTES == 432", "M_X_SIZE == 216"]
    facts += ["M_ARENA_BYTES == 48u", "M_ARENA_BYTES_DTCM == 16u", "sizeof M_MODEL_SHA256 == 9"]
    facts += [f"m_{name} == {value}" for name, value in known.items()]
    lines = [f'{word}({fact}, "{number}");' for number, fact in enumerate(facts)]
    source = "use.cpp" if program == "g++" else "use.c"
    (tmp_path / "m.h").write_text(emit_header(interface, _ORIGIN, arenas={"sram": 32, "dtcm": 16}))
    (tmp_path / source).write_text("\n".join(['#include "m.h"', *lines, ""]))
    command = [program, *flags, "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only", source]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)


def test_every_answer_has_a_sentence() -> None:
    text = emit_header(_EVERY, _ORIGIN)
    for name in (*_VALUES, "full"):
        assert re.search(rf"    m_{name} = -?\d, /\* [a-z].* \*/", text), name
    assert FULL == MISALIGNED, "no pipeline has instances"


def test_a_comment_says_the_layout() -> None:
    assert "int16[1, 9, 8, 3] NHWC, in the model x" in emit_header(_PLAIN, _ORIGIN)


def test_a_package_says_what_its_report_says(packages: Packages) -> None:
    package = packages.small("image_in_and_out", image_in_and_out)
    report, name = package.report, package.report["model"]["name"]
    header, prefix = (package.folder / f"{name}.h").read_text(), name.upper()
    (port,) = report["inputs"]
    num_bytes = int(np.prod(port["shape"])) * np.dtype(port["dtype"]).itemsize
    for line in (
        f"#define {prefix}_{port['c_name'].upper()}_BYTES {num_bytes}",
        f"#define {prefix}_ARENA_BYTES {report['arena_bytes']}u",
        f'#define {prefix}_MODEL_SHA256 "{report["model"]["sha256"]}"',
    ):
        assert line in header, line


def test_a_memory_called_input_keeps_that_name_for_its_arena() -> None:
    assert "m_input(void)" in emit_header(_PLAIN, _ORIGIN, arenas={"sram": 32})
    assert "m_input(void)" not in emit_header(_PLAIN, _ORIGIN, arenas={"input": 32})
