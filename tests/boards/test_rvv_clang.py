"""Packages for RISC-V's vectors by another compiler: clang, which knows the extension itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.packages import Packages, sample
from tvm_ext import BuildOptions
from tvm_ext.core.toolchain import LANGUAGE_FLAGS, STRICT_FLAGS, compile_objects, link_elf
from tvm_ext.execution.board import run_qemu

pytestmark = [pytest.mark.board, pytest.mark.riscv_board, pytest.mark.riscv_clang]

CLANG = ("clang", "--target=riscv32-unknown-elf", "-march=rv32imac_zve32x", "-mabi=ilp32", "-O2")
LIBRARY = "/usr/lib/picolibc/riscv64-unknown-elf/include"


def test_clang_compiles_the_same_bytes(packages: Packages, tmp_path: Path) -> None:
    """The model by clang, without a warning; firmware around it, and linking, by the platform's compiler."""
    package = packages.shared("kws_int8", "riscv32_zve32x", BuildOptions(verify=("host", "qemu")))
    folder, platform = package.folder, package.platform
    model = [folder / f"kws_int8{part}.c" for part in ("", "_memory", "_weights")]
    for source in model:
        flags = [*LANGUAGE_FLAGS, *STRICT_FLAGS, "-isystem", LIBRARY, "-I", str(folder)]
        made = ["-c", str(source), "-o", str(tmp_path / f"{source.stem}.o")]
        done = subprocess.run([*CLANG, *flags, *made], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr, done.stderr
    firmware = [folder / f"kws_int8_{part}.c" for part in ("vectors", "selftest")]
    firmware += sorted((folder / "board").glob("*.c"))
    others = compile_objects(firmware, tmp_path, platform.toolchain, include_dirs=[folder, folder / "board"])
    objects = [*(tmp_path / f"{source.stem}.o" for source in model), *others]
    elf = link_elf(objects, tmp_path / "clang.elf", platform.toolchain, script=folder / "board" / "link.ld")
    inputs = sample(package)
    ours, theirs = package.run_board([inputs]), run_qemu(elf, platform, package.interface, [inputs])
    assert ours.instructions and theirs.instructions
    assert theirs.instructions < 1.25 * ours.instructions
    for name, array in ours.outputs[0].items():
        assert (theirs.outputs[0][name] == array).all()
