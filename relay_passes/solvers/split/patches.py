"""Cut a schedule into patches, which are column strips that run one after another.

Rows of a strip are shorter, so the rings of a segment shrink to a strip and its halo. Columns in the halos of two
strips are computed twice, and the external inputs of the segment stay alive until the last strip is done. A segment may
run in one strip or in several, and the best cut follows as in `search.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil

from relay_passes.solvers.graph import Graph
from relay_passes.solvers.split.segment import Ending, Segment
from relay_passes.solvers.split.segments import Replay, RowFacts, Segments, overhead_of
from tvm_ext.core.alignment import aligned
from tvm_ext.core.row_access import ColumnOperator, Columns
from tvm_ext.core.row_sequence import RowOperator

STRIPS = (2, 3, 4, 6, 8)
COPY_COST = 12
"""Instructions to copy some columns of a row, besides two instructions for each 4 bytes."""

NEVER = 1 << 62
"""Bytes of a method that is impossible."""


class PatchedSegments(Segments):
    """The methods of running each segment of an order, including strips.

    columns: for each node, how the columns of its result depend on its operands; None for a node that only computes all
    of them.
    instructions: modelled, of each node.
    by_rows: the segments without strips, where they are known.
    once: nodes whose streamed input arrives only once, so that only a single strip can read it.
    """

    def __init__(
        self,
        graph: Graph,
        rows: RowFacts,
        columns: Sequence[ColumnOperator | None],
        instructions: Sequence[int],
        by_rows: Segments | None = None,
        once: Collection[int] = (),
    ) -> None:
        super().__init__(graph, rows)
        self.once = frozenset(once)
        self.columns, self.instructions = columns, instructions
        self.by_rows = by_rows or Segments(graph, rows)
        self.strip_columns = cache(self._strip_columns)

    def _strip_columns(self, begin: int, end: int, strip: Columns) -> list[Columns | None]:
        return columns_made(self.graph, self.columns, begin, end, strip)

    def _ending(self, end: int) -> Ending:
        in_strips = (
            segment
            for replay in self.by_rows.replays(end)
            for count in STRIPS
            for segment in self._in_strips(replay, count)
        )
        return Ending.of(end, [*self.by_rows.ending(end).segments, *in_strips])

    def _in_strips(self, replay: Replay, count: int) -> list[Segment]:
        """Return the segments with a replay's end in a number of strips, shortest first."""
        end = replay.begin + len(replay.sequence.operators)
        last = self.columns[end - 1]
        if replay.accumulation is not None or last is None or last.num_columns < 2 * count:
            return []
        strips = strips_of(last.num_columns, count)
        if any(self.strip_columns(replay.begin, end, strip)[-1] != strip for strip in strips):
            return []  # a strip would read only padding
        walk = _Walk(self, replay, strips)
        found: list[Segment] = []
        for index in range(end - 1, replay.begin - 1, -1):
            if index in self.once or (index < end - 1 and self.outlives(index, end)):
                break
            walk.step_back_to(index)
            if index < end - 1:
                found.append(walk.segment())
        return found


class _Walk:
    """Adds up the needs of a segment in strips, operator by operator, backward from its last operator."""

    def __init__(self, segments: PatchedSegments, replay: Replay, strips: tuple[Columns, ...]) -> None:
        self.segments, self.replay, self.strips = segments, replay, strips
        self.operators = replay.sequence.operators
        self.end = replay.begin + len(self.operators)
        self.ring_rows, self.lying = replay.rings.rows(), replay.rings.lying()
        self.made = [segments.strip_columns(replay.begin, self.end, strip) for strip in strips]
        self.result = segments.graph.sizes[segments.graph.nodes[self.end - 1].writes[0]]
        self.pieces = [aligned(ceil(self.result * self._share(len(self.operators) - 1, k))) for k in range(len(strips))]
        self.shared = segments.by_rows.shared(replay, self.pieces[-1])
        self.own: list[list[int]] = [[]] * len(self.operators)
        self.rings = [0] * len(strips)
        self.cuts: dict[int, list[_Cut]] = {}
        """Copies of columns, by value from ahead of the segment."""
        self.inner_cuts: list[_Cut] = []
        self.begin = self.end
        self.scratch = self.calls = self.added = 0

    def _share(self, place: int, strip: int) -> float:
        """Return the fraction of an operator's columns that a strip computes."""
        made, operator = self.made[strip][place], self.segments.columns[self.replay.begin + place]
        return 1.0 if made is None or operator is None else (made[1] - made[0]) / operator.num_columns

    def step_back_to(self, index: int) -> None:
        """Add the operator ahead of the operators added so far."""
        segments, place = self.segments, index - self.replay.begin
        node, operator = segments.graph.nodes[index], self.operators[place]
        size = segments.graph.sizes[node.writes[0]]
        shares = [self._share(place, strip) for strip in range(len(self.strips))]
        self.begin = index
        if index < self.end - 1:
            ring = min(size, size // operator.num_rows * max(self.ring_rows[place], 1))
            self.own[place] = [aligned(ceil(ring * share)) for share in shares]
            inside = [self.own[guest] for guest in self.lying[place]]
            for strip in range(len(self.strips)):
                self.rings[strip] += self.own[place][strip] - sum(own[strip] for own in inside)
        by_rows = segments.calls(index, operator.rows_per_call, 0)
        self.scratch = max(self.scratch, by_rows.scratch_bytes)
        self.calls += self.replay.num_calls[place] * len(self.strips)
        self.added += round(by_rows.added_instructions * sum(shares) + segments.instructions[index] * (sum(shares) - 1))
        made = [columns[place] for columns in self.made]
        self.inner_cuts += [
            cut
            for cut in self.cuts.pop(node.writes[0], [])
            if any(one is not None and one != all_of for one, all_of in zip(cut.columns, made, strict=True))
        ]
        for position, value in enumerate(node.reads):
            reads = tuple(columns_read(segments.columns[index], position, columns) for columns in made)
            if any(reads):
                self.cuts.setdefault(value, []).append(self._cut(operator, index, position, reads))

    def _cut(self, operator: RowOperator, index: int, position: int, reads: tuple[Columns | None, ...]) -> _Cut:
        reader, columns = operator.readers[position], self.segments.columns[index]
        read = columns.readers[position] if columns else None
        assert read is not None, "it reads some columns"
        value = self.segments.graph.nodes[index].reads[position]
        pixel = self.segments.graph.sizes[value] / reader.input_rows / read.input_columns
        return _Cut(
            reader=index,
            columns=reads,
            pixel_bytes=pixel,
            rows=reader.input_rows,
            rows_kept=_rows_at_once(operator, position),
        )

    def segment(self) -> Segment:
        """Return all operators added so far as a segment."""
        cuts = [*self.inner_cuts, *(cut for cuts in self.cuts.values() for cut in cuts)]
        shared = self.shared[self.begin - self.replay.begin]
        inside = [self._inside(strip, cuts) for strip in range(len(self.strips))]
        needed = [inside[strip] + sum(self.pieces[: strip + 1]) for strip in range(len(self.strips))]
        needed[-1] -= shared
        narrowest = min(end - begin for begin, end in self.strips)
        joining = self.result - self.result * narrowest // self.strips[-1][1]  # all but one strip have to be copied
        joined = max(
            self.segments.held(self.begin) + aligned(self.scratch) + max(needed),
            self.segments.held(self.end) + aligned(joining),
        )
        born = self._born_bytes(max(inside))
        num_operators = self.end - self.begin + len(cuts)
        calls = self.calls + sum(cut.rows for cut in cuts) * len(self.strips)
        overhead = overhead_of(calls, num_operators)
        cost = overhead + self.added + sum(cut.instructions() for cut in cuts)
        if born > joined:
            cost += len(self.strips) * COPY_COST * self.operators[-1].num_rows + self.result // 2
        return Segment(
            begin=self.begin, end=self.end, rows_per_call=self.operators[-1].rows_per_call,
            num_bytes=min(joined, born), cost=cost, overhead=overhead, strips=self.strips,
        )  # fmt: skip

    def _inside(self, strip: int, cuts: Sequence[_Cut]) -> int:
        """Return the bytes that a strip needs besides its result.

        Images of a single row are computed one after another, and their bytes are free again once they have been read.
        """
        nodes = range(self.begin, self.end)
        if any(operator.num_rows > 1 for operator in self.operators[self.begin - self.replay.begin :]):
            return self.rings[strip] + sum(cut.ring_bytes(strip) for cut in cuts)
        alive = dict.fromkeys(nodes, 0)
        for cut in cuts:
            alive[cut.reader] += cut.ring_bytes(strip)
        for index in nodes[:-1]:
            (value,) = self.segments.graph.nodes[index].writes
            readers = (later for later in nodes if value in self.segments.graph.nodes[later].reads)
            for moment in range(index, max(readers, default=index) + 1):
                alive[moment] += self.own[index - self.replay.begin][strip]
        return max(alive.values())

    def _born_bytes(self, inside: int) -> int:
        """Return the bytes if strips go directly into the whole result, which exists from the first strip on."""
        last = self.segments.columns[self.end - 1]
        if last is None or not last.writes_apart:
            return NEVER
        return self.segments.held(self.begin) + aligned(self.scratch) + inside + aligned(self.result)


def _rows_at_once(operator: RowOperator, position: int) -> int:
    """Return the most rows of an operand that a single call reads."""
    reader, last = operator.readers[position], operator.num_rows - 1
    firsts = range(0, operator.num_rows, operator.rows_per_call)
    return max(
        reader.needed_to[min(first + operator.rows_per_call - 1, last)] - reader.needed_from[first] for first in firsts
    )


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """Some columns of an operand, copied row by row.

    reader: the node that reads them.
    columns: by strip, None where the strip reads all columns.
    """

    reader: int
    columns: tuple[Columns | None, ...]
    pixel_bytes: float
    rows: int
    rows_kept: int

    def ring_bytes(self, strip: int) -> int:
        columns = self.columns[strip]
        return aligned(ceil(self.pixel_bytes * (columns[1] - columns[0]) * self.rows_kept)) if columns else 0

    def instructions(self) -> int:
        widths = sum(columns[1] - columns[0] for columns in self.columns if columns)
        return self.rows * (COPY_COST * len(self.columns) + round(widths * self.pixel_bytes) // 2)


def strips_of(num_columns: int, count: int) -> tuple[Columns, ...]:
    """Return columns cut into at most `count` strips of equal width, where the last strip may be narrower."""
    width = ceil(num_columns / count)
    return tuple((begin, min(begin + width, num_columns)) for begin in range(0, num_columns, width))


def columns_read(operator: ColumnOperator | None, position: int, made: Columns | None) -> Columns | None:
    """Return the columns of an operand that an operator reads for some columns of its result, or None for all."""
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
    """Return the columns of the results of nodes [begin, end) that a strip of the last result needs, None for all.

    operators: how the columns of each node's result depend on its operands; None for a node that only computes all of
    them.
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
    """Return the smallest range that covers all ranges, or None if one of them is None."""
    ranges = [one for one in columns if one is not None]
    if len(ranges) < len(columns):
        return None
    return min(begin for begin, _ in ranges), max(end for _, end in ranges)
