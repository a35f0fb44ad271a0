"""What segments of an order need and cost when their rows run in series.

Who computes which rows next depends only on who reads them: the calls of operators [begin, end) are those of a longer
segment with the same end, less those before begin. So one replay for each end answers for every begin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Replay:
    """The longest segment with one end. begin: of it, in the order.

    made: int[calls of the last operator, operators], rows that each one has made when such a call begins; written:
    rows of the last one when it ends.
    """

    begin: int
    sequence: RowSequence
    rings: tuple[int, ...]
    num_calls: tuple[int, ...]
    made: np.ndarray
    written: np.ndarray


class Segments:
    """The ways to run each segment of an order: `of(begin, end)`."""

    def __init__(self, graph: Graph, rows: tuple[RowOperator | None, ...]) -> None:
        """rows: how each node's rows depend on its reads, in their order; None for one that only runs whole."""
        self.graph, self.rows = graph, rows
        self.whole = live_bytes(graph, range(len(graph.nodes)))
        self.made = {value: index for index, node in enumerate(graph.nodes) for value in node.writes}
        self.last = dict(self.made) | dict.fromkeys(graph.inputs, -1)
        self.readers: dict[int, list[tuple[int, int]]] = {}
        for index, node in enumerate(graph.nodes):
            self.last |= dict.fromkeys(node.reads, index)
            for position, value in enumerate(node.reads):
                self.readers.setdefault(value, []).append((index, position))
        self.last |= dict.fromkeys(graph.outputs, len(graph.nodes))
        self.ending = cache(self._ending)
        self.held = cache(self._held)
        self.dying = cache(self._dying)

    def of(self, begin: int, end: int) -> tuple[Segment, ...]:
        """The ways to run a segment; none where it has to be cut."""
        if end - begin == 1:
            return (Segment(begin=begin, end=end, rows_per_call=0, num_bytes=self.whole[begin], cost=0),)
        return self.ending(end).get(begin, ())

    def _ending(self, end: int) -> dict[int, tuple[Segment, ...]]:
        """By begin, all segments of several operators that end there."""
        found: dict[int, tuple[Segment, ...]] = {}
        begin = self._first(end)
        if end - begin < 2:
            return found
        for rows_per_call in ROWS_PER_CALL:
            for segment in self._rowwise(self._replay(begin, end, rows_per_call)):
                found[segment.begin] = (*found.get(segment.begin, ()), segment)
        return found

    def _first(self, end: int) -> int:
        """Where the longest segment of this end begins whose operators can all run row by row there."""
        for index in range(end - 1, -1, -1):
            operator, node = self.rows[index], self.graph.nodes[index]
            if operator is None or len(node.writes) != 1 or len(operator.readers) != len(node.reads):
                return index + 1
            readers = [pair for pair in self.readers.get(node.writes[0], []) if pair[0] < end]
            if any(self._reader(*pair).input_rows != operator.num_rows for pair in readers):
                return index + 1
        return 0

    def _reader(self, index: int, position: int) -> RowReader:
        operator = self.rows[index]
        assert operator is not None, "only operators that have rows are asked for readers"
        return operator.readers[position]

    def _replay(self, begin: int, end: int, rows_per_call: int) -> _Replay:
        joined: list[RowOperator] = []
        for index in range(begin, end):
            operator = self.rows[index]
            assert operator is not None, "all operators of a segment have rows"
            makers = [self.made.get(value, -1) for value in self.graph.nodes[index].reads]
            readers = tuple(
                replace(reader, producer=maker - begin if maker >= begin else None)
                for reader, maker in zip(operator.readers, makers, strict=True)
            )
            joined.append(replace(operator, readers=readers, rows_per_call=rows_per_call))
        sequence = RowSequence(tuple(joined))
        counts = [0] * len(joined)
        for call in sequence.calls:
            counts[call.operator] += 1
        written = [call.end for call in sequence.calls if call.operator == len(joined) - 1]
        return _Replay(
            begin=begin, sequence=sequence, rings=sequence.ring_rows(), num_calls=tuple(counts),
            made=np.array(sequence.before_last()), written=np.array(written),
        )  # fmt: skip

    def _rowwise(self, replay: _Replay) -> list[Segment]:
        """The segments of a replay's end, shortest first."""
        graph, operators = self.graph, replay.sequence.operators
        rows_made = replay.sequence.rows_made()
        end = replay.begin + len(operators)
        stored = scratch = calls = 0
        found: list[Segment] = []
        for place in range(len(operators) - 1, -1, -1):
            index, operator = replay.begin + place, operators[place]
            value = graph.nodes[index].writes[0]
            size, rows = graph.sizes[value], operator.num_rows
            outlives = self.last[value] >= end or value in graph.outputs
            if outlives and rows_made[place] < rows:
                break
            stored += _aligned(size if outlives else min(size, size // rows * max(replay.rings[place], 1)))
            scratch = max(scratch, graph.nodes[index].extra_bytes)
            calls += replay.num_calls[place]
            if end - index > 1:
                total = self.held(index) + _aligned(scratch) + stored - self._shared(replay, index)
                cost = calls * (CALL_COST + ASK_COST * (end - index))
                found.append(
                    Segment(
                        begin=index, end=end, rows_per_call=operator.rows_per_call, num_bytes=total, cost=cost
                    )
                )  # fmt: skip
        return found

    def _held(self, begin: int) -> int:
        """Bytes of the values made before an operator that it or a later one reads."""
        return sum(
            _aligned(self.graph.sizes[value])
            for value, last in self.last.items()
            if self.made.get(value, -1) < begin <= last
        )

    def _dying(self, begin: int, end: int) -> tuple[int, ...]:
        """Values made before operators [begin, end) that are read there for the last time."""
        return tuple(
            value for value, dies in self.last.items() if self.made.get(value, -1) < begin <= dies < end
        )  # fmt: skip

    def _shared(self, replay: _Replay, begin: int) -> int:
        """Bytes that the last result shares with an operand from before the segment that dies in it."""
        operators = replay.sequence.operators
        end = replay.begin + len(operators)
        result = self.graph.sizes[self.graph.nodes[end - 1].writes[0]]
        row, best = result // operators[-1].num_rows, 0
        for value in self.dying(begin, end):
            size = self.graph.sizes[value]
            pairs = [(index, position) for index, position in self.readers[value] if begin <= index < end]
            input_rows = {self._reader(*pair).input_rows for pair in pairs}
            read_row, rest = divmod(size, min(input_rows))
            if len(input_rows) > 1 or rest:
                continue
            needed = np.min(
                [np.array(self._reader(i, n).begins)[replay.made[:, i - replay.begin]] for i, n in pairs], axis=0
            )
            distance = max(0, int((replay.written * row - needed * read_row).max()))
            best = max(best, result + size - max(result, _aligned(distance) + size))
        return max(0, best - ALIGNMENT_BYTES) // ALIGNMENT_BYTES * ALIGNMENT_BYTES


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
