"""Operators that a model's nodes may be of: with converters, as functions of the model, brought by the user."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from tvm_ext.frontends.onnx.control_flow import CONTROL_FLOW
from tvm_ext.frontends.onnx.custom_nodes import is_brought
from tvm_ext.frontends.onnx.fold_node import all_constant
from tvm_ext.frontends.onnx.function_body import has_standard_body
from tvm_ext.frontends.onnx.operators import converters
from tvm_ext.frontends.onnx.refusals import not_defined, refusal
from tvm_ext.frontends.onnx.selected_rows import unread_selections
from tvm_ext.frontends.refusals import Refused


class KnownOperators:
    """Operators of one model, as far as they are known. functions: its own, by domain and name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.functions = {(function.domain, function.name): function for function in model.functions}
        self._converters = converters()
        self._selections = unread_selections(model)

    def converter(self, node: onnx.NodeProto, inputs: Sequence[object]) -> type[OnnxOpConverter] | None:
        """None for selections that are computed with -1 behind them, too: an operator brought here does it."""
        if not self._selections.isdisjoint(node.output) and not all_constant(inputs):
            return None
        return self._converters.get((domain_of(node.domain), node.op_type))

    def function(self, node: onnx.NodeProto) -> onnx.FunctionProto | None:
        return self.functions.get((node.domain, node.op_type))

    def check(self, node: onnx.NodeProto, inputs: Sequence[object], opset: int) -> None:
        """Judge what needs no values, so that nodes after a failing one are judged too. Raises Refused."""
        reason = refusal(node)
        if reason:
            raise Refused(reason)
        known = self.converter(node, inputs) is not None or self.function(node) is not None or all_constant(inputs)
        known = known or is_control_flow(node) or is_brought(node) or has_standard_body(node, opset)
        if not known:
            raise Refused(not_defined(node))


def is_control_flow(node: onnx.NodeProto) -> bool:
    return domain_of(node.domain) == "" and node.op_type in CONTROL_FLOW


def domain_of(name: str) -> str:
    return "" if name == "ai.onnx" else name
