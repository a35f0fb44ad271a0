"""Normalizations of elements whose mean is far larger than their deviation, which one pass over squares loses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tests.support.packages import HOST_ONLY
from tests.support.sweeps import some_of

SHAPE = [1, 4, 3, 5]
# By operator: shapes of weights, attributes, and the shape in which axes 1.. are normalized together.
CASES: dict[str, tuple[list[list[int]], dict[str, object], Sequence[int]]] = {
    "GroupNormalization": ([[4], [4]], {"num_groups": 2}, (2, 30)),
    "InstanceNormalization": ([[4], [4]], {}, (4, 15)),
    "LayerNormalization": ([[4, 3, 5], [4, 3, 5]], {"axis": 1}, (1, 60)),
    "MeanVarianceNormalization": ([], {}, (4, 15)),
}


def model_of(operator: str) -> onnx.ModelProto:
    shapes, attributes, _ = CASES[operator]
    weights = [
        numpy_helper.from_array(np.full(shape, 1.0 - index, np.float32), f"w{index}")
        for index, shape in enumerate(shapes)
    ]
    node = helper.make_node(operator, ["x", *(weight.name for weight in weights)], ["y"], **attributes)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy")
    graph = helper.make_graph([node], operator.lower(), [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("operator", CASES)
@pytest.mark.parametrize("mean", some_of([0, 10_000], sweep=[1_000]))
def test_a_large_mean_loses_no_deviation(operator: str, mean: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model_of(operator), path)
    package = tvm_ext.build(path, "host", tmp_path / "package", HOST_ONLY)
    x = (np.random.default_rng(3).standard_normal(SHAPE) + mean).astype(np.float32)
    parted = x.astype(np.float64).reshape(CASES[operator][2])
    centred = parted - parted.mean(axis=1, keepdims=True)
    epsilon = 0 if operator == "MeanVarianceNormalization" else 1e-5
    wanted = (centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon)).reshape(SHAPE)
    # A mean of 10,000 is known to 2^-11; the distances of the elements themselves are exact.
    assert np.abs(package.run({"x": x})["y"] - wanted).max() < max(1e-5, mean * 2.0**-22)
