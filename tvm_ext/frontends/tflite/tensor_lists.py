"""Lists of tensors that recurrent layers of Keras write element by element: TensorFlow's TensorList.

With select TF operators, a list is a tensor of type VARIANT:

    list = FlexTensorListReserve(element_shape, count)      no element is set
    list = FlexTensorListSetItem(list, i, element)
    y = FlexTensorListStack(list, element_shape)            [count, *element], zeros for elements that are not set

The number of elements and each index have to be known. With built-in operators only, a list is one tensor, and an
iteration writes element i as

    concat(slice(list, [0, 0, 0], [i, -1, -1]), expand_dims(element), slice(list, [i + 1, 0, 0], [-1, -1, -1]))

whose slices have lengths that change from iteration to iteration.

A WHILE that runs as a step in a loop writes a list in one of two ways. Iteration i of its counter writes element i: the
list then holds the elements of all iterations after the loop, and the step stacks them. Or all iterations write the
same element, which Keras does if only the last output of a layer is wanted: the element is then one of the values that
an iteration passes to the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from tvm import relax

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.loops import whole_number
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteLoop, TfliteNode, TfliteTensor

RESERVE, SET_ITEM, STACK = "FlexTensorListReserve", "FlexTensorListSetItem", "FlexTensorListStack"
LIST_OPERATORS = {RESERVE: 2, SET_ITEM: 3, STACK: 2}
"""Operators on lists of type VARIANT that are compiled, and how many inputs they have."""
_FAMILY = "FlexTensorList"


def is_list(tensor: TfliteTensor) -> bool:
    """Return True for a tensor of type VARIANT, which is a list if operators on lists write it."""
    return tensor.type_name == "VARIANT"


def refusal_of_flex(file: TfliteFile, node: TfliteNode) -> str | None:
    """Return why an operator of TensorFlow is refused, or None for an operator on lists that can be compiled."""
    if node.operator not in LIST_OPERATORS:
        way_out = "convert with built-in operators only"
        if node.operator.startswith(_FAMILY):
            way_out += ", or the layers with unroll=True"
        return f"a TensorFlow operator carried along (select TF); {way_out}"
    wanted = LIST_OPERATORS[node.operator]
    if len(node.inputs) != wanted or len(node.outputs) != 1 or -1 in (*node.inputs, *node.outputs):
        return f"it has {len(node.inputs)} inputs and {len(node.outputs)} outputs; {wanted} and 1 are needed"
    if node.is_guarded:
        return "a list of TensorFlow in a branch that a run may skip"
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorList:
    """The value of a list. elements: those that are set, by index. stacked: all of them as one tensor [count, ...]."""

    count: int
    elements: Mapping[int, relax.Expr] = field(default_factory=dict)
    stacked: relax.Expr | None = None

    def with_element(self, index: int, element: relax.Expr) -> TensorList:
        """Return the list with another element. Raises Refused for an index outside of the list."""
        if self.stacked is not None:
            raise Refused("it writes a list that a loop has written before")
        if not 0 <= index < self.count:
            raise Refused(f"it writes element {index} of a list of {self.count} elements")
        return replace(self, elements={**self.elements, index: element})

    def tensor(self, builder: relax.BlockBuilder) -> relax.Expr:
        """Return all elements as one tensor. Raises Refused for a list without elements, and for several shapes."""
        if self.stacked is not None:
            return self.stacked
        if len({static_shape(element) for element in self.elements.values()}) != 1:
            raise Refused("it stacks a list without elements, or with elements of several shapes")
        first = next(iter(self.elements.values()))
        shape, parts, known = static_shape(first), list[relax.Expr](), sorted(self.elements)
        for index, after in zip([-1, *known], [*known, self.count], strict=True):
            if index >= 0:
                parts.append(builder.emit(relax.op.expand_dims(self.elements[index], 0)))
            if after - index > 1:
                parts.append(relax.op.zeros((after - index - 1, *shape), str(first.ty.dtype)))
        return parts[0] if len(parts) == 1 else relax.op.concat(parts, 0)


def reserved(count: relax.Expr) -> TensorList:
    """Return a list of which no element is set. Raises Refused if the number of its elements is not known."""
    number = whole_number(count)
    if number is None or number < 1:
        raise Refused("the number of elements of its list is not known; convert the layers with unroll=True")
    return TensorList(count=number)


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopList:
    """A list among the values of a loop, of which each iteration writes one element.

    place: of the list among the values. element: the tensor that is written. nodes: the operators that write it.
    counter: place of the counter i if iteration i writes element i. index: without a counter, the element that all
    iterations write.
    is_tensor: True for a list of built-in operators, whose element has an axis of extent 1 in front.
    """

    place: int
    element: int
    nodes: tuple[TfliteNode, ...]
    counter: int | None = None
    index: int = 0
    is_tensor: bool = True


def written_lists(file: TfliteFile, loop: TfliteLoop) -> tuple[LoopList, ...]:
    """Return the lists of a loop that nothing but the writing of their elements reads."""
    made = {index: node for node in loop.nodes for index in node.outputs}
    found = (
        _item(file, loop, made, place) if is_list(file.tensors[index]) else _joined(file, loop, made, place)
        for place, index in enumerate(loop.values)
    )
    return tuple(one for one in found if one is not None)


def _item(file: TfliteFile, loop: TfliteLoop, made: Mapping[int, TfliteNode], place: int) -> LoopList | None:
    """Return the list of type VARIANT at a place."""
    node, value = made.get(loop.results[place]), loop.values[place]
    if node is None or node.operator != SET_ITEM or node.inputs[0] != value:
        return None
    if any(value in other.inputs for other in loop.nodes if other is not node):
        return None
    found = LoopList(place=place, element=node.inputs[2], nodes=(node,), is_tensor=False)
    at = node.inputs[1]
    if at in loop.values:
        counter = loop.values.index(at)
        return replace(found, counter=counter) if _is_next(file, made, loop.results[counter], at) else None
    data = file.tensors[at].data
    return None if data is None or data.size != 1 else replace(found, index=int(data.reshape(-1)[0]))


def _joined(file: TfliteFile, loop: TfliteLoop, made: Mapping[int, TfliteNode], place: int) -> LoopList | None:
    """Return the list of built-in operators at a place."""
    casts = list(_casts(file, made, loop.results[place]))
    joined = made.get(casts[-1].inputs[0] if casts else loop.results[place])
    if joined is None or joined.operator != "CONCATENATION" or len(joined.inputs) != 3:
        return None
    before, after = made.get(joined.inputs[0]), made.get(joined.inputs[2])
    if before is None or after is None or before.operator != "SLICE" or after.operator != "SLICE":
        return None
    if not before.inputs[0] == after.inputs[0] == loop.values[place]:
        return None
    parts = (before, after, joined, *casts)
    readers = [node for node in loop.nodes if not {loop.values[place], *_between(parts)}.isdisjoint(node.inputs)]
    if any(all(node is not part for part in parts) for node in readers):
        return None
    # The first slice begins at 0 and has i elements; the second begins at i + 1 and has all others.
    ends, begins = _leading(file, made, before.inputs[2], -1), _leading(file, made, after.inputs[1], 0)
    if not _is_all(file, before.inputs[1], 0) or not _is_all(file, after.inputs[2], -1) or ends not in loop.values:
        return None
    counter = loop.values.index(ends)
    if loop.results[counter] != begins or not _is_next(file, made, begins, ends):
        return None
    return LoopList(place=place, counter=counter, element=joined.inputs[1], nodes=parts)


def _casts(file: TfliteFile, made: Mapping[int, TfliteNode], index: int) -> Iterator[TfliteNode]:
    """Yield the casts to the same type that end at a tensor, the last first."""
    while (node := made.get(index)) is not None and node.operator == "CAST":
        if file.tensors[node.inputs[0]].dtype != file.tensors[index].dtype:
            return
        yield node
        index = node.inputs[0]


def _between(parts: tuple[TfliteNode, ...]) -> set[int]:
    """Return the results of operators that only each other read; the last results are the list itself."""
    read = {index for node in parts for index in node.inputs}
    return {index for node in parts for index in node.outputs} & read


def _leading(file: TfliteFile, made: Mapping[int, TfliteNode], index: int, others: int) -> int | None:
    """Return the scalar ahead of numbers that all equal `others` in a vector of integers, or None."""
    vector = made.get(index)
    if vector is None or vector.operator != "CONCATENATION" or len(vector.inputs) != 2:
        return None
    scalar, rest = made.get(vector.inputs[0]), vector.inputs[1]
    if scalar is None or scalar.operator not in ("RESHAPE", "EXPAND_DIMS") or not _is_all(file, rest, others):
        return None
    return scalar.inputs[0]


def _is_next(file: TfliteFile, made: Mapping[int, TfliteNode], after: int, before: int) -> bool:
    """Return True if a tensor is the counter plus 1."""
    node = made.get(after)
    if node is None or node.operator != "ADD" or before not in node.inputs:
        return False
    return any(_is_all(file, index, 1) for index in node.inputs if index != before)


def _is_all(file: TfliteFile, index: int, number: int) -> bool:
    """Return True for a constant whose numbers are all the same."""
    data = file.tensors[index].data if index >= 0 else None
    return data is not None and data.size > 0 and bool(np.all(data == number))
