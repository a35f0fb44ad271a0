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
