"""Find values in parts whose halos are copied between cores, so that each core keeps all the rows it reads together.

A part of a 3x3 layer reads a row of its neighbour's part. If both parts are halves of one tensor, its bytes stay in use
until both cores have read them. If each core has its own tensor, with a copy of the neighbour's row, it may overwrite
this tensor while it computes, as a single core does:

    core 0   |  rows 0 to 15  | 16 |                16: copied from core 1
    core 1                  | 15 |  rows 16 to 31  |     15: copied from core 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.dataflow import operands, outputs
from relay_passes.processors.row_parts import RowPart, Rows

Windows = Mapping[relax.Var, Mapping[int, Rows]]
"""For each value whose rows are copied: the rows that a processor keeps together, where they exceed its own rows."""

MOST_COPIED = 0.5
"""Most rows that are copied, relative to all rows. Beyond, one tensor for all cores takes about as few bytes."""
SMALL = 4
"""Bytes that a step reads for each byte of a small result, such as that of a mean."""
MOST_TIME = 0.025
"""Most time that all copies may take, relative to that of all steps that are cut."""


@dataclass(frozen=True, kw_only=True)
class ExchangedRows:
    """The windows of all values whose rows are copied.

    nanoseconds: that copies take, on the core that copies most of each value.
    """

    windows: Windows = field(default_factory=dict[relax.Var, Mapping[int, Rows]])
    nanoseconds: float = 0.0


def exchanged_rows(
    operators: OperatorGraph,
    split: Mapping[int, Sequence[RowPart]],
    homes: Mapping[int, int],
    nanoseconds_per_byte: float,
) -> ExchangedRows:
    """Return the values whose rows are copied.

    A core that runs all readers of a whole value copies the rows of the others, which may be half of them, if their
    results are small: otherwise most bytes are live in the readers, where copies save nothing. A value that is read
    whole on several cores, or that is an output of the model, is joined instead. The largest values come first, because
    one of them decides the bytes of the arena; a value whose copies would exceed the time left for all is joined.
    split: the parts of each step that is cut. homes: the processor of each other step. nanoseconds_per_byte: of copies.
    """
    wanted, joined = _reads(operators, split, homes)
    graph = operators.graph()
    left = MOST_TIME * sum(max(part.nanoseconds for part in parts) for parts in split.values())
    windows: dict[relax.Var, Mapping[int, Rows]] = {}
    total = 0.0
    written = {index: sum(graph.sizes[value] for value in graph.nodes[index].writes) for index in split}
    for index in sorted(split, key=lambda index: (-written[index], index)):
        parts, (computing, *views) = split[index], operators.steps[index]
        if views or computing.var in joined or parts[0].unit != "rows" or parts[0].is_inner:
            continue
        found = _windows(parts, wanted.get(computing.var, []))
        own = {part.processor: part.rows[1] - part.rows[0] for part in parts}
        most_copied = max((end - begin - own[processor] for processor, (begin, end) in found.items()), default=0)
        time = most_copied * written[index] / parts[-1].rows[1] * nanoseconds_per_byte
        if found and total + time <= left:
            windows[computing.var] = found
            total += time
    return ExchangedRows(windows=windows, nanoseconds=total)


def _reads(
    operators: OperatorGraph, split: Mapping[int, Sequence[RowPart]], homes: Mapping[int, int]
) -> tuple[dict[relax.Var, list[tuple[int, Rows | None]]], set[relax.Var]]:
    """Return the rows of each value that steps read, with their processors, and the values that have to be joined.

    Rows are None for the whole value.
    """
    wanted: dict[relax.Var, list[tuple[int, Rows | None]]] = {}
    joined = {leaf for result in outputs(operators.main) for leaf in operands(result) if isinstance(leaf, relax.Var)}
    graph = operators.graph()
    written = [sum(graph.sizes[value] for value in node.writes) for node in graph.nodes]
    read = [sum(graph.sizes[value] for value in node.reads) for node in graph.nodes]
    for index, (computing, *_) in enumerate(operators.steps):
        parts = split.get(index, ())
        for position, argument in enumerate(computing.value.args):
            leaves = [leaf for leaf in operands(argument) if isinstance(leaf, relax.Var)]
            rows = [(part.processor, part.reads[position]) for part in parts]
            if index in homes and SMALL * written[index] <= read[index]:
                rows = [(homes[index], None)]
            elif not rows or not isinstance(argument, relax.Var) or any(some is None for _, some in rows):
                joined |= {*leaves}
            for leaf in leaves:
                wanted.setdefault(leaf, []).extend(rows)
    return wanted, joined


def _windows(parts: Sequence[RowPart], wanted: Sequence[tuple[int, Rows | None]]) -> dict[int, Rows]:
    """Return the rows that each processor keeps together beyond its part; none where too many would be copied."""
    if len({rows is None for _, rows in wanted}) > 1:  # another core would keep its rows beside the copy
        return {}
    own, num_rows = {part.processor: part.rows for part in parts}, parts[-1].rows[1]
    hulls = dict(own)
    for processor, rows in wanted:
        if processor not in own:
            return {}
        (first, last), (begin, end) = hulls[processor], rows or (0, num_rows)
        hulls[processor] = min(first, begin), max(last, end)
    copied = sum(end - begin for begin, end in hulls.values()) - num_rows
    if copied > MOST_COPIED * num_rows or sum(hull == (0, num_rows) for hull in hulls.values()) > 1:
        return {}
    return {processor: hull for processor, hull in hulls.items() if hull != own[processor]}
