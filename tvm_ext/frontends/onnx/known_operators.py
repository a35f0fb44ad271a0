"""Operators that the nodes of a model may use, and operators that are defined as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.onnx.control_flow import CONTROL_FLOW
from tvm_ext.frontends.onnx.custom_nodes import is_brought
from tvm_ext.frontends.onnx.fold_node import all_constant
from tvm_ext.frontends.onnx.operators import converters
from tvm_ext.frontends.onnx.read_file import first_opsets
from tvm_ext.frontends.onnx.refusals import not_defined, refusal
from tvm_ext.frontends.onnx.selected_rows import Selections, unbounded_selection
from tvm_ext.frontends.onnx.sequences import SEQUENCE_OPERATORS, TensorSequence
from tvm_ext.frontends.refusals import Refused


class KnownOperators:
    """The known operators of a model.

    functions: its own, by domain and name. selections: what becomes of its NonMaxSuppression nodes.
    """

    def __init__(self, model: onnx.ModelProto, selections: Selections) -> None:
        self.functions = {(function.domain, function.name): function for function in model.functions}
        self._converters = converters()
        self._selections = selections

    def converter(self, node: onnx.NodeProto, inputs: Sequence[object]) -> type[OnnxOpConverter] | None:
        """Return the converter of a node.

        None for selections that are padded with -1, which an operator of our own computes.
        """
        if not self._selections.kept.isdisjoint(node.output) and not all_constant(inputs):
            return None
        return self._converters.get((domain_of(node.domain), node.op_type))

    def function(self, node: onnx.NodeProto) -> onnx.FunctionProto | None:
        return self.functions.get((node.domain, node.op_type))

    def check(self, node: onnx.NodeProto, inputs: Sequence[object], opset: int) -> None:
        """Check what needs no values, so that nodes after a failing node are checked too. Raises Refused."""
        reason = refusal(node)
        if reason:
            raise Refused(reason)
        reasons = self._selections.refused
        unbounded = next((reasons[name] for name in node.output if name in reasons), None)
        if unbounded is not None and not all_constant(inputs):
            raise Refused(unbounded_selection(unbounded))
        known = self.converter(node, inputs) is not None or self.function(node) is not None or all_constant(inputs)
        known = known or (domain_of(node.domain) == "" and node.op_type in SEQUENCE_OPERATORS)
        known = known or is_control_flow(node) or is_brought(node) or has_standard_body(node, opset)
        if not known:
            raise Refused(not_defined(node))


def is_control_flow(node: onnx.NodeProto) -> bool:
    return domain_of(node.domain) == "" and node.op_type in CONTROL_FLOW


def domain_of(name: str) -> str:
    return "" if name == "ai.onnx" else name


def opset_for(node: onnx.NodeProto, opsets: Mapping[str, int]) -> int:
    """Return the opset by which a node is read: the one that is declared for its domain, or the operator's first.

    The first is newer where a tool writes an operator that the declared opset does not have yet.
    """
    domain = domain_of(node.domain)
    declared = opsets.get(domain, 1)
    return declared if domain else max(declared, first_opsets().get(node.op_type, 1))


def standard_body(node: onnx.NodeProto, opset: int, inputs: Sequence[relax.Expr | None]) -> onnx.FunctionProto | None:
    """Return the body that the standard defines for `node` with inputs of these types, or None."""
    schema = _schema(node, opset)
    if schema is None:
        return None
    if schema.has_function:
        version = _version(schema.function_opset_versions, opset)
        return _function(schema.get_function_with_opset_version(version))
    if schema.has_context_dependent_function:
        version = _version(schema.context_dependent_function_opset_versions, opset)
        types = [_type_proto(expr) for expr in inputs]
        body = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
        return _function(body) if body else None
    return None


def has_standard_body(node: onnx.NodeProto, opset: int) -> bool:
    """Return True where the standard defines `node` by other operators, at least for some types of inputs."""
    schema = _schema(node, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def bind_attributes(node: onnx.NodeProto, values: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """Return a node of a function's body with references to the function's attributes replaced by their values."""
    bound = onnx.NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name and attribute.ref_attr_name not in values:
            continue
        copy = bound.attribute.add()
        copy.CopyFrom(values[attribute.ref_attr_name] if attribute.ref_attr_name else attribute)
        copy.name = attribute.name
        for graph in [copy.g, *copy.graphs] if copy.HasField("g") or copy.graphs else []:
            nodes = [bind_attributes(inner, values) for inner in graph.node]
            del graph.node[:]
            graph.node.extend(nodes)
    return bound


def attribute_values(function: onnx.FunctionProto, node: onnx.NodeProto, opset: int) -> dict[str, onnx.AttributeProto]:
    """Return the function's attributes as the calling node sets them, or their defaults."""
    schema = _schema(node, opset)
    defaults = {} if schema is None else {a.name: a.default_value for a in schema.attributes.values()}
    defaults = {name: value for name, value in defaults.items() if value.type != onnx.AttributeProto.UNDEFINED}
    defaults |= {attribute.name: attribute for attribute in function.attribute_proto}
    return defaults | {attribute.name: attribute for attribute in node.attribute}


def _schema(node: onnx.NodeProto, opset: int) -> onnx.defs.OpSchema | None:
    domain = "" if node.domain == "ai.onnx" else node.domain
    if not onnx.defs.has(node.op_type, domain):
        return None
    try:
        return onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def _version(versions: Sequence[int], opset: int) -> int:
    """Return the newest body that the model's operator set knows, or the oldest body."""
    return max((version for version in versions if version <= opset), default=min(versions))


def _function(data: bytes) -> onnx.FunctionProto:
    function = onnx.FunctionProto()
    function.ParseFromString(data)
    return function


def _type_proto(expr: relax.Expr | TensorSequence | None) -> bytes:
    if expr is None:
        return b""
    if isinstance(expr, TensorSequence):
        kind = onnx.TypeProto()
        if expr.tensors:
            kind.sequence_type.elem_type.ParseFromString(_type_proto(expr.tensors[0]))
            kind.sequence_type.elem_type.tensor_type.ClearField("shape")
        return kind.SerializeToString()
    dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(str(expr.ty.dtype)))
    return onnx.helper.make_tensor_type_proto(dtype, static_shape(expr)).SerializeToString()
