"""All operators of the sweep, by their titles."""

from __future__ import annotations

from functools import cache

from benchmarks.pairing import (
    onnx_elementwise,
    onnx_layers,
    onnx_movement,
    onnx_windows,
    tflite_elements,
    tflite_layers,
    tflite_movement,
    torch_elements,
    torch_layers,
)
from benchmarks.pairing.operator_case import Operator

_FAMILIES = (
    onnx_windows,
    onnx_elementwise,
    onnx_layers,
    onnx_movement,
    torch_layers,
    torch_elements,
    tflite_elements,
    tflite_layers,
    tflite_movement,
)


@cache
def operators() -> dict[str, Operator]:
    """Return the operators of all formats. Raises ValueError where two have one title."""
    found: dict[str, Operator] = {}
    for family in _FAMILIES:
        for operator in family.OPERATORS:
            if operator.title in found:
                raise ValueError(f"{operator.title} stands in the table twice")
            found[operator.title] = operator
    return found
