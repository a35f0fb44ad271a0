"""Outputs of a package are the model's, in its order, also where the import gives a value a second name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import tvm_ext
from tests.support.onnx_models import model_of, saved
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.platform import Platform

NODE = helper.make_node


@pytest.mark.parametrize("outputs", [["b", "a"], ["a", "b"]])
def test_a_padding_of_nothing_is_another_name_of_its_input(outputs: list[str], tmp_path: Path) -> None:
    """SAME_LOWER over a kernel of 1: both have one shape, so that only values could tell them apart."""
    nodes = [
        NODE("Conv", ["x", "w"], ["a"], auto_pad="SAME_LOWER", strides=[2]),
        NODE("Sigmoid", ["a"], ["b"]),
    ]
    weights = np.random.default_rng(0).normal(size=(4, 3, 1)).astype(np.float32)
    module = tvm_ext.load(saved(model_of(nodes, {"x": (1, 3, 8)}, outputs, constants={"w": weights}), tmp_path))
    compiled = compile_module(module, Platform.load("host"), BuildOptions())
    assert [(port.source, port.name) for port in compiled.interface.outputs] == [(name, name) for name in outputs]
    package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions(verify=("host",)))
    assert package.report["verify"]["host"]["passed"]


def test_an_int8_result_that_the_model_transposes_to_channels_last(tmp_path: Path) -> None:
    """The result holds the bytes of the pool, which are stored channels last, and the model's own axes are theirs."""
    nodes = [
        NODE("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        NODE("MaxPool", ["a"], ["p"], kernel_shape=[1, 1], strides=[2, 2]),
        NODE("Transpose", ["p"], ["y"], perm=[0, 2, 3, 1]),
    ]
    random = np.random.default_rng(4)
    weights = {"w": random.standard_normal((4, 3, 3, 3)).astype(np.float32)}
    model = model_of(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants=weights)
    samples = {"x": random.standard_normal((4, 1, 3, 8, 8)).astype(np.float32)}
    options = BuildOptions(quantize="int8", verify=("host",))
    package = tvm_ext.build(
        tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out", options, calibration=samples
    )
    assert package.outputs["y"].shape == (1, 4, 4, 4) and package.report["verify"]["host"]["passed"]
