"""Inputs of a model that only select: small whole numbers on which branches, shapes or axes depend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx

from tvm_ext.frontends.onnx.walk_nodes import graphs_of

_MOST_ELEMENTS = 16
_SELECTING = frozenset((onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL))


def selecting_inputs(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], tensors: Sequence[str]) -> list[str]:
    """Inputs of the model that these tensors are computed from, where they are all that varies; none where others do.

    shapes: of the model's inputs. tensors: names, in the graph or inside branches and loops.
    """
    made = {name: node for graph in graphs_of(model) for node in graph.node for name in node.output}
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    found: list[str] = []
    for tensor in tensors:
        reached = _reached(tensor, made) & {*shapes}
        small = all(kinds[name] in _SELECTING and math.prod(shapes[name]) <= _MOST_ELEMENTS for name in reached)
        found += sorted(reached) if small else []
    return list(dict.fromkeys(found))


def bind_hint(names: Sequence[str]) -> str:
    """Clause for a reason: what to do about inputs that only select; empty without any."""
    if not names:
        return ""
    options = " ".join(f"--bind {name}=VALUE" for name in names)
    many = len(names) > 1
    return (
        f": input{'s' if many else ''} {', '.join(names)} select{'' if many else 's'} it; give "
        f"{'them their values' if many else 'it its value'} for good ({options})"
    )


def _reached(tensor: str, made: Mapping[str, onnx.NodeProto]) -> set[str]:
    """All tensors that one is computed from, itself too."""
    seen, pending = {tensor}, [tensor]
    while pending:
        node = made.get(pending.pop())
        new = {*node.input} - seen if node is not None and node.op_type != "Shape" else set[str]()
        seen |= new
        pending += sorted(new)
    return seen
