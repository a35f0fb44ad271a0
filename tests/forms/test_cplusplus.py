"""Every header alone as C++, by two compilers, without a warning; and its macros."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import tvm_ext
from tests.boards.toy import write_toy
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.packages import Packages
from tests.support.runtime_headers import FOLDERS
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import find_program

_ROOT = Path(__file__).parents[2]
_CUSTOM = sorted((_ROOT / "codegen_c" / "custom").glob("*/runtime"))
_START = "program_start.h"
"""Header of a board's start, which calls main: C++ does not let a program do that."""
_FOLDERS = [folder for folder in (*FOLDERS, *_CUSTOM) if any(folder.glob("*.h"))]
_WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only")
_COMPILERS = some_of([("g++", "c++11")], sweep=[("g++", "c++17"), ("clang++", "c++11"), ("clang++", "c++17")])


def _faults(
    compiler: tuple[str, str], headers: Sequence[str], folders: Sequence[Path], work: Path, flags: Sequence[str] = ()
) -> dict[str, str]:
    """Complaints about each header, as the only thing that a file includes."""
    program, standard = compiler
    if shutil.which(program) is None:
        pytest.skip(f"no {program}")
    found: dict[str, str] = {}
    for header in headers:
        (work / "alone.cpp").write_text(f'#include "{header}"\n')
        done = subprocess.run(
            [program, f"-std={standard}", *_WARNINGS, *flags, *(f"-I{one}" for one in folders), "alone.cpp"], cwd=work,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        if done.returncode:
            found[header] = done.stderr
    return found


@pytest.mark.parametrize("compiler", _COMPILERS)
@pytest.mark.parametrize("folder", _FOLDERS, ids=lambda folder: f"{folder.parent.name}_{folder.name[:15]}")
def test_runtime_headers(folder: Path, compiler: tuple[str, str], tmp_path: Path) -> None:
    headers = [path.name for path in sorted(folder.glob("*.h"))]
    assert _faults(compiler, headers, [folder, *FOLDERS], tmp_path) == {}


_BOARDS = some_of(["cortex_m55"], sweep=["cortex_m0plus", "cortex_m4", "riscv32"])


@pytest.mark.board
@pytest.mark.riscv_board
@pytest.mark.parametrize("name", _BOARDS)
def test_headers_for_boards(name: str, tmp_path: Path) -> None:
    """By the GCC of each board, whose C library has names of its own; with the headers of its firmware."""
    platform = Platform.load(name)
    write_toy(tmp_path, platform)
    compiler = (find_program(f"{platform.toolchain.prefix}g++"), "c++11")
    folders = [tmp_path / "board", *_FOLDERS]
    headers = sorted({path.name for folder in folders for path in folder.glob("*.h")} - {_START})
    if name == "riscv32":  # its C library comes without C++'s <atomic>
        headers = [header for header in headers if header not in ("tvm_ext_push.h", "tvm_ext_signal.h")]
    assert "semihosting.h" in headers and "tvm_ext_helium_squares.h" in headers
    flags = platform.toolchain.flags
    assert _faults(compiler, headers, folders, tmp_path, flags) == {}
    calls_main = [*flags, "-Wno-error=pedantic"]
    assert _faults(compiler, [_START], folders, tmp_path, calls_main) == {}


@pytest.mark.parametrize("compiler", _COMPILERS)
def test_headers_of_packages(compiler: tuple[str, str], kws: Path, tmp_path: Path, packages: Packages) -> None:
    """Static and by instances, streamed, with states."""
    model = saved(SMALL_MODELS["image_in_and_out"](), tmp_path, "model")
    streamed = tvm_ext.build(tvm_ext.load(model), "host", tmp_path / "a", BuildOptions(io="stream", verify=())).folder
    options = BuildOptions(context="caller", verify=())
    instances = tvm_ext.build(tvm_ext.load(model), "host", tmp_path / "b", options).folder
    for folder in (kws, streamed, instances):
        headers = sorted(path.name for path in folder.glob("*.h") if not path.name.startswith("tvm_ext_"))
        assert len(headers) >= 4
        assert _faults(compiler, headers, [folder], tmp_path) == {}


@pytest.mark.parametrize("compiler", _COMPILERS)
def test_hooks_that_are_on(compiler: tuple[str, str], tmp_path: Path) -> None:
    """Where the header's functions and macros are more than nothing."""
    model = saved(SMALL_MODELS["image_in_and_out"](), tmp_path, "model")
    package = tvm_ext.build(tvm_ext.load(model), "host", tmp_path / "a", BuildOptions(hooks=True, verify=()))
    flags = ["-DMODEL_PROFILE", "-DMODEL_PROFILE_CYCLES()=0u"]
    assert _faults(compiler, ["model_profile.h"], [package.folder], tmp_path, flags) == {}


def test_a_planted_word_of_c_is_found(tmp_path: Path) -> None:
    (tmp_path / "planted.h").write_text('_Static_assert(1, "");\n')
    assert [*_faults(("g++", "c++11"), ["planted.h"], [tmp_path], tmp_path)] == ["planted.h"]


def test_a_cplusplus_program_sees_tensors_of_the_arena(kws: Path, tmp_path: Path) -> None:
    """Linked with the library that C made: the arena has the same name there."""
    (tmp_path / "main.cpp").write_text(
        '#include "kws.h"\n#include "kws_memory.h"\n'
        "int main() { return kws_run() || sizeof kws_ram.bytes == 0 || kws_ram.bytes != &kws_ram.bytes[0]; }\n"
    )
    memory = re.search(r"extern union kws_(\w+)", (kws / "kws_memory.h").read_text())
    assert memory
    text = (tmp_path / "main.cpp").read_text().replace("kws_ram", f"kws_{memory[1]}")
    (tmp_path / "main.cpp").write_text(text)
    program = str(tmp_path / "program")
    command = ["g++", "-std=c++11", f"-I{kws}", str(tmp_path / "main.cpp"), f"{kws}/libkws.a", "-lm", "-o", program]
    subprocess.run(command, check=True, timeout=60)
    assert subprocess.run([program], timeout=60).returncode == 0


def test_macros_say_what_the_report_says(tmp_path: Path, packages: Packages) -> None:
    """Shapes, types, scales and zero points of a quantized model, by a C program that prints them."""
    package = packages.shared("kws_int8")
    lines = ["#include <stdio.h>", '#include "kws_int8.h"', "int main(void)", "{"]
    for macro in ("KWS_INT8_INPUT", "KWS_INT8_OUTPUT"):
        lines += [
            f"{{ static const int shape[{macro}_RANK] = {macro}_SHAPE;",
            f"static const {macro}_TYPE point = {macro}_ZERO_POINT;",
            f'printf("%d %d %.9g\\n", shape[{macro}_RANK - 1], point, (double){macro}_SCALE); }}',
        ]
    (tmp_path / "macros.c").write_text("\n".join([*lines, "return 0;", "}", ""]))
    command = ["gcc", "-Wall", "-Werror", f"-I{package.folder}", "macros.c", "-o", "macros"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    said = subprocess.run([str(tmp_path / "macros")], capture_output=True, text=True, check=True, timeout=60).stdout
    for line, spec in zip(said.splitlines(), (*package.inputs.values(), *package.outputs.values()), strict=True):
        extent, point, scale = line.split()
        assert (int(extent), int(point)) == (spec.shape[-1], spec.zero_point)
        assert spec.scale is not None and float(scale) == pytest.approx(spec.scale, rel=1e-7)
