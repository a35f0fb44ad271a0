"""NonMaxSuppression, whose number of rows depends on data, as its largest number of rows with -1 after the last.

Operators after it may work on the rows one by one: a Gather of the selected boxes, their coordinates times a scale.
Each tensor that follows from the selection has an axis of rows, as many as the selection may have at most. In the rows
after the last selected one, the indices are -1, by which a Gather reads the last element, so that nothing is read out
of range. What operators make of these rows means nothing, so an output of the model gets -1 there.

An operator that mixes rows, counts them, or reads beyond what the indices can be, would see rows that the file's model
does not have. Such a selection is refused with the name of the operator.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper

from codegen_c.custom.detection.non_max_suppression import NAME
from relay_passes.composites import custom_use
from relay_passes.dataflow import bindings, static_shape
from relay_passes.dataflow import outputs as results_of
from tvm_ext.frontends.onnx.check_nodes import Types
from tvm_ext.frontends.onnx.read_file import nodes_of
from tvm_ext.frontends.onnx.refusals import operator_of
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.shapes import ModelNotice

_KEEPING_MINUS_ONE = frozenset((TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE))
_FLOATS = frozenset((TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE))
_ELEMENTWISE = frozenset(
    "Abs Neg Exp Log Sqrt Relu Sigmoid Tanh Floor Ceil Round Sign Reciprocal Not Clip Add Sub Mul Div Max Min Pow "
    "Equal Less LessOrEqual Greater GreaterOrEqual And Or Where".split()
)


@dataclass(frozen=True, kw_only=True)
class Selections:
    """A model's NonMaxSuppression nodes, each computed or refused, and the tensors with rows that they select.

    model: the model, whose outputs have -1 in rows after the last selected one.
    kept: results of NonMaxSuppression that an operator of our own computes. refused: the reason for each other one.
    axes: axis of the rows, for outputs and tensors that have -1 after the last. unlike: tensors inside the model whose
    rows after the last mean nothing.
    """

    model: onnx.ModelProto
    kept: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    axes: Mapping[str, int] = field(default_factory=dict[str, int])
    unlike: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """A tensor with an axis of rows.

    source: the selection that it follows from. mask: name of a bool vector, True for selected rows.
    is_filled: True if its elements are indices, and -1 in rows after the last. extents: numbers above these indices, by
    column of the last axis, or the one of all columns; None where they are not known.
    """

    source: str
    axis: int
    rank: int
    mask: str
    is_filled: bool
    extents: tuple[int, ...] | None = None


def has_selection(model: onnx.ModelProto) -> bool:
    return any(operator_of(node) == NAME for node in model.graph.node)


def unbounded_selection(reason: str) -> str:
    """Return the refusal of a selection that has no rows of its own. reason: what keeps it from having these."""
    return (
        f"it gives as many boxes as it keeps, which no shape says, and {reason}. Operators after it may read its rows "
        "one by one: casts, Gather of boxes and scores by them, moves of other axes, arithmetic. End the model there, "
        "and do the rest in the application; or take a TensorFlow Lite file with TFLite_Detection_PostProcess: it "
        "gives a fixed number of boxes and says how many of them count (docs/operators.md)"
    )


def bounded_selections(model: onnx.ModelProto, types: Types, shapes: Mapping[str, tuple[int, ...]]) -> Selections:
    """Return what becomes of a model's selections.

    types: of tensors, as far as they can be inferred. shapes: of the inputs.
    """
    selecting = [node for node in nodes_of(model) if operator_of(node) == NAME]
    here = [node for node in model.graph.node if operator_of(node) == NAME]
    if len(selecting) != len(here):
        return Selections(model=model, refused={node.output[0]: "it is in a branch or a loop" for node in selecting})
    return _Bounding(model, types, shapes).run() if here else Selections(model=model)


class _Bounding:
    """Walk over the nodes of a graph in order, with the tensors that have rows of a selection so far."""

    def __init__(self, model: onnx.ModelProto, types: Types, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._model, self._types, self._shapes = model, types, shapes
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t
        self._rows: dict[str, _Rows] = {}
        self._refused: dict[str, str] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._added: list[onnx.TensorProto] = []
        names = {name for node in nodes_of(model) for name in (*node.input, *node.output)}
        self._mark = "rows"  # in the names of added tensors, and in no name of the model
        while any(self._mark in name for name in names):
            self._mark += "_"

    def run(self) -> Selections:
        sources: list[str] = []
        for node in self._model.graph.node:
            self._nodes.append(node)
            if operator_of(node) == NAME:
                sources.append(node.output[0])
                self._select(node)
                continue
            read = [self._rows[name] for name in _read_by(node) if name in self._rows]
            if read:
                self._follow(node, read)
        for value in self._model.graph.output:
            found, dtype = self._rows.get(value.name), value.type.tensor_type.elem_type
            if found is not None and not found.is_filled and dtype not in _KEEPING_MINUS_ONE:
                self._refuse(found, f"output {value.name!r} of its rows has a type without -1")
        taken = {name: rows for name, rows in self._rows.items() if rows.source not in self._refused}
        masked = [value for value in self._model.graph.output if value.name in taken]
        masked = [value for value in masked if not taken[value.name].is_filled]
        unlike = {name for name, rows in taken.items() if not rows.is_filled} - {value.name for value in masked}
        return Selections(
            model=self._masked({value.name: value.type.tensor_type.elem_type for value in masked}, taken),
            kept=frozenset(sources) - self._refused.keys(), refused=self._refused, unlike=frozenset(unlike),
            axes={name: rows.axis for name, rows in taken.items() if name not in unlike},
        )  # fmt: skip

    def _select(self, node: onnx.NodeProto) -> None:
        """Add the mask of a selection: True where the index of the batch is not negative."""
        name = node.output[0]
        first, negative, mask = (self._new(name, part) for part in ("batch", "missing", "selected"))
        zero = self._constant(self._new(name, "zero"), np.int64(0))
        self._nodes += [
            helper.make_node("Gather", [name, zero], [first], axis=1),
            helper.make_node("Less", [first, zero], [negative]),
            helper.make_node("Not", [negative], [mask]),
        ]
        scores = self._shape(node.input[1])
        extents = tuple(scores) if scores is not None and len(scores) == 3 and None not in scores else None
        self._rows[name] = _Rows(
            source=name, axis=0, rank=2, mask=mask, is_filled=True,
            extents=None if extents is None else tuple(int(extent or 0) for extent in extents),
        )  # fmt: skip

    def _follow(self, node: onnx.NodeProto, read: Sequence[_Rows]) -> None:
        try:
            rule = _RULES.get(node.op_type, _elementwise if node.op_type in _ELEMENTWISE else None)
            if rule is None or node.domain not in ("", "ai.onnx"):
                raise Refused("does not work on rows one by one")
            made = rule(self, node, read)
        except Refused as error:
            for rows in read:
                self._refuse(rows, f"{node.op_type} {node.name or node.output[0]!r} reads its rows and {error}")
            made = read[0]  # what follows is not judged again
        self._rows.update({name: made for name in node.output if name})

    def _refuse(self, rows: _Rows, reason: str) -> None:
        self._refused.setdefault(rows.source, reason)

    def _masked(self, outputs: Mapping[str, int], taken: Mapping[str, _Rows]) -> onnx.ModelProto:
        """Return the model with -1 in rows of outputs. outputs: element types by name."""
        if not outputs:
            return self._model
        nodes: list[onnx.NodeProto] = []
        for node in self._nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            for names in (copy.input, copy.output):
                names[:] = [self._new(name, "all") if name in outputs else name for name in names]
            nodes.append(copy)
        for name, dtype in outputs.items():
            rows = taken[name]
            shape = np.array([-1 if axis == rows.axis else 1 for axis in range(rows.rank)], np.int64)
            filler = self._constant(self._new(name, "filler"), np.array(-1, helper.tensor_dtype_to_np_dtype(dtype)))
            shaped, spread = self._constant(self._new(name, "shape"), shape), self._new(name, "selected")
            nodes.append(helper.make_node("Reshape", [rows.mask, shaped], [spread]))
            nodes.append(helper.make_node("Where", [spread, self._new(name, "all"), filler], [name]))
        changed = onnx.ModelProto()
        changed.CopyFrom(self._model)
        del changed.graph.node[:]
        changed.graph.node.extend(nodes)
        changed.graph.initializer.extend(self._added)
        return changed

    def slice_mask(self, mask: str, node: onnx.NodeProto, end: int) -> str:
        """Return the mask of the first rows."""
        name = node.output[0]
        begin = self._constant(self._new(name, "begin"), np.array([0], np.int64))
        bounds = [begin, self._constant(self._new(name, "end"), np.array([end], np.int64))]
        self._nodes.append(helper.make_node("Slice", [mask, *bounds], [self._new(name, "selected")]))
        return self._new(name, "selected")

    def _new(self, name: str, part: str) -> str:
        return f"{name}/{self._mark}/{part}"

    def _constant(self, name: str, array: np.ndarray | np.generic) -> str:
        self._added.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def rows(self, name: str) -> _Rows | None:
        return self._rows.get(name)

    def ints(self, node: onnx.NodeProto, place: int, attribute: str) -> list[int] | None:
        """Return the integers of an input or, in older operator sets, of an attribute; None if it is left out."""
        if place < len(node.input) and node.input[place]:
            tensor = self._constants.get(node.input[place])
            if tensor is None:
                raise Refused(f"its {attribute} is not constant")
            return [int(number) for number in numpy_helper.to_array(tensor).reshape(-1)]
        found = next((entry for entry in node.attribute if entry.name == attribute), None)
        return None if found is None else [int(number) for number in found.ints] or [int(found.i)]

    def _shape(self, name: str) -> tuple[int | None, ...] | None:
        if name in self._shapes:
            return self._shapes[name]
        if name in self._constants:
            return tuple(self._constants[name].dims)
        kind = self._types.get(name)
        if kind is None or not kind.HasField("shape"):
            return None
        return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)

    def element_type(self, name: str) -> int:
        kind = self._types.get(name)
        return TensorProto.UNDEFINED if kind is None else kind.elem_type

    def shape(self, name: str) -> tuple[int | None, ...]:
        found = self._shape(name)
        if found is None:
            raise Refused(f"the shape of {name!r} is not known")
        return found


def _read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, including names that bodies of control flow read from outside."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _read_by(inner)


def _the_rows(graph: _Bounding, node: onnx.NodeProto) -> _Rows:
    """Return the rows of the first input, the only input that may have rows."""
    found = graph.rows(node.input[0])
    if found is None or any(graph.rows(name) for name in node.input[1:]):
        raise Refused("reads rows as a parameter")
    return found


def _axis_of(rows: _Rows, axis: int) -> int:
    return axis + rows.rank if axis < 0 else axis


def _unchanged(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    return _the_rows(graph, node)


def _cast(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    rows, dtype = _the_rows(graph, node), next(entry.i for entry in node.attribute if entry.name == "to")
    return replace(rows, is_filled=rows.is_filled and dtype in _KEEPING_MINUS_ONE)


def _columns(rows: _Rows, axis: int, places: Sequence[int]) -> tuple[int, ...] | None:
    """Return the extents of the columns of the last axis that are taken."""
    if rows.extents is None or axis != rows.rank - 1 or len(rows.extents) == 1:
        return rows.extents
    if not all(-len(rows.extents) <= place < len(rows.extents) for place in places):
        raise Refused("takes columns that it does not have")
    return tuple(rows.extents[place] for place in places)


def _slice(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    rows = _the_rows(graph, node)
    begins, ends = graph.ints(node, 1, "starts"), graph.ints(node, 2, "ends")
    axes, steps = graph.ints(node, 3, "axes"), graph.ints(node, 4, "steps")
    if begins is None or ends is None:
        raise Refused("its bounds are not constant")
    axes = [_axis_of(rows, axis) for axis in (axes if axes is not None else range(len(begins)))]
    for axis, begin, end, step in zip(axes, begins, ends, steps or [1] * len(axes), strict=True):
        if axis == rows.axis:
            if begin != 0 or step != 1 or end < 0:
                raise Refused("takes other rows than the first")
            rows = replace(rows, mask=graph.slice_mask(rows.mask, node, end))
        elif rows.extents is not None and len(rows.extents) > 1 and axis == rows.rank - 1:
            rows = replace(rows, extents=rows.extents[begin:end:step] or None)
    return rows


def _gather(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    data, places = (graph.rows(name) for name in node.input)
    axis = next((entry.i for entry in node.attribute if entry.name == "axis"), 0)
    if data is not None and places is None:
        axis, indices = _axis_of(data, axis), graph.ints(node, 1, "indices")
        rank = len(graph.shape(node.input[1]))
        if axis == data.axis or indices is None:
            raise Refused("takes rows by their numbers")
        moved = data.axis + (rank - 1 if data.axis > axis else 0)
        return replace(data, axis=moved, rank=data.rank + rank - 1, extents=_columns(data, axis, indices))
    if data is not None or places is None:
        raise Refused("takes rows by their numbers")
    shape = graph.shape(node.input[0])
    axis = axis + len(shape) if axis < 0 else axis
    _check_extents(places, [shape[axis]] * len(places.extents or ()))
    return replace(
        places, axis=axis + places.axis, rank=len(shape) - 1 + places.rank, is_filled=False, extents=None
    )  # fmt: skip


def _gather_nd(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    places, shape = graph.rows(node.input[1]), graph.shape(node.input[0])
    if graph.rows(node.input[0]) or places is None or places.axis == places.rank - 1 or node.attribute:
        raise Refused("takes rows by their numbers")
    width = graph.shape(node.input[1])[-1]
    if width is None or len(places.extents or ()) not in (1, width):
        raise Refused("the number of its indices is not known")
    _check_extents(places, [*shape[:width]] if len(places.extents or ()) == width else [min(s or 0 for s in shape)])
    return replace(places, rank=places.rank - 1 + len(shape) - width, is_filled=False, extents=None)


def _check_extents(places: _Rows, available: Sequence[int | None]) -> None:
    """Raise Refused where an index may lie outside of the data."""
    if not places.is_filled:
        raise Refused("takes data by numbers that are computed from its rows, and may lie outside of the data")
    if places.extents is None:
        raise Refused("takes data by its rows, but the number of boxes cannot be inferred")
    if any(extent is None or extent < needed for extent, needed in zip(available, places.extents, strict=True)):
        raise Refused(f"its indices may be up to {max(places.extents) - 1}, outside of the data")


def _unsqueeze(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    rows, axes = _the_rows(graph, node), graph.ints(node, 1, "axes") or []
    rank = rows.rank + len(axes)
    added = {axis + rank if axis < 0 else axis for axis in axes}
    left = [axis for axis in range(rank) if axis not in added]
    is_last = rank - 1 not in added
    if rows.extents is not None and len(rows.extents) > 1 and not is_last:
        rows = replace(rows, extents=(max(rows.extents),))
    return replace(rows, axis=left[rows.axis], rank=rank)


def _squeeze(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    rows, axes = _the_rows(graph, node), graph.ints(node, 1, "axes")
    if axes is None or rows.axis in [_axis_of(rows, axis) for axis in axes]:
        raise Refused("may remove the axis of rows; give the axes that it removes")
    removed = {_axis_of(rows, axis) for axis in axes}
    extents = None if rows.extents is None else (max(rows.extents),)
    return replace(
        rows, axis=rows.axis - sum(axis < rows.axis for axis in removed), rank=rows.rank - len(removed), extents=extents
    )


def _transpose(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    rows = _the_rows(graph, node)
    order = graph.ints(node, 1, "perm") or list(range(rows.rank))[::-1]
    extents = None if rows.extents is None else (max(rows.extents),)
    return replace(rows, axis=order.index(rows.axis), extents=extents)


def _reshape(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    """Each row stays a row: rows are the first axis before and after, and the rest has the same number of elements."""
    rows, shape = _the_rows(graph, node), graph.ints(node, 1, "shape") or []
    rest = graph.shape(node.input[0])[1:]
    if rows.axis != 0 or not shape or shape[0] not in (-1, 0) or min(shape[1:], default=1) < 1 or None in rest:
        raise Refused("may not keep each row as a row")
    if np.prod([extent or 0 for extent in rest], dtype=np.int64) != np.prod(shape[1:], dtype=np.int64):
        raise Refused("does not keep each row as a row")
    extents = None if rows.extents is None else (max(rows.extents),)
    return replace(rows, rank=len(shape), extents=extents)


def _split(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    rows = _the_rows(graph, node)
    axis = _axis_of(rows, next((entry.i for entry in node.attribute if entry.name == "axis"), 0))
    if axis == rows.axis:
        raise Refused("divides the rows")
    return replace(rows, extents=None if rows.extents is None else (max(rows.extents),))


def _concat(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    axis = _axis_of(read[0], next(entry.i for entry in node.attribute if entry.name == "axis"))
    first = read[0]
    same = all((rows.mask, rows.axis, rows.rank) == (first.mask, first.axis, first.rank) for rows in read)
    if len(read) != len(node.input) or not same or axis == first.axis:
        raise Refused("joins them with something that does not have these rows")
    known = [rows.extents for rows in read]
    extents = None if any(entry is None for entry in known) else (max(max(entry or (0,)) for entry in known),)
    return replace(first, is_filled=all(rows.is_filled for rows in read), extents=extents)


def _elementwise(graph: _Bounding, node: onnx.NodeProto, read: Sequence[_Rows]) -> _Rows:
    """Operands are aligned at the last axis: those without rows have one element along the axis of rows, or none."""
    if node.op_type in ("Div", "Pow") and graph.element_type(node.output[0]) not in _FLOATS:
        raise Refused("divides integers, of which rows after the last selected one may be 0")
    first, ranks = read[0], [rows.rank for rows in read]
    for name in node.input:
        rows = graph.rows(name)
        if rows is not None:
            if (rows.mask, rows.rank - rows.axis) != (first.mask, first.rank - first.axis):
                raise Refused("joins them with other rows")
        elif name:
            shape, place = graph.shape(name), first.rank - first.axis
            ranks.append(len(shape))
            if len(shape) >= place and shape[len(shape) - place] != 1:
                raise Refused("joins them with something that does not have these rows")
    rank = max(ranks)
    return replace(first, rank=rank, axis=rank - (first.rank - first.axis), is_filled=False, extents=None)


_Rule = Callable[[_Bounding, onnx.NodeProto, Sequence[_Rows]], _Rows]
_RULES: Mapping[str, _Rule] = {
    "Identity": _unchanged, "Cast": _cast, "Slice": _slice, "Gather": _gather, "GatherND": _gather_nd,
    "Unsqueeze": _unsqueeze, "Squeeze": _squeeze, "Transpose": _transpose, "Reshape": _reshape, "Split": _split,
    "Concat": _concat,
}  # fmt: skip


def filled_rows(mod: tvm.IRModule, outputs: Sequence[str], axes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the axis of rows and their number for tensors whose rows after the selected rows are -1, by name.

    A ModelNotice names the outputs among them. Empty if the selection is constant, so that its rows are known.
    outputs: names of the results of `main`, in order. axes: by name of the file's tensor.
    """
    every = bindings(mod["main"])
    uses = (custom_use(binding.value) for binding in every)
    if not any(use is not None and use.operator == NAME for use in uses):
        return {}
    named = {binding.var.name: binding.var for binding in every if binding.var.name in axes}
    named |= {name: value for name, value in zip(outputs, results_of(mod["main"]), strict=False) if name in axes}
    found = {name: (axes[name], static_shape(value)[axes[name]]) for name, value in named.items()}
    listed = ", ".join(f"{name} has {found[name][1]}" for name in outputs if name in found)
    if listed:
        warnings.warn(
            f"outputs of NonMaxSuppression have a row for each box that it may select, and -1 in rows behind the last "
            f"that it selects: {listed}.",
            ModelNotice, stacklevel=4,
        )  # fmt: skip
    return found
