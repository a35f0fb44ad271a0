"""TensorFlow Lite operators on integers that have no kernel here, as TensorFlow Lite Micro computes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_runners import referenced, saved_tflite, tflite_micro


def agrees(writer: TfliteWriter, output: int, arrays: list[np.ndarray], folder: Path) -> None:
    data = writer.finish([output])
    (found,), _ = referenced(saved_tflite(data, folder), arrays)
    expected = tflite_micro(data, arrays)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(
    ("indices", "shape"),
    [
        ([[3, 1], [0, 2]], (2,)),
        ([[3], [0], [1]], (3, 3)),
        ([[[3, 1], [0, 2]], [[1, 1], [2, 0]], [[0, 0], [0, 1]]], (3, 2)),
        ([2, 1], ()),
    ],
)
def test_gather_nd(dtype: str, indices: list, shape: tuple[int, ...], tmp_path: Path) -> None:
    """[[3, 1], [0, 2]] picks x[3, 1] and x[0, 2], not x[3, 0] and x[1, 2]."""
    writer = TfliteWriter()
    scales = Quantized(scale=0.1, zero_point=3) if dtype == "int8" else None
    x = writer.input("x", (4, 3), dtype, scales)
    places = writer.constant("places", np.array(indices, np.int32))
    y = writer.operator("GATHER_ND", [x, places], writer.tensor("y", shape, dtype, scales), "GatherNdOptions")
    agrees(writer, y, [np.arange(12).reshape(4, 3).astype(dtype)], tmp_path)


@pytest.mark.parametrize(
    ("scale", "zero_point", "wanted", "wanted_zero_point"),
    [(0.05, 3, 0.0003, 0), (0.05, -128, 0.05, 0), (0.031, 127, 1.7, 0), (0.5, 7, 1e-6, 0), (0.01, 0, 0.04, 5)],
)
def test_quantize_to_int32(
    scale: float, zero_point: int, wanted: float, wanted_zero_point: int, tmp_path: Path
) -> None:
    """Every int8 in steps of another scale, both roundings included."""
    writer = TfliteWriter()
    x = writer.input("x", (1, 256), "int8", Quantized(scale=scale, zero_point=zero_point))
    scales = Quantized(scale=wanted, zero_point=wanted_zero_point)
    y = writer.operator("QUANTIZE", [x], writer.tensor("y", (1, 256), "int32", scales), "QuantizeOptions")
    agrees(writer, y, [np.arange(-128, 128, dtype=np.int8).reshape(1, 256)], tmp_path)
