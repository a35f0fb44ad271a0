"""Packages compute the same with type-based alias analysis, which GCC and clang use from -O2 on.

Every build of a package has it on. These tests also ask GCC for its doubts, and run code of clang, which takes a read
for independent of a later write of another type.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.c_text.text import C_TYPES, any_type
from tests.support.kinds import KINDS
from tests.support.onnx_models import NODE, saved, typed_model
from tests.support.packages import assert_close, sample
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import LANGUAGE_FLAGS, compile_command
from tvm_ext.execution.host_model import library_sources

pytestmark = pytest.mark.board
CASES = {
    "int8_host": ("int8_host", "host"),
    "int8_m4": ("int8_dsp", "cortex_m4"),
    "int8_m55": ("int8_helium", "cortex_m55"),
    "float_host": ("float_host", "host"),
    "float_m4": ("attention_m4", "cortex_m4"),
    "float_m55": ("attention_m55", "cortex_m55"),
    "words_host": ("words", "host"),
    "words_m4": ("words", "cortex_m4"),
    "words_m55": ("words", "cortex_m55"),
    "tir": ("tir", "cortex_m7"),
    "audio": ("audio", "cortex_m4"),
}
DOUBTS = ("-O3", "-fstrict-aliasing", "-Wall", "-Wstrict-aliasing=1", "-Werror=strict-aliasing")


def built(kind: str, platform: Platform, folder: Path) -> Package:
    """A verified package of a small network, compiled as users compile it: at -O3 on the host and on boards."""
    folder.mkdir(parents=True, exist_ok=True)
    on = ("host", "qemu") if platform.board else ("host",)
    options = replace(KINDS[kind].options, verify=on, optimize="speed", name="net")
    return tvm_ext.build(tvm_ext.load(KINDS[kind].source(folder)), platform, folder / "out", options)


@pytest.mark.parametrize("case", some_of(["int8_m4", "words_m55", "float_host"], sweep=sorted(CASES)))
def test_a_package_is_verified_with_it_and_compilers_doubt_nothing(case: str, tmp_path: Path) -> None:
    kind, name = CASES[case]
    platform = Platform.load(name)
    command = compile_command(platform.toolchain, "speed")
    assert "-O3" in command and not any("strict-aliasing" in flag for flag in command)
    package = built(kind, platform, tmp_path)
    verified = package.report["verify"]
    assert verified["host"]["passed"] and (platform.board is None or verified["qemu"]["passed"])
    if platform.board:
        samples = [sample(package, seed) for seed in range(3)]
        found = package.run_board(samples).outputs
        for inputs, outputs in zip(samples, found, strict=True):
            assert_close(outputs, package.run(inputs, on="host"), tolerance=1e-5)
    for source in library_sources(package.folder, "net"):
        for compiler in (command, ["gcc", *LANGUAGE_FLAGS, "-fPIC"]):
            done = subprocess.run(
                [*compiler, *DOUBTS, "-I.", "-c", "-o", "/dev/null", source.name],
                cwd=package.folder, capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr


def mixed(folder: Path) -> Path:
    """Integers become floats in the bytes of the integers, and floats integers again."""
    nodes = [
        NODE("Add", ["x", "x"], ["twice"]), NODE("Cast", ["twice"], ["wide"], to=1),
        NODE("Mul", ["wide", "half"], ["product"]), NODE("Cast", ["product"], ["whole"], to=6),
        NODE("Add", ["whole", "whole"], ["y"]),
    ]  # fmt: skip
    model = typed_model(nodes, {"x": (6, [1024])}, {"y": 6}, half=np.float32([0.5]))
    return saved(model, folder, "net")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_type_takes_the_bytes_of_another_in_one_step(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    monkeypatch.setenv("CC", compiler)
    package = tvm_ext.build(tvm_ext.load(mixed(tmp_path)), "host", tmp_path / "out", BuildOptions(name="net"))
    text = (package.folder / "net.c").read_text()
    assert "tvm_ext_any_float *" in text and "tvm_ext_any_int32 *" in text
    x = np.arange(-512, 512, dtype=np.int32)
    np.testing.assert_array_equal(package.run({"x": x})["y"], 2 * x)


def test_types_that_may_access_any_object() -> None:
    header = Path(tvm_ext.__file__).parents[1] / "codegen_c" / "runtime" / "tvm_ext_kernels.h"
    text = header.read_text()
    for ctype in set(C_TYPES.values()) - {"int8_t", "uint8_t"}:
        assert f"typedef {ctype} TVM_EXT_MAY_ALIAS {any_type(ctype)};" in text
    assert [any_type(ctype) for ctype in ("int8_t", "uint8_t")] == ["int8_t", "uint8_t"]
