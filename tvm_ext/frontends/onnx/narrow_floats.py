"""Operators on floats of 16 bits: computed in float32, each result rounded to the type that ONNX gives it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from tvm import relax

from relay_passes.dataflow import array_of, constant

NARROW_FLOATS = frozenset(("float16", "bfloat16"))
# Operators that move elements, or look at shapes alone: nothing is computed, and nothing is rounded.
_MOVES = frozenset(
    "Identity Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Gather Expand Shape Size "
    "DepthToSpace SpaceToDepth Tile".split()
)


def computes_narrow(node: onnx.NodeProto, inputs: Sequence[relax.Expr | None]) -> bool:
    """True for a node that computes with floats of 16 bits."""
    if node.op_type in _MOVES and node.domain in ("", "ai.onnx"):
        return False
    return any(_dtype(value) in NARROW_FLOATS for value in inputs)


def widened(value: relax.Expr | None) -> relax.Expr | None:
    """The value as float32 where it has 16 bits; a constant stays one."""
    if _dtype(value) not in NARROW_FLOATS:
        return value
    array = array_of(value)
    return relax.op.astype(value, "float32") if array is None else constant(array.astype(np.float32))


def narrow_results(node: onnx.NodeProto, inputs: Sequence[relax.Expr | None]) -> list[str]:
    """Type of each output that the standard gives one type with an input of 16 bits; empty for the others.

    Operators that are not of the standard give what they are given.
    """
    narrow = [dtype if (dtype := _dtype(value)) in NARROW_FLOATS else "" for value in inputs]
    try:
        schema = onnx.defs.get_schema(node.op_type, "" if node.domain == "ai.onnx" else node.domain)
    except onnx.defs.SchemaError:
        return [max(narrow)] * len(node.output)
    types: dict[str, str] = {}
    for index, dtype in enumerate(narrow):
        if dtype:
            types.setdefault(schema.inputs[min(index, len(schema.inputs) - 1)].type_str, dtype)
    last = len(schema.outputs) - 1
    return [types.get(schema.outputs[min(index, last)].type_str, "") for index in range(len(node.output))]


def narrowed(value: relax.Expr, dtype: str) -> relax.Expr:
    """A result of float32 in the type that it has in the model; others as they are."""
    if not dtype or _dtype(value) != "float32":
        return value
    array = array_of(value)
    if array is None:
        return relax.op.astype(value, dtype)
    with np.errstate(over="ignore"):
        return constant(array.astype(dtype))


def _dtype(value: relax.Expr | None) -> str:
    return str(value.ty.dtype) if isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType) else ""
