"""Needs and costs of segments of an order whose rows run in series.

Who computes which rows next depends only on who reads them: the calls of operators [begin, end) are those of a longer
segment with the same end, less those before begin. So one replay for each end answers for every begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from relay_passes.solvers.graph import Graph
from relay_passes.solvers.liveness import live_bytes
from tvm_ext.core.alignment import ALIGNMENT_BYTES, aligned
from tvm_ext.core.operator_costs import CallCost
from tvm_ext.core.row_rings import RowRings, possible_guests
from tvm_ext.core.row_sequence import RowAccumulation, RowOperator, RowSequence, in_step

CALL_COST = 60
"""Instructions that one more call of a kernel is taken to cost."""
ASK_COST = 4
"""Instructions for each operator of a sequence, each time it is decided who runs next."""
HELD_INPUT_COST = 1 << 40
"""Instructions that a streamed input costs which is taken in whole: more than any cut that takes it by rows."""
ROWS_PER_CALL = (1, 2, 3, 4, 8)


@dataclass(frozen=True, kw_only=True)
class RowFacts:
    """Facts about the nodes of a graph run row by row.

    operators: how each one's rows depend on its reads, in their order; None for one that only runs whole.
    accumulations: how it takes in its only read row by row; None for one that does not.
    calls: (node, rows per call, rows to add up) -> scratch and added cost; 0 to add up of one that runs by its own.
    reading: nodes through which streamed inputs come in; of as many as can be, only rows are kept.
    """

    operators: tuple[RowOperator | None, ...]
    accumulations: tuple[RowAccumulation | None, ...]
    calls: Callable[[int, int, int], CallCost]
    reading: frozenset[int] = frozenset()

    def of(self, sequence: Sequence[int]) -> RowFacts:
        """The same of nodes in another order, some of them several times."""
        return RowFacts(
            operators=tuple(self.operators[index] for index in sequence),
            accumulations=tuple(self.accumulations[index] for index in sequence),
            calls=lambda place, rows, input_rows: self.calls(sequence[place], rows, input_rows),
            reading=frozenset(place for place, index in enumerate(sequence) if index in self.reading),
        )


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Operators [begin, end) of the order, run together; rows_per_call is 0 for one that runs whole.

    cost: modelled instructions that it adds; overhead: of these, all that are not in kernels.
    input_rows: rows that the last one adds up as they come; 0 where it does not.
    held_inputs: number of streamed inputs that it holds whole.
    """

    begin: int
    end: int
    rows_per_call: int
    num_bytes: int
    cost: int
    overhead: int = 0
    input_rows: int = 0
    held_inputs: int = 0

    @property
    def price(self) -> int:
        return self.cost + HELD_INPUT_COST * self.held_inputs


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """The longest segment with one end. begin: of it, in the order.

    made: int[calls of the last operator, operators], rows that each one has made when such a call begins; written:
    rows of the last one when it ends. accumulation: of the last one, where it adds up the rows of what it reads.
    """

    begin: int
    accumulation: RowAccumulation | None
    sequence: RowSequence
    rings: RowRings
    num_calls: tuple[int, ...]
    made: np.ndarray
    written: np.ndarray


class Segments:
    """The ways to run each segment of an order: `of(begin, end)`."""

    def __init__(self, graph: Graph, rows: RowFacts) -> None:
        self.graph, self.rows, self.accumulations, self.calls = graph, rows.operators, rows.accumulations, rows.calls
        self.reading = rows.reading
        self.whole = live_bytes(graph, range(len(graph.nodes)))
        self.made = {value: index for index, node in enumerate(graph.nodes) for value in node.writes}
        self.last = dict(self.made) | dict.fromkeys(graph.inputs, -1)
        self.readers: dict[int, list[tuple[int, int]]] = {}
        for index, node in enumerate(graph.nodes):
            self.last |= dict.fromkeys(node.reads, index)
            for position, value in enumerate(node.reads):
                self.readers.setdefault(value, []).append((index, position))
        self.last |= dict.fromkeys(graph.outputs, len(graph.nodes))
        self.replays = cache(self._replays)
        self.ending = cache(self._ending)
        self.held = cache(self._held)
        self.dying = cache(self._dying)

    def of(self, begin: int, end: int) -> tuple[Segment, ...]:
        """The ways to run a segment; none where it has to be cut."""
        if end - begin == 1:
            held = int(begin in self.reading)
            return (
                Segment(begin=begin, end=end, rows_per_call=0, num_bytes=self.whole[begin], cost=0, held_inputs=held),
            )
        return self.ending(end).get(begin, ())

    def _ending(self, end: int) -> dict[int, tuple[Segment, ...]]:
        """Segments of several operators that end there, by begin."""
        found: dict[int, tuple[Segment, ...]] = {}
        for replay in self.replays(end):
            for segment in self._rowwise(replay):
                found[segment.begin] = (*found.get(segment.begin, ()), segment)
        return found

    def _replays(self, end: int) -> tuple[Replay, ...]:
        """The longest segments of several operators that end there, by rows per call and by how the last one runs."""
        found: list[Replay] = []
        for last, accumulation in self._last(end - 1):
            rows = (*self.rows[: end - 1], last)
            begin = _first(self.graph, rows)
            for rows_per_call in ROWS_PER_CALL if end - begin > 1 else ():
                found.append(self._replay(begin, rows, rows_per_call, accumulation))
        return tuple(found)

    def _last(self, index: int) -> list[tuple[RowOperator, RowAccumulation | None]]:
        """Ways an operator may run as the last one of a segment: by its own rows, or by those of what it reads."""
        operator, accumulation = self.rows[index], self.accumulations[index]
        ways = [(operator, None)] if operator else []
        makers = [self.made[value] for value in self.graph.nodes[index].reads if value in self.made]
        if accumulation is not None and len(makers) == 1:
            producer = self.rows[makers[0]]
            if producer is not None and producer.num_rows in accumulation.row_counts:
                ways.append((accumulation.operator(producer.num_rows), accumulation))
        return ways

    def _replay(
        self,
        begin: int,
        rows: tuple[RowOperator | None, ...],
        rows_per_call: int,
        accumulation: RowAccumulation | None,
    ) -> Replay:
        joined: list[RowOperator] = []
        for index in range(begin, len(rows)):
            operator = rows[index]
            assert operator is not None, "all operators of a segment have rows"
            makers = [self.made.get(value, -1) for value in self.graph.nodes[index].reads]
            readers = tuple(
                replace(reader, producer=maker - begin if maker >= begin else None)
                for reader, maker in zip(operator.readers, makers, strict=True)
            )
            joined.append(replace(operator, readers=readers, rows_per_call=rows_per_call))
        sequence = RowSequence(in_step(joined))
        counts = [0] * len(joined)
        for call in sequence.calls:
            counts[call.operator] += 1
        written = [call.end for call in sequence.calls if call.operator == len(joined) - 1]
        return Replay(
            begin=begin, accumulation=accumulation, sequence=sequence, rings=self._rings(begin, sequence),
            num_calls=tuple(counts), made=np.array(sequence.before_last()), written=np.array(written),
        )  # fmt: skip

    def _outlives(self, index: int, end: int) -> bool:
        """True if an operator's result is needed behind a segment."""
        value = self.graph.nodes[index].writes[0]
        return self.last[value] >= end or value in self.graph.outputs

    def _rings(self, begin: int, sequence: RowSequence) -> RowRings:
        sizes = [self.graph.sizes[self.graph.nodes[begin + i].writes[0]] for i in range(len(sequence.operators))]
        row_bytes = [size // o.num_rows for size, o in zip(sizes, sequence.operators, strict=True)]
        end = begin + len(sizes)
        apart = [self._outlives(index, end) for index in range(begin, end)]
        return RowRings(sequence, possible_guests(sequence, row_bytes, apart))

    def _rowwise(self, replay: Replay) -> list[Segment]:
        """The segments of a replay's end, shortest first."""
        graph, operators = self.graph, replay.sequence.operators
        rows_made, ring_rows, guests = replay.sequence.rows_made(), replay.rings.rows(), replay.rings.shared()
        own = [0] * len(operators)
        end = replay.begin + len(operators)
        accumulation = replay.accumulation
        input_rows = operators[-1].num_rows if accumulation else 0
        stored = aligned(accumulation.sums_bytes) if accumulation else 0
        result = graph.sizes[graph.nodes[end - 1].writes[0]]
        scratch = calls = added = held = 0
        found: list[Segment] = []
        for place in range(len(operators) - 1, -1, -1):
            index, operator = replay.begin + place, operators[place]
            value = graph.nodes[index].writes[0]
            size, rows = graph.sizes[value], operator.num_rows
            outlives = self._outlives(index, end)
            if outlives and rows_made[place] < rows:
                break
            own[place] = aligned(size if outlives else min(size, size // rows * max(ring_rows[place], 1)))
            stored += own[place] - sum(own[guest] for guest, lies in guests.items() if lies.host == place)
            one = self.calls(index, operator.rows_per_call, input_rows if index == end - 1 else 0)
            scratch = max(scratch, one.scratch_bytes)
            held += index in self.reading and (outlives or ring_rows[place] >= rows)
            calls += replay.num_calls[place]
            added += one.added_instructions
            if end - index > 1:
                total = self.held(index) + aligned(scratch) + stored - self.shared(replay, index, result)
                overhead = calls * (CALL_COST + ASK_COST * (end - index))
                found.append(
                    Segment(
                        begin=index, end=end, rows_per_call=operator.rows_per_call, num_bytes=total,
                        cost=overhead + added, overhead=overhead, input_rows=input_rows, held_inputs=held,
                    )
                )  # fmt: skip
        return found

    def _held(self, begin: int) -> int:
        """Bytes of the values made before an operator that it or a later one reads."""
        return sum(
            aligned(self.graph.sizes[value])
            for value, last in self.last.items()
            if self.made.get(value, -1) < begin <= last
        )

    def _dying(self, begin: int, end: int) -> tuple[int, ...]:
        """Values made before operators [begin, end) that are read there for the last time."""
        return tuple(
            value for value, dies in self.last.items() if self.made.get(value, -1) < begin <= dies < end
        )  # fmt: skip

    def shared(self, replay: Replay, begin: int, result: int) -> int:
        """Bytes that the last result shares with an operand from before the segment that dies in it.

        result: bytes of it.
        """
        if replay.accumulation is not None:  # its sums may lie in the output from the first call on
            return 0
        operators = replay.sequence.operators
        end = replay.begin + len(operators)
        row, best = result // operators[-1].num_rows, 0
        for value in self.dying(begin, end):
            size = self.graph.sizes[value]
            places = [(i - replay.begin, n) for i, n in self.readers[value] if begin <= i < end]
            readers = [(place, operators[place].readers[position]) for place, position in places]
            input_rows = {reader.input_rows for _, reader in readers}
            read_row, rest = divmod(size, min(input_rows))
            if len(input_rows) > 1 or rest:
                continue
            needed = np.min(
                [np.array(reader.needed_from)[replay.made[:, place]] for place, reader in readers], axis=0
            )  # fmt: skip
            distance = max(0, int((replay.written * row - needed * read_row).max()))
            best = max(best, result + size - max(result, aligned(distance) + size))
        return max(0, best - ALIGNMENT_BYTES) // ALIGNMENT_BYTES * ALIGNMENT_BYTES


def _first(graph: Graph, rows: Sequence[RowOperator | None]) -> int:
    """Begin of the longest segment up to the last of these nodes whose operators can all run row by row."""
    wanted: dict[int, set[int]] = {}  # rows that those behind an operator take its result for
    for index in range(len(rows) - 1, -1, -1):
        operator, node = rows[index], graph.nodes[index]
        if operator is None or len(node.writes) != 1 or len(operator.readers) != len(node.reads):
            return index + 1
        if wanted.get(node.writes[0], {operator.num_rows}) != {operator.num_rows}:
            return index + 1
        for value, reader in zip(node.reads, operator.readers, strict=True):
            wanted.setdefault(value, set()).add(reader.input_rows)
    return 0
