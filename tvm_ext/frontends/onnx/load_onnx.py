"""Load an ONNX file as a static Relax module, in three steps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tvm_ext.core.limits import Limits
from tvm_ext.core.model_nodes import ModelNode
from tvm_ext.frontends.loaded import Loaded
from tvm_ext.frontends.onnx.check_nodes import inferred_types
from tvm_ext.frontends.onnx.element_types import dtype_of
from tvm_ext.frontends.onnx.import_graph import import_graph
from tvm_ext.frontends.onnx.model_inputs import Bindings, bind_inputs, input_demands
from tvm_ext.frontends.onnx.read_file import read_onnx
from tvm_ext.frontends.onnx.refusals import WAY_OUT
from tvm_ext.frontends.onnx.selected_rows import Selections, bounded_selections, filled_rows, has_selection
from tvm_ext.frontends.onnx.sequences import NO_STATIC_SIZE
from tvm_ext.frontends.open_dimensions import import_with_open_dimensions
from tvm_ext.frontends.refusals import RefusedNode, unsupported
from tvm_ext.frontends.shapes import DeclaredInput, ModelNotice, fix_shapes
from tvm_ext.frontends.size_limits import ImportSizes, check_inputs

_MOST_NUMBERS = 64
"""Elements of a constant that is read where an error suggests sizes of inputs."""


def load_onnx(
    path: Path, shapes: Mapping[str, Sequence[int]] | None, limits: Limits, bind: Bindings | None = None
) -> Loaded:
    """Read the file, bind inputs, fix shapes and import. Raises BadModel, BadOptions, UnsupportedModel."""
    file = read_onnx(path, limits)
    bound = bind_inputs(file.model, bind or {})
    graph = file.model.graph
    others = [
        RefusedNode(
            operator=f"graph {side}", node=value.name, reason=f"{NO_STATIC_SIZE}, or sparse; {side}s are tensors"
        )
        for side, values in (("input", graph.input), ("output", graph.output))
        for value in values
        if value.type.WhichOneof("value") not in (("tensor_type",) if side == "input" else ("tensor_type", None))
    ]
    if others:
        raise unsupported(path, others, way_out=WAY_OUT)
    fixed = fix_shapes(_inputs(graph), shapes)
    check_inputs(path, fixed, _element_bytes(graph), shapes, limits)
    empty = [name for name, shape in fixed.items() if 0 in shape]
    if empty:
        notice = f"inputs without elements carry nothing and are left out: {', '.join(empty)}."
        warnings.warn(notice, ModelNotice, stacklevel=3)

    def selections(at: Mapping[str, tuple[int, ...]]) -> Selections:
        types = inferred_types(path, file.model, at) if has_selection(file.model) else {}
        return bounded_selections(file.model, types, at)

    mod, states = import_with_open_dimensions(
        path,
        lambda at: import_graph(path, selections(at), at, ImportSizes(limits, file.weights_bytes)),
        _inputs(graph), shapes, fixed, _constants(graph),
    )  # fmt: skip
    bounded = selections(fixed)
    output_names = tuple(value.name for value in graph.output)
    return Loaded(
        mod=mod,
        sha256=file.sha256,
        input_names=tuple(name for name in fixed if name not in empty),
        output_names=output_names,
        input_demands=input_demands(file.model, fixed),
        bound=bound,
        states=states,
        nodes=tuple(_node(node, index) for index, node in enumerate(graph.node)),
        filled=filled_rows(mod, output_names, bounded.axes),
        unlike=tuple(sorted(bounded.unlike)),
    )


def _node(node: onnx.NodeProto, index: int) -> ModelNode:
    """Return a node under the name that its calls carry."""
    return ModelNode(
        name=node.name or f"{node.op_type}_{index}",
        operator=node.op_type,
        inputs=tuple(name for name in _read(node) if name),
        outputs=tuple(name for name in node.output if name),
    )


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, including names that bodies of control flow read from outside."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _read(inner)


def _constants(graph: onnx.GraphProto) -> Iterator[np.ndarray]:
    """Yield the constants of a graph. Numbers of large tensors are left out: only their shapes are real."""
    inside = (attribute.t for node in graph.node if node.op_type == "Constant" for attribute in node.attribute)
    for tensor in chain(graph.initializer, inside):
        try:
            if math.prod(tensor.dims) <= _MOST_NUMBERS:
                yield numpy_helper.to_array(tensor)
            else:
                yield np.broadcast_to(np.float32(0), tensor.dims)
        except (ValueError, TypeError, RuntimeError):  # a broken tensor suggests nothing
            continue


def _inputs(graph: onnx.GraphProto) -> list[DeclaredInput]:
    """Return the graph's inputs. An initializer that is also listed there is a constant, not an input."""
    constants = {tensor.name for tensor in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    return [
        DeclaredInput(name=value.name, dims=_dims(value.type.tensor_type))
        for value in graph.input
        if value.name not in constants
    ]


def _element_bytes(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the element size of each input whose type can be compiled."""
    types = {value.name: dtype_of(value.type.tensor_type.elem_type) for value in graph.input}
    return {name: np.dtype(dtype).itemsize for name, dtype in types.items() if dtype is not None}


def _dims(tensor: onnx.TypeProto.Tensor) -> tuple[int | str | None, ...] | None:
    """Return the dimensions of an input. Exporters also write `?` for one without a name."""
    if not tensor.HasField("shape"):
        return None
    names = [None if dim.dim_param in ("", "?") else dim.dim_param for dim in tensor.shape.dim]
    return tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else name
        for dim, name in zip(tensor.shape.dim, names, strict=True)
    )
