"""Sequences and optionals of ONNX, as lists of tensors that exist during the import only.

Exporters of PyTorch write SplitToSequence and SequenceAt for a split, and SequenceInsert in a loop for a list that
grows. Where lengths and positions are known at import, each element is a tensor of the module, and the sequence itself
needs no code. An optional is its tensor, or no value, like an input that is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from tvm import relax

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.frontends.emitter import Emitter
from tvm_ext.frontends.loops import Emit
from tvm_ext.frontends.refusals import Refused

NO_STATIC_SIZE = "it is a sequence or an optional, which has no static size"
_MOST_ELEMENTS = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorSequence:
    """A sequence of known length."""

    tensors: tuple[relax.Expr, ...]


Value = relax.Expr | TensorSequence | None
Results = list["relax.Expr | TensorSequence | None"]
Attributes = Mapping[str, object]
Import = Callable[[Sequence[Value], Attributes, Emit], Results]


def holds_sequence(values: Sequence[object]) -> bool:
    return any(isinstance(value, TensorSequence) for value in values)


def sequence_results(node: onnx.NodeProto, inputs: Sequence[Value], emit: Emit) -> Results | None:
    """Return the results of a node that makes or reads sequences or optionals, or None for another node.

    Raises Refused for a length or position that depends on data, and for a node that does not read sequences.
    """
    is_standard = node.domain in ("", "ai.onnx")
    if is_standard and node.op_type == "Identity" and holds_sequence(inputs):
        return [inputs[0]]
    function = _OPERATORS.get(node.op_type) if is_standard else None
    if function is None:
        if holds_sequence(inputs) and not (is_standard and node.op_type == "SequenceMap"):
            raise Refused(f"{NO_STATIC_SIZE}, where a tensor is read")
        return None
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return function([*inputs, *[None] * (3 - len(inputs))], attributes, emit)


def _construct(inputs: Sequence[Value], attributes: Attributes, emit: Emit) -> Results:
    return [_sequence([_tensor(value) for value in inputs if value is not None])]


def _empty(inputs: Sequence[Value], attributes: Attributes, emit: Emit) -> Results:
    return [TensorSequence(tensors=())]


def _insert(inputs: Sequence[Value], attributes: Attributes, emit: Emit) -> Results:
    elements, tensor = _elements(inputs[0]), _tensor(inputs[1])
    place = len(elements) if inputs[2] is None else _place(inputs[2], len(elements) + 1, len(elements))
    return [_sequence([*elements[:place], tensor, *elements[place:]])]


def _erase(inputs: Sequence[Value], attributes: Attributes, emit: Emit) -> Results:
    elements = _elements(inputs[0])
    place = len(elements) - 1 if inputs[1] is None else _place(inputs[1], len(elements), len(elements))
    return [_sequence([*elements[:place], *elements[place + 1 :]])]


def _at(inputs: Sequence[Value], attributes: Attributes, emit: Emit) -> Results:
    elements = _elements(inputs[0])
    return [elements[_place(inputs[1], len(elements), len(elements))]]


def _length(inputs: Sequence[Value], attributes: Attributes, emit: Emit) -> Results:
    return [constant(np.array(len(_elements(inputs[0])), np.int64))]


def _concat(inputs: Sequence[Value], attributes: Attributes, emit: Emit) -> Results:
    elements, axis = _elements(inputs[0]), _whole(attributes["axis"])
    if not elements:
        raise Refused("a sequence without elements, of which nothing can be joined")
    if _whole(attributes.get("new_axis", 0)):
        return list(
            emit(lambda bb: Emitter(bb).stack(list(elements), axis=axis % (len(static_shape(elements[0])) + 1)))
        )
    return list(emit(lambda bb: Emitter(bb).concat(list(elements), axis=axis)))


def _split(inputs: Sequence[Value], attributes: Attributes, emit: Emit) -> Results:
    """Split a tensor into parts of the given extents, of one extent, or of 1, which drops the axis on request."""
    x, axis = _tensor(inputs[0]), _whole(attributes.get("axis", 0))
    axis, extent = axis % len(static_shape(x)), static_shape(x)[axis]
    drops = inputs[1] is None and not _whole(attributes.get("keepdims", 1))
    given = np.array(1) if inputs[1] is None else _numbers(inputs[1])
    if not given.shape and int(given) > 0:
        extents = [min(int(given), extent - begin) for begin in range(0, extent, int(given))]
    else:
        extents = [int(one) for one in given.reshape(-1)]
    if sum(extents) != extent or min(extents, default=0) < 0:
        raise Refused(f"parts of {extents} of an axis of {extent}")
    ends = np.cumsum(extents).tolist()
    kept = [one for index, one in enumerate(static_shape(x)) if index != axis]
    _check_length(len(extents))

    def part(begin: int, end: int) -> relax.Expr:
        def build(bb: relax.BlockBuilder) -> relax.Expr:
            sliced = Emitter(bb).slice(x, axis, begin, end)
            return Emitter(bb).reshaped(sliced, kept) if drops else sliced

        return emit(build)[0]

    return [_sequence([part(end - size, end) for size, end in zip(extents, ends, strict=True)])]


def _optional(inputs: Sequence[Value], attributes: Attributes, emit: Emit) -> Results:
    return [inputs[0]]


def _get_element(inputs: Sequence[Value], attributes: Attributes, emit: Emit) -> Results:
    if inputs[0] is None:
        raise Refused("an optional without a value is read")
    return [inputs[0]]


def _has_element(inputs: Sequence[Value], attributes: Attributes, emit: Emit) -> Results:
    return [constant(np.array(inputs[0] is not None))]


_OPERATORS: Mapping[str, Import] = {
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
SEQUENCE_OPERATORS = frozenset(_OPERATORS)
"""Operators of the standard that make or read sequences or optionals, except SequenceMap."""


def _sequence(tensors: Sequence[relax.Expr]) -> TensorSequence:
    _check_length(len(tensors))
    return TensorSequence(tensors=tuple(tensors))


def _check_length(count: int) -> None:
    if count > _MOST_ELEMENTS:
        raise Refused(f"a sequence of {count} elements; {_MOST_ELEMENTS} can be compiled")


def _elements(value: Value) -> tuple[relax.Expr, ...]:
    if not isinstance(value, TensorSequence):
        raise Refused("its input is no sequence")
    return value.tensors


def _tensor(value: Value) -> relax.Expr:
    if not isinstance(value, relax.Expr):
        raise Refused(f"{NO_STATIC_SIZE}, where a tensor is read")
    return value


def _numbers(value: Value) -> np.ndarray:
    array = array_of(_tensor(value))
    if array is None:
        raise Refused("the position or length that it takes depends on data")
    return array


def _place(value: Value, count: int, length: int) -> int:
    """Return a position below `count`. A negative position counts from the end of the `length` elements."""
    place = int(_numbers(value).reshape(-1)[0])
    found = place + length if place < 0 else place
    if not 0 <= found < count:
        raise Refused(f"position {place} of a sequence of {length} elements")
    return found


def _whole(value: object) -> int:
    return int(str(value))
