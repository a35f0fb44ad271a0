"""Find lists that a WHILE of Keras writes element by element, in the order of its counter.

TensorFlow's TensorList is one tensor in a TensorFlow Lite file. An iteration writes element i as

    concat(slice(list, [0, 0, 0], [i, -1, -1]), expand_dims(element), slice(list, [i + 1, 0, 0], [-1, -1, -1]))

whose slices have lengths that change from iteration to iteration. What the list holds after the loop are the elements
of all iterations, which a step that runs in a loop stacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteLoop, TfliteNode


@dataclass(frozen=True, kw_only=True, eq=False)
class StackedList:
    """A list among the values of a loop.

    place: of the list among the values. counter: place of the counter i. element: the tensor that is written, with an
    axis of extent 1 in front. nodes: the operators that write it.
    """

    place: int
    counter: int
    element: int
    nodes: tuple[TfliteNode, ...]


def stacked_lists(file: TfliteFile, loop: TfliteLoop) -> tuple[StackedList, ...]:
    """Return the lists of a loop that nothing but the writing of their elements reads."""
    made = {index: node for node in loop.nodes for index in node.outputs}
    found = (_written(file, loop, made, place) for place in range(len(loop.values)))
    return tuple(one for one in found if one is not None)


def _written(file: TfliteFile, loop: TfliteLoop, made: Mapping[int, TfliteNode], place: int) -> StackedList | None:
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
    return StackedList(place=place, counter=counter, element=joined.inputs[1], nodes=parts)


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
