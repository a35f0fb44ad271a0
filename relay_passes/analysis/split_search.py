"""Where to cut an order of operators into sequences whose rows run in series, so that few bytes are alive.

A cut is a list of segments of the order. A segment of one operator runs whole. The operators of a longer one run row
by row (`tvm_ext.core.row_sequence`): what only they read is a ring of a few rows, and a result that outlives the
segment may grow over an operand that dies in it. A segment's bytes are those, and what else is alive across it. The
best cut follows from the best cuts of all shorter orders: the cheapest within a budget, or the one of least bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from relay_passes.analysis.recompute_search import live_bytes
from relay_passes.analysis.schedule_search import Graph
from tvm_ext.core.row_sequence import RowOperator, RowReader, RowSequence

ALIGNMENT_BYTES = 16
CALL_COST = 60
"""Instructions that one more call of a kernel is taken to cost."""
ASK_COST = 4
"""Instructions for each operator of a sequence, each time it is decided who runs next."""
ROWS_PER_CALL = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Operators [begin, end) of the order, run together; rows_per_call is 0 for one that runs whole."""

    begin: int
    end: int
    rows_per_call: int
    num_bytes: int
    cost: int


_Price = Callable[["Segment"], tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Segments that cover the order; peak_bytes: the most that one needs; cost: what splitting adds, modelled."""

    segments: tuple[Segment, ...]

    @property
    def peak_bytes(self) -> int:
        return max((segment.num_bytes for segment in self.segments), default=0)

    @property
    def cost(self) -> int:
        return sum(segment.cost for segment in self.segments)


def split(graph: Graph, rows: Sequence[RowOperator | None], budget_bytes: int | None) -> Split:
    """The cheapest cut within a budget; without a budget, or where none fits, the one that needs the fewest bytes.

    rows: how each node's rows depend on its reads, in their order; None for one that only runs whole.
    """
    segments = _Segments(graph, rows)
    if budget_bytes is not None:
        found = _best(len(graph.nodes), segments, lambda s: (s.num_bytes > budget_bytes, s.cost))
        if found.peak_bytes <= budget_bytes:
            return found
    least = _best(len(graph.nodes), segments, lambda s: (s.num_bytes, s.cost)).peak_bytes
    return _best(len(graph.nodes), segments, lambda s: (s.num_bytes > least, s.cost))


def _best(count: int, segments: _Segments, price: _Price) -> Split:
    """Least price by dynamic programming: the larger first part counts, the second parts add up."""
    best: list[tuple[tuple[int, int], tuple[Segment, ...]]] = [((0, 0), ())]
    for end in range(1, count + 1):
        choices: list[tuple[tuple[int, int], tuple[Segment, ...]]] = []
        for begin in range(end - 1, -1, -1):
            candidates = segments.of(begin, end)
            if not candidates and begin < end - 1:
                break
            before, chosen = best[begin]
            for segment in candidates:
                first, second = price(segment)
                choices.append(((max(before[0], int(first)), before[1] + second), (*chosen, segment)))
        best.append(min(choices, key=lambda choice: choice[0]))
    return Split(segments=best[count][1])


class _Segments:
    """What segments of an order need and cost."""

    def __init__(self, graph: Graph, rows: Sequence[RowOperator | None]) -> None:
        self.graph, self.rows = graph, rows
        self.whole = live_bytes(graph, range(len(graph.nodes)))
        self.made = {value: index for index, node in enumerate(graph.nodes) for value in node.writes}
        self.last = dict(self.made) | dict.fromkeys(graph.inputs, -1)
        for index, node in enumerate(graph.nodes):
            self.last |= dict.fromkeys(node.reads, index)
        self.last |= dict.fromkeys(graph.outputs, len(graph.nodes))
        self.of = cache(self._of)

    def _of(self, begin: int, end: int) -> tuple[Segment, ...]:
        """The ways to run a segment; none where it has to be cut."""
        if end - begin == 1:
            return (Segment(begin=begin, end=end, rows_per_call=0, num_bytes=self.whole[begin], cost=0),)
        if any(self._joins(index, begin) is None for index in (begin, end - 1)):
            return ()
        found = [self._rowwise(begin, end, rows) for rows in ROWS_PER_CALL]
        return tuple(segment for segment in found if segment)

    def _joins(self, index: int, begin: int) -> RowOperator | None:
        """A node's rows with its producers in a segment as numbers; None where it cannot run row by row there."""
        operator, node = self.rows[index], self.graph.nodes[index]
        if operator is None or len(node.writes) != 1 or len(operator.readers) != len(node.reads):
            return None
        readers: list[RowReader] = []
        for value, reader in zip(node.reads, operator.readers, strict=True):
            maker = self.made.get(value, -1)
            if maker >= begin:
                producer = self.rows[maker]
                if producer is None or producer.num_rows != reader.input_rows:
                    return None
                reader = replace(reader, producer=maker - begin)
            readers.append(reader)
        return replace(operator, readers=tuple(readers))

    def _rowwise(self, begin: int, end: int, rows_per_call: int) -> Segment | None:
        graph = self.graph
        joined = [self._joins(index, begin) for index in range(begin, end)]
        operators = [replace(operator, rows_per_call=rows_per_call) for operator in joined if operator]
        if len(operators) < end - begin:
            return None
        sequence = RowSequence(tuple(operators))
        made = sequence.rows_made()
        values = [graph.nodes[index].writes[0] for index in range(begin, end)]
        outlives = [self.last[value] >= end or value in graph.outputs for value in values]
        if any(keeps and made[i] < operators[i].num_rows for i, keeps in enumerate(outlives)):
            return None
        total = sum(
            _aligned(graph.sizes[value]) for value, last in self.last.items()
            if self.made.get(value, -1) < begin <= last
        )  # fmt: skip
        total += _aligned(max(graph.nodes[index].extra_bytes for index in range(begin, end)))
        for index, stored in enumerate(sequence.ring_rows()):
            size, rows = graph.sizes[values[index]], operators[index].num_rows
            total += _aligned(size if outlives[index] else min(size, size // rows * max(stored, 1)))
        total -= self._shared(begin, end, sequence, values[-1])
        calls = len(sequence.calls)
        cost = calls * (CALL_COST + ASK_COST * len(operators))
        return Segment(begin=begin, end=end, rows_per_call=rows_per_call, num_bytes=total, cost=cost)

    def _shared(self, begin: int, end: int, sequence: RowSequence, result: int) -> int:
        """Bytes that the last result shares with an operand from before the segment that dies in it."""
        size, last = self.graph.sizes[result], len(sequence.operators) - 1
        row = size // sequence.operators[last].num_rows
        best = 0
        for value, dies in self.last.items():
            if self.made.get(value, -1) >= begin or not begin <= dies < end:
                continue
            inputs = [
                (index - begin, number) for index in range(begin, end)
                for number, read in enumerate(self.graph.nodes[index].reads) if read == value
            ]  # fmt: skip
            input_rows = {sequence.operators[i].readers[n].input_rows for i, n in inputs}
            read_row, rest = divmod(self.graph.sizes[value], min(input_rows))
            if len(input_rows) > 1 or rest:
                continue
            written = needed = distance = 0
            for call, first in sequence.needed_rows(inputs):
                needed = first * read_row
                written = call.end * row if call.operator == last else written
                distance = max(distance, written - needed) if written else distance
            together = max(size, _aligned(distance) + self.graph.sizes[value])
            best = max(best, size + self.graph.sizes[value] - together)
        return max(0, best - ALIGNMENT_BYTES) // ALIGNMENT_BYTES * ALIGNMENT_BYTES


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
