"""Operators defined by other operators: functions of the model, and the bodies the ONNX standard gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from tvm import relax

from relay_passes.dataflow import static_shape


def standard_body(node: onnx.NodeProto, opset: int, inputs: Sequence[relax.Expr | None]) -> onnx.FunctionProto | None:
    """The body the standard gives for `node` with inputs of these types, None when it gives none."""
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
    """True where the standard defines `node` by other operators, for some types of inputs at least."""
    schema = _schema(node, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def bind_attributes(node: onnx.NodeProto, values: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A node of a function's body with references to the function's attributes replaced by their values."""
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
    """The function's attributes as the calling node sets them, the defaults where it does not."""
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
    """The newest body that the model's operator set knows, or the oldest there is."""
    return max((version for version in versions if version <= opset), default=min(versions))


def _function(data: bytes) -> onnx.FunctionProto:
    function = onnx.FunctionProto()
    function.ParseFromString(data)
    return function


def _type_proto(expr: relax.Expr | None) -> bytes:
    if expr is None:
        return b""
    dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(str(expr.ty.dtype)))
    return onnx.helper.make_tensor_type_proto(dtype, static_shape(expr)).SerializeToString()
