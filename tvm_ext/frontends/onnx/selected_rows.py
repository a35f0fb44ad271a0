"""NonMaxSuppression, whose number of rows depends on data, as its largest number of rows with -1 after the last.

A reader sees -1 where the file's model has no row. So the rows may only become outputs of the model, also through
casts.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import onnx
import tvm
from onnx import TensorProto
from tvm import relax

from codegen_c.custom.detection.non_max_suppression import NAME
from relay_passes.composites import custom_use
from relay_passes.dataflow import bindings, op_name, static_shape
from relay_passes.dataflow import outputs as results_of
from tvm_ext.frontends.onnx.read_file import nodes_of
from tvm_ext.frontends.onnx.refusals import operator_of
from tvm_ext.frontends.shapes import ModelNotice

_KEEPING_MINUS_ONE = frozenset((TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE))


def unread_selections(model: onnx.ModelProto) -> frozenset[str]:
    """Return the results of NonMaxSuppression that only casts to types with -1 read.

    A model with the operator in a branch, a loop or a function has none, because names differ there.
    """
    selecting = [node for node in nodes_of(model) if operator_of(node) == NAME]
    if len(selecting) != sum(operator_of(node) == NAME for node in model.graph.node):
        return frozenset()
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes_of(model):
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return frozenset(node.output[0] for node in selecting if _is_unread(node.output[0], readers))


def _is_unread(name: str, readers: Mapping[str, Sequence[onnx.NodeProto]]) -> bool:
    pending = [name]
    while pending:
        reading = readers.get(pending.pop(), ())
        if not all(_casts(node) for node in reading):
            return False
        pending += [result for node in reading for result in node.output]
    return True


def _casts(node: onnx.NodeProto) -> bool:
    kept = any(attribute.name == "to" and attribute.i in _KEEPING_MINUS_ONE for attribute in node.attribute)
    return operator_of(node) == "ai.onnx.Cast" and kept


def filled_rows(mod: tvm.IRModule, outputs: Sequence[str]) -> dict[str, int]:
    """Return the number of rows of tensors whose rows after the selected rows are -1, by name.

    A ModelNotice names the outputs among them.
    outputs: names of the results of `main`, in order.
    """
    found: dict[relax.Expr, int] = {}
    for binding in bindings(mod["main"]):
        use, value = custom_use(binding.value), binding.value
        casts = op_name(value) == "relax.astype" and value.args[0] in found
        if casts or (use is not None and use.operator == NAME):
            found[binding.var] = static_shape(binding.var)[0]
    filled = [
        (name, found[value]) for name, value in zip(outputs, results_of(mod["main"]), strict=False) if value in found
    ]
    if filled:
        listed = ", ".join(f"{name} has {rows}" for name, rows in filled)
        warnings.warn(
            f"outputs of NonMaxSuppression have a row for each box that it may select, and -1 in rows behind the last "
            f"that it selects: {listed}.",
            ModelNotice, stacklevel=4,
        )  # fmt: skip
    return {**{var.name: rows for var, rows in found.items()}, **dict(filled)}
