"""Attributes of single operators that came out wrong once, each through the generated C against its runtime.

`benchmarks/attribute_pairs.py` finds such; this file keeps those that it found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.pairing.examine import examined_model
from benchmarks.pairing.onnx_form import onnx_model
from benchmarks.pairing.operator_case import Input
from benchmarks.pairing.torch_form import torch_model

IMAGE = {"x": Input(shape=(1, 2, 9, 8))}


def _pads(**more: Any) -> dict[str, Any]:
    return {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "SAME_UPPER", **more}


ONNX: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "average of padding in one dimension": (
        "AveragePool", {"x": Input(shape=(1, 2, 9))},
        {"kernel_shape": [3], "auto_pad": "SAME_LOWER", "count_include_pad": 1},
    ),
    "average of padding": ("AveragePool", IMAGE, _pads(count_include_pad=1)),
    "average of padding in three dimensions": (
        "AveragePool", {"x": Input(shape=(1, 2, 4, 5, 6))},
        {"kernel_shape": [3, 2, 3], "strides": [1, 2, 2], "auto_pad": "SAME_UPPER", "count_include_pad": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONNX)
def test_onnx(name: str) -> None:
    kind, inputs, attributes = ONNX[name]
    outcome = examined_model(onnx_model(kind, inputs, attributes=attributes), name)
    assert (outcome.verdict, outcome.reason) == ("equal", "")


@pytest.mark.parametrize("column_major", [0, 1])
def test_the_first_by_rows_of_equal_elements_counts(column_major: int) -> None:
    x = np.array([[[[0, 1, 0], [1, 0, 1]]]], np.int8)
    model = onnx_model(
        "MaxPool", {"x": Input(shape=x.shape, dtype="int8", low=0, high=2)}, outputs=["int8", "int64"],
        attributes={"kernel_shape": [2, 2], "storage_order": column_major},
    )  # fmt: skip
    outcome = examined_model(model, f"ties {column_major}")
    assert (outcome.verdict, outcome.reason) == ("equal", "")


@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool", "LpPool"])
def test_automatic_padding_of_dilated_windows_is_refused(kind: str) -> None:
    """onnxruntime's result has another shape than the standard says."""
    outcome = examined_model(onnx_model(kind, IMAGE, attributes=_pads(dilations=[2, 1])), kind)
    assert outcome.verdict == "refused" and "write the padding as pads" in outcome.reason


def _torch_calls() -> dict[str, Any]:
    from torch import nn
    from torch.nn.functional import interpolate

    return {
        "SELU": nn.SELU(),
        "CELU": nn.CELU(0.5),
        "divisor": nn.AvgPool2d((3, 2), stride=2, padding=1, divisor_override=4),
        "divisor of rounded-up sizes": nn.AvgPool2d(4, stride=3, ceil_mode=True, divisor_override=7),
        "padding of rounded-up sizes": nn.AvgPool2d(4, stride=3, padding=1, ceil_mode=True),
        "nearest to a size": lambda image: interpolate(image, size=(7, 5), mode="nearest"),
        "nearest by factors": lambda image: interpolate(image, scale_factor=(1.7, 0.6), mode="nearest"),
        "nearest, exact": lambda image: interpolate(image, size=(4, 13), mode="nearest-exact"),
    }


@pytest.mark.parametrize(
    "name",
    ["SELU", "CELU", "divisor", "divisor of rounded-up sizes", "padding of rounded-up sizes", "nearest to a size",
     "nearest by factors", "nearest, exact"],
)  # fmt: skip
def test_torch(name: str) -> None:
    pytest.importorskip("torch")
    outcome = examined_model(torch_model(_torch_calls()[name], [Input(shape=(1, 2, 9, 8))]), name, quantized=True)
    assert (outcome.verdict, outcome.reason, outcome.quantized_reason) == ("equal", "", "")
