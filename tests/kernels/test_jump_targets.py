"""Loops that a computed jump enters: the assembler refuses a unit that does not take the bytes the jump assumes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.runtime_headers import HEADERS, INCLUDE_FLAGS
from tests.support.sweeps import some_rows
from tests.support.toolchains import platform_with
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_command

FILES = (
    "tvm_ext_dsp_blocks.h", "tvm_ext_dsp_matmul.h", "tvm_ext_dsp_product.h", "tvm_ext_dsp_quads.h",
    "tvm_ext_dsp_single.h", "tvm_ext_dsp_winograd_product.h",
)  # fmt: skip
STATED = re.compile(r'(?<=")(?:28|5[246]|64|7[26]|80|96|104|124)(?=")|(?<=_CELL_BYTES )48|(?<=_WIDER_BYTES )8')
"""Bytes of the units of unrolled loops, as the headers state them: arguments of macros, and two macros."""


def platform(compiler: str) -> Platform:
    """A Cortex-M4 with that compiler; skips the test where it is absent."""
    return Platform.load("cortex_m4") if compiler == "gcc" else platform_with("cortex_m4", compiler)


def copy_headers(folder: Path) -> None:
    """Copy the headers, for each includes the others from its own folder."""
    for name in FILES:
        (folder / name).write_text(HEADERS[name].read_text())


def assembled(platform: Platform, folder: Path) -> subprocess.CompletedProcess[str]:
    """The headers of a folder compiled. Every function is kept, called or not."""
    source = folder / "units.c"
    source.write_text("".join(f'#include "{name}"\n' for name in FILES))
    head = [*compile_command(platform.toolchain, "speed"), "-Dunused=used", f"-I{folder}", *INCLUDE_FLAGS]
    return subprocess.run([*head, "-c", str(source), "-o", str(folder / "units.o")], capture_output=True, text=True)


@pytest.mark.board
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_units_take_the_bytes_that_jumps_assume(compiler: str, tmp_path: Path) -> None:
    copy_headers(tmp_path)
    done = assembled(platform(compiler), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.board
@pytest.mark.parametrize(
    ("compiler", "change"), some_rows([("gcc", 2), ("clang", -2)], sweep=[("gcc", -2), ("clang", 2)])
)
def test_the_assembler_refuses_units_of_other_bytes(compiler: str, change: int, tmp_path: Path) -> None:
    """Each stated size is changed by one narrow instruction, alone."""
    chosen, seen = platform(compiler), 0
    copy_headers(tmp_path)
    for name in FILES:
        text = HEADERS[name].read_text()
        for stated in STATED.finditer(text):
            (tmp_path / name).write_text(f"{text[: stated.start()]}{int(stated[0]) + change}{text[stated.end() :]}")
            done = assembled(chosen, tmp_path)
            assert done.returncode != 0 and ".org" in done.stderr, f"{name}: {stated[0]} is not checked"
            seen += 1
        (tmp_path / name).write_text(text)
    assert seen == 17
