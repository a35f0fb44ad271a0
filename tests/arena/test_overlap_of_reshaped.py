"""Overlap of an output with an input that the kernel sees in another shape: rows are those of what it sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tvm_ext
from tests.support.onnx_models import model_of, saved
from tests.support.poison import run_poisoned
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.platform import Platform
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.verification.input_ranges import random_inputs

NODE = helper.make_node


def batch_that_becomes_one_image() -> onnx.ModelProto:
    nodes = [
        NODE("Relu", ["x"], ["a"]),
        NODE("MaxPool", ["a"], ["b"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        NODE("Reshape", ["b", "shape"], ["y"]),
    ]
    return model_of(nodes, {"x": (2, 1, 8, 8)}, ["y"], constants={"shape": np.array([1, 2, 8, 8])})


def tensor_that_is_read_as_an_image() -> onnx.ModelProto:
    nodes = [
        NODE("Relu", ["x"], ["a"]),
        NODE("Reshape", ["a", "shape"], ["b"]),
        NODE("Sigmoid", ["b"], ["c"]),
        NODE("Concat", ["b", "c"], ["y"], axis=2),
    ]
    return model_of(nodes, {"x": (2, 4, 8)}, ["y"], constants={"shape": np.array([1, 2, 2, 16])})


@pytest.mark.parametrize(
    ("make", "arena_bytes"), [(batch_that_becomes_one_image, 1024), (tensor_that_is_read_as_an_image, 896)]
)
def test_rows_are_those_that_the_kernel_sees(make, arena_bytes: int, tmp_path: Path) -> None:
    """Both plans were rejected: of the first one the planner was wrong, of the second one the validator."""
    module = tvm_ext.load(saved(make(), tmp_path))
    compiled = compile_module(module, Platform.load("host"), BuildOptions())
    assert compiled.plan.arena_bytes == arena_bytes
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in compiled.interface.inputs}, 0)
    found, destroyed = run_poisoned(compiled, inputs)
    assert destroyed > 0
    for name, array in run_instrumented(compiled, inputs, lambda *_: None).items():
        np.testing.assert_array_equal(found[name], array)
