"""Element types of ONNX nodes against the schemas of their operators, which inference leaves unchecked in places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx

from tvm_ext.core.errors import BadModel
from tvm_ext.frontends.onnx.check_inference import Types

Formal = onnx.defs.OpSchema.FormalParameter
ElementTypes = Mapping[str, int]
_DOMAINS = {"": "", "ai.onnx": ""}


def check_types(path: Path, model: onnx.ModelProto, types: Types) -> None:
    """Raises BadModel that names the first node with a tensor of a type that its operator does not take."""
    known = {name: kind.elem_type for name, kind in types.items()}
    known |= {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    known |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    versions = {_DOMAINS.get(entry.domain, entry.domain): entry.version for entry in model.opset_import}
    for index, node in enumerate(model.graph.node):
        reason = _mistyped(node, known, versions.get("", 1)) if node.domain in _DOMAINS else None
        if reason:
            raise BadModel(f"{path}: node {node.name or f'{node.op_type}_{index}'} ({node.op_type}): {reason}.")


def _mistyped(node: onnx.NodeProto, known: ElementTypes, version: int) -> str | None:
    try:
        schema = onnx.defs.get_schema(node.op_type, version)
    except onnx.defs.SchemaError:
        return None  # unknown operators are named elsewhere
    bound: dict[str, tuple[str, str]] = {}
    for name, formal in _tensors(node, schema):
        word = _type_string(known.get(name, 0))
        if word is None:
            continue
        if word not in formal.types:
            return f"{name!r} is {word}, which its {formal.name} cannot be"
        first, other = bound.setdefault(formal.type_str, (name, word)) if formal.is_homogeneous else (name, word)
        if other != word:
            return f"{first!r} is {other} and {name!r} {word}; both have one type"
    return None


def _tensors(node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> Iterator[tuple[str, Formal]]:
    """Names of a node's tensors and what the operator calls them; the last of those repeats where it may."""
    for names, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for index, name in enumerate(names):
            if name and formals and (index < len(formals) or _repeats(formals[-1])):
                yield name, formals[min(index, len(formals) - 1)]


def _repeats(formal: Formal) -> bool:
    return formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic


def _type_string(element_type: int) -> str | None:
    """`tensor(float)` for onnx.TensorProto.FLOAT; None where the type is not known."""
    if element_type == onnx.TensorProto.UNDEFINED:
        return None
    return f"tensor({onnx.TensorProto.DataType.Name(element_type).lower()})"
