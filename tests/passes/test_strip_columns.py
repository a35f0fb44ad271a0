"""Columns that a strip needs: all that its result depends on, and no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay_passes.solvers.graph import Graph, Node
from relay_passes.solvers.split.patches import columns_made, columns_read, strips_of
from tvm_ext.core.row_access import ColumnOperator, ColumnReader, Columns

WINDOWS = st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 2))
"""Extent, stride, padding on the left."""


def chain(width: int, windows: list[tuple[int, int, int]]) -> list[ColumnOperator]:
    """Operators over an image of so many columns, each as wide as its window leaves it."""
    found: list[ColumnOperator] = []
    for extent, stride, left in windows:
        columns = (width + left - extent) // stride + 1
        if columns < 2:
            break
        reader = ColumnReader(input_columns=width, stride=stride, left=left, extent=extent)
        found.append(ColumnOperator(num_columns=columns, readers=(reader,)))
        width = columns
    return found


def graph_of(operators: list[ColumnOperator]) -> Graph:
    nodes = tuple(Node(reads=(i,), writes=(i + 1,), shared_bytes={}) for i in range(len(operators)))
    return Graph(nodes=nodes, sizes=(1,) * (len(nodes) + 1), inputs=frozenset({0}), outputs=frozenset({len(nodes)}))


def influence(operators: list[ColumnOperator], strip: Columns) -> list[set[int]]:
    """Per operator, columns of its result on which columns of the last one depend: found by following each window."""
    found = [set(range(*strip))]
    for operator in reversed(operators):
        (reader,) = operator.readers
        assert reader is not None
        read = {w * reader.stride - reader.left + s for w in found[0] for s in range(reader.extent)}
        found.insert(0, {column for column in read if 0 <= column < reader.input_columns})
    return found[1:]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(6, 40), st.lists(WINDOWS, min_size=1, max_size=5), st.integers(2, 4))
def test_all_that_is_needed_and_no_more(width: int, windows: list[tuple[int, int, int]], count: int) -> None:
    operators = chain(width, windows)
    if not operators:
        return
    graph = graph_of(operators)
    no_gaps = all(extent >= stride for extent, stride, _ in windows)
    for strip in strips_of(operators[-1].num_columns, count):
        made = columns_made(graph, operators, 0, len(operators), strip)
        for operator, columns, needed in zip(operators, made, influence(operators, strip), strict=True):
            begin, end = columns or (0, operator.num_columns)
            assert needed <= set(range(begin, end))
            if columns is not None and no_gaps:
                assert {begin, end - 1} <= needed


def test_who_reads_less_of_a_value_cuts_it() -> None:
    """y = x + conv3x3(x): the sum reads the strip, the convolution one column more on each side."""
    same, window = ColumnReader(input_columns=12), ColumnReader(input_columns=12, left=1, extent=3)
    operators = [ColumnOperator(num_columns=12, readers=readers) for readers in ((same,), (window,), (same, same))]
    nodes = (
        Node(reads=(0,), writes=(1,), shared_bytes={}),
        Node(reads=(1,), writes=(2,), shared_bytes={}),
        Node(reads=(1, 2), writes=(3,), shared_bytes={}),
    )
    graph = Graph(nodes=nodes, sizes=(12,) * 4, inputs=frozenset({0}), outputs=frozenset({3}))
    assert columns_made(graph, operators, 0, 3, (4, 8)) == [(3, 9), (4, 8), (4, 8)]
    assert columns_read(operators[2], 0, (4, 8)) == (4, 8)


def test_what_cannot_be_cut_is_made_whole() -> None:
    operators = [None, ColumnOperator(num_columns=8, readers=(ColumnReader(input_columns=8),))]
    nodes = tuple(Node(reads=(i,), writes=(i + 1,), shared_bytes={}) for i in range(2))
    graph = Graph(nodes=nodes, sizes=(8,) * 3, inputs=frozenset({0}), outputs=frozenset({2}))
    assert columns_made(graph, operators, 0, 2, (0, 4)) == [None, (0, 4)]


def test_padding_alone_makes_no_strip() -> None:
    """An image of 8 columns between 40 of padding on either side: the outer strips would read nothing."""
    reader = ColumnReader(input_columns=8, left=40, extent=3)
    operators = [ColumnOperator(num_columns=86, readers=(reader,))]
    strips = strips_of(86, 8)
    made = [columns_made(graph_of(operators), operators, 0, 1, strip)[0] for strip in strips]
    assert made[0] is made[-1] is None and made[3] == strips[3]


@pytest.mark.parametrize(("columns", "count"), [(8, 2), (7, 2), (7, 3), (9, 4), (5, 8)])
def test_strips_cover_all_columns_once(columns: int, count: int) -> None:
    strips = strips_of(columns, count)
    assert np.concatenate([np.arange(*strip) for strip in strips]).tolist() == list(range(columns))
    assert len(strips) <= count
