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
