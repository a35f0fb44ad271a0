"""Columns of every result that one strip of the last one needs: its own, and a halo that grows with each window."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from relay_passes.solvers.graph import Graph
from tvm_ext.core.columns import ColumnOperator, Columns


def strips_of(num_columns: int, count: int) -> tuple[Columns, ...]:
    """Columns cut into strips of one width, at most so many; the last one is narrower where they don't divide."""
    width = ceil(num_columns / count)
    return tuple((begin, min(begin + width, num_columns)) for begin in range(0, num_columns, width))


def columns_read(operator: ColumnOperator | None, position: int, made: Columns | None) -> Columns | None:
    """Columns of an operand that an operator reads for some of its result; None: all of them."""
    if operator is None or made is None:
        return None
    reader = operator.readers[position]
    if reader is None:
        return None
    read = reader.read(made)
    return None if read == (0, reader.input_columns) else read


def columns_made(
    graph: Graph, operators: Sequence[ColumnOperator | None], begin: int, end: int, strip: Columns
) -> list[Columns | None]:
    """Columns of the results of nodes [begin, end) that a strip of the last one's needs; None: all of them.

    operators: how the columns of each node's result depend on its operands; None for one that makes all of them.
    """
    wanted: dict[int, list[Columns | None]] = {graph.nodes[end - 1].writes[0]: [strip]}
    found: list[Columns | None] = []
    for index in range(end - 1, begin - 1, -1):
        node, operator = graph.nodes[index], operators[index]
        made = _together(wanted.get(node.writes[0], [None])) if operator else None
        if operator and made:
            reads_nothing = any(reader and reader.read(made) == (0, 0) for reader in operator.readers)
            made = None if reads_nothing or made == (0, operator.num_columns) else made
        found.append(made)
        for position, value in enumerate(node.reads):
            wanted.setdefault(value, []).append(columns_read(operator, position, made))
    return found[::-1]


def _together(columns: Sequence[Columns | None]) -> Columns | None:
    """The least range around all of these."""
    ranges = [one for one in columns if one is not None]
    if len(ranges) < len(columns):
        return None
    return min(begin for begin, _ in ranges), max(end for _, end in ranges)
