"""Operators of ONNX whose indices are inputs, some of them beyond their axis: read the nearest element, write none."""

from __future__ import annotations

import numpy as np

from tests.support.edge_cases import NAN, NODE, EdgeCase

TABLE = np.arange(24, dtype=np.float32).reshape(4, 6)
BEYOND = np.array([0, 3, -4, 4, -5, 1000, -1000, 2**40, -(2**40), 2**63 - 1, -(2**63)])
"""Indices along an axis of 4 elements: three indices within it, the others beyond its ends."""
NARROW = np.array([-1, 1, 7, -7], np.int32)


def _nearest(indices: np.ndarray, extent: int) -> np.ndarray:
    return np.clip(np.where(indices < 0, indices + extent, indices), 0, extent - 1)


def _gather() -> list[EdgeCase]:
    rows = NODE("Gather", ["x", "i"], ["y"])
    columns = NODE("Gather", ["x", "i"], ["y"], axis=1)
    return [
        EdgeCase(
            name="Gather_rows", node=rows, inputs={"x": TABLE, "i": BEYOND}, expected=[TABLE[_nearest(BEYOND, 4)]],
        ),
        EdgeCase(
            name="Gather_columns", node=columns, inputs={"x": TABLE, "i": NARROW},
            expected=[TABLE[:, _nearest(NARROW, 6)]],
        ),
        EdgeCase(
            name="Gather_table", node=rows, inputs={"i": BEYOND}, constants={"x": TABLE},
            expected=[TABLE[_nearest(BEYOND, 4)]],
        ),
    ]  # fmt: skip


def _gather_elements() -> EdgeCase:
    places = np.array([[0, -1, 9], [3, -5, 2**40]])
    expected = np.take_along_axis(TABLE[:2], _nearest(places, 6), 1)
    node = NODE("GatherElements", ["x", "i"], ["y"], axis=1)
    return EdgeCase(name="GatherElements", node=node, inputs={"x": TABLE[:2], "i": places}, expected=[expected])


def _gather_tuples() -> EdgeCase:
    places = np.array([[0, 0], [3, -1], [4, 6], [-9, 2**40]])
    expected = TABLE[_nearest(places[:, 0], 4), _nearest(places[:, 1], 6)]
    node = NODE("GatherND", ["x", "i"], ["y"])
    return EdgeCase(name="GatherND", node=node, inputs={"x": TABLE, "i": places}, expected=[expected])


def _scatter_elements(reduction: str) -> EdgeCase:
    places, updates = np.array([[0, -1, 9], [3, -7, 2**40]]), np.array([[10, 20, 30], [40, 50, 60]], np.float32)
    expected = TABLE[:2].copy()
    for row, column, value in ((0, 0, 10), (0, 5, 20), (1, 3, 40)):
        expected[row, column] = value + (expected[row, column] if reduction == "add" else 0)
    node = NODE("ScatterElements", ["x", "i", "u"], ["y"], axis=1, reduction=reduction)
    inputs = {"x": TABLE[:2], "i": places, "u": updates}
    return EdgeCase(name=f"ScatterElements_{reduction}", node=node, inputs=inputs, expected=[expected])


def _scatter_tuples() -> EdgeCase:
    places = np.array([[0, 1], [3, -1], [4, 0], [1, 6], [-5, 2**40]])
    expected = TABLE.copy()
    expected[0, 1], expected[3, 5] = 100, 101
    inputs = {"x": TABLE, "i": places, "u": np.arange(100, 105, dtype=np.float32)}
    return EdgeCase(
        name="ScatterND", node=NODE("ScatterND", ["x", "i", "u"], ["y"]), inputs=inputs, expected=[expected]
    )


def _one_hot() -> EdgeCase:
    expected = np.zeros((BEYOND.size, 4), np.float32)
    expected[[0, 1, 2], [0, 3, 0]] = 1
    return EdgeCase(
        name="OneHot", node=NODE("OneHot", ["i", "depth", "values"], ["y"]), inputs={"i": BEYOND},
        constants={"depth": np.array(4), "values": np.array([0, 1], np.float32)}, expected=[expected],
    )  # fmt: skip


def _reversed_rows() -> EdgeCase:
    """A length beyond the axis reads the last element where it would read behind it; one below 1 reverses nothing."""
    lengths = np.array([0, 2, 9, -(2**40)])
    expected = TABLE.copy()
    expected[1, :2], expected[2] = TABLE[1, 1::-1], TABLE[2, [5, 5, 5, 5, 4, 3]]
    node = NODE("ReverseSequence", ["x", "n"], ["y"], batch_axis=0, time_axis=1)
    return EdgeCase(name="ReverseSequence", node=node, inputs={"x": TABLE, "n": lengths}, expected=[expected])


def _sampled() -> EdgeCase:
    """Coordinates that are no numbers, or far away, read zeros."""
    grid = np.array([[-1, -1], [1, 1], [1e30, 0], [NAN, 0], [0, -np.inf], [3e9, -3e9]], np.float32)
    node = NODE("GridSample", ["x", "g"], ["y"], mode="nearest", padding_mode="zeros", align_corners=1)
    expected = np.array([0, 23, 0, 0, 0, 0], np.float32).reshape(1, 1, 1, 6)
    inputs = {"x": TABLE.reshape(1, 1, 4, 6), "g": grid.reshape(1, 1, 6, 2)}
    return EdgeCase(name="GridSample", node=node, inputs=inputs, expected=[expected])


INDEX_CASES = [
    *_gather(), _gather_elements(), _gather_tuples(), _scatter_elements("none"), _scatter_elements("add"),
    _scatter_tuples(), _one_hot(), _reversed_rows(), _sampled(),
]  # fmt: skip
