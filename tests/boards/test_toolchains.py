"""Platforms with clang or a newer GCC: no warning in any kernel, packages verified on the board, build files work."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

import tvm_ext
from tests.golden import models as small_models
from tests.kernels.harness import source_text
from tests.kernels.test_q_cross_compile import implementations
from tests.support.kinds import KINDS, built_kind
from tests.support.onnx_models import saved
from tests.support.runtime_headers import INCLUDE_FLAGS
from tests.support.sweeps import some_of
from tests.support.toolchains import COMPILERS, platform_with, with_compiler
from tvm_ext import BuildOptions
from tvm_ext.core.toolchain import compile_objects
from tvm_ext.execution.host_model import library_sources

pytestmark = pytest.mark.board

VERIFIED = BuildOptions(verify=("host", "qemu"))
BOARDS = {"dsp": "cortex_m4", "armv6m": "cortex_m0plus", "helium": "cortex_m55"}
ARM_KINDS = [name for name, kind in KINDS.items() if kind.platform.toolchain.prefix.startswith("arm")]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    "name", some_of(["cortex_m4"], sweep=["cortex_m0plus", "cortex_m3", "cortex_m55", "cortex_m7"])
)
def test_keyword_spotting_is_verified(shared_models: Path, tmp_path: Path, name: str, compiler: str) -> None:
    platform = platform_with(name, compiler)
    package = tvm_ext.build(tvm_ext.load(shared_models / "kws_int8.onnx"), platform, tmp_path / "out", VERIFIED)
    assert package.report["verify"]["qemu"]["passed"]
    comment = subprocess.run(
        ["strings", "-n", "8", str(next((tmp_path / "out").glob("lib*.a")))], capture_output=True, text=True, check=True
    ).stdout
    assert ("clang version" in comment) == compiler.startswith("clang")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("target", BOARDS)
def test_headers_compile_without_warnings(tmp_path: Path, target: str, compiler: str) -> None:
    """All loops that kernels share, those of the target first, as one source."""
    platform = platform_with(BOARDS[target], compiler)
    folders = [Path(str(files("codegen_c"))) / part for part in (f"targets/{target}/runtime", "runtime")]
    headers = [header.name for folder in folders for header in sorted(folder.glob("*.h"))]
    source = tmp_path / "headers.c"
    source.write_text(
        "#include <stdint.h>\n" + "".join(f'#include "{name}"\n' for name in headers) + "extern int x;\nint x;\n"
    )
    assert compile_objects([source], tmp_path / "out", platform.toolchain, include_dirs=folders)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("optimize", some_of(["size"], sweep=["speed"]))
def test_integer_kernels_compile_without_warnings(tmp_path: Path, compiler: str, optimize: str) -> None:
    toolchain = platform_with("cortex_m4", compiler).toolchain
    source = tmp_path / "kernels.c"
    source.write_text(source_text(implementations()))
    assert compile_objects([source], tmp_path / "out", toolchain, optimize=optimize, flags=INCLUDE_FLAGS)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("kind", some_of([], sweep=ARM_KINDS))
def test_packages_of_every_kind_compile_without_warnings(tmp_path: Path, kind: str, compiler: str) -> None:
    toolchain = with_compiler(KINDS[kind].platform.toolchain, compiler)
    package = built_kind(kind, tmp_path / "kinds")
    board = sorted((package.folder / "board").glob("*.c"))
    sources = [*library_sources(package.folder, package.interface.model), *board]
    sources += [package.folder / f"{package.interface.model}_{part}.c" for part in ("selftest", "vectors")]
    assert compile_objects(sources, tmp_path / "out", toolchain, include_dirs=[package.folder])


@pytest.mark.parametrize("tool", some_of(["make"], sweep=["cmake"]))
def test_build_files_compile_with_clang_and_link_with_gcc(tmp_path: Path, tool: str) -> None:
    platform = platform_with("cortex_m4", "clang")
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not on PATH")
    path = saved(small_models.integer_network(), tmp_path, "net")
    package = tvm_ext.build(tvm_ext.load(path), platform, tmp_path / "out", VERIFIED)
    folder = package.folder
    for made in (*folder.glob("*.elf"), *folder.glob("*.a")):
        made.unlink()
    commands = [["make", "-s", "firmware"]]
    if tool == "cmake":
        commands = [["cmake", "-S", ".", "-B", "out"], ["cmake", "--build", "out"]]
    for command in commands:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    text = subprocess.run(
        ["strings", str(next(folder.rglob("*.elf")))], capture_output=True, check=True, text=True
    ).stdout
    assert "net" in text
