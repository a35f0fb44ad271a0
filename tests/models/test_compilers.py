"""Compilers give the same bits, floats too: none may fuse a multiplication with an addition of its own accord."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import tvm_ext
from tests.support.onnx_models import model_of, saved, weights
from tests.support.packages import sample
from tvm_ext import BuildOptions


@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("clang")), reason="gcc and clang are needed")
def test_gcc_and_clang_give_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine, whose processor has fused operations, in code without a kernel of its own."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    model = model_of(nodes, {"x": (2, 4, 9)}, ["y"], {"w": weights(4, 4, 3)})
    module = tvm_ext.load(saved(model, tmp_path))
    package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions(verify=()))
    inputs = sample(package)
    outputs = {}
    for compiler in ("gcc", "clang"):
        monkeypatch.setenv("CC", compiler)
        outputs[compiler] = package.run(inputs)
    for name, array in outputs["gcc"].items():
        np.testing.assert_array_equal(outputs["clang"][name].view(np.uint32), array.view(np.uint32), err_msg=name)


@pytest.mark.skipif(not shutil.which("clang"), reason="clang is needed")
@pytest.mark.parametrize("columns", [8, 12, 13])
@pytest.mark.parametrize("channels", [1, 3, 8, 9])
def test_clang_finds_no_function_that_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, channels: int
) -> None:
    """gcc says nothing of unused inline functions: one float beside vectors, one pixel beside groups of them."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 0, 1, 0]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "d"], ["e"], group=channels, pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["e"], ["s"]),
        helper.make_node("Conv", ["s", "p"], ["q"]),
        helper.make_node("Relu", ["q"], ["t"]),
        helper.make_node("GlobalAveragePool", ["t"], ["y"]),
    ]
    constants = {
        "w": weights(channels, 2, 3, 3), "d": weights(channels, 1, 3, 3), "p": weights(channels, channels, 1, 1),
    }  # fmt: skip
    path = saved(model_of(nodes, {"x": (1, 2, 6, columns)}, ["y"], constants), tmp_path)
    monkeypatch.setenv("CC", "clang")
    tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", BuildOptions(verify=()))
