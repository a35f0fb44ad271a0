"""The memory needs and costs of segments of a schedule whose rows run in series.

Which operator computes rows next depends only on its readers. So the calls of operators [begin, end) are those of a
longer segment with the same end, without the calls of operators ahead of begin. A single replay for each end thus gives
the result for every begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from relay_passes.solvers.graph import Graph, live_bytes
from relay_passes.solvers.split.segment import Ending, Segment
from tvm_ext.core.alignment import ALIGNMENT_BYTES, aligned
from tvm_ext.core.row_sequence import RowAccumulation, RowOperator, RowRings, RowSequence, in_step, possible_guests
from tvm_ext.core.time_model import CallCost

_CALL_COST = 60
"""Modelled instructions of an additional call of a kernel."""
_ASK_COST = 4
"""Modelled instructions for each operator of a sequence, each time that the next operator to run is chosen."""
ROWS_PER_CALL = (1, 2, 3, 4, 8)
FEW_ROWS_PER_CALL, FEW_OPERATORS = (2, 4), 24


@dataclass(frozen=True, kw_only=True)
class RowFacts:
    """Facts about the nodes of a graph that run row by row.

    operators: how the rows of each node depend on its operands, in their order; None for a node that only runs whole.
    accumulations: how a node adds up its only operand row by row; None for a node that does not.
    calls: returns scratch and added cost for (node, rows per call, rows to add up), where 0 rows to add up means
    running by its own rows.
    reading: nodes through which streamed inputs arrive. Only rows of as many of these inputs as possible are kept.
    """

    operators: tuple[RowOperator | None, ...]
    accumulations: tuple[RowAccumulation | None, ...]
    calls: Callable[[int, int, int], CallCost]
    reading: frozenset[int] = frozenset()

    def of(self, sequence: Sequence[int]) -> RowFacts:
        """Return the facts about nodes in another order, in which some may be repeated."""
        return RowFacts(
            operators=tuple(self.operators[index] for index in sequence),
            accumulations=tuple(self.accumulations[index] for index in sequence),
            calls=lambda place, rows, input_rows: self.calls(sequence[place], rows, input_rows),
            reading=frozenset(place for place, index in enumerate(sequence) if index in self.reading),
        )


class Segments:
    """The methods of running each segment of an order: `of(begin, end)`.

    rows_per_call: the numbers of rows that are tried.
    longest: the most operators of a segment; None for no limit.
    """

    def __init__(
        self,
        graph: Graph,
        rows: RowFacts,
        *,
        rows_per_call: Sequence[int] = ROWS_PER_CALL,
        longest: int | None = None,
    ) -> None:
        self.graph, self.rows, self.accumulations, self.calls = graph, rows.operators, rows.accumulations, rows.calls
        self.facts, self.rows_per_call, self.longest = rows, rows_per_call, longest
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
        self.joined = cache(self._joined)
        self.ending = cache(self._ending)
        self.held = cache(self._held)
        self.dying = cache(self._dying)
        self.operands = DyingOperands(
            graph=graph, made=self.made, last=self.last, readers=self.readers, needed_from=_needed_from(rows.operators)
        )

    def few(self) -> Segments:
        """Return segments of the same order that take much less time to list, where listing all takes long."""
        if len(self.graph.nodes) <= FEW_OPERATORS:
            return self
        return Segments(self.graph, self.facts, rows_per_call=FEW_ROWS_PER_CALL, longest=FEW_OPERATORS)

    def of(self, begin: int, end: int) -> tuple[Segment, ...]:
        """Return the methods of running a segment, or none where it has to be cut."""
        return tuple(segment for segment in self.ending(end).segments if segment.begin == begin)

    def _ending(self, end: int) -> Ending:
        return Ending.of(end, [self.alone(end - 1), *self._together(end)])

    def alone(self, index: int) -> Segment:
        """Return the segment of a single operator, which runs whole."""
        return Segment(
            begin=index, end=index + 1, rows_per_call=0, num_bytes=self.whole[index], cost=0,
            held_inputs=int(index in self.reading),
        )  # fmt: skip

    def _together(self, end: int) -> Iterator[Segment]:
        """Yield the segments of several operators with an end."""
        for replay in self.replays(end):
            yield from self._rowwise(replay)

    def _replays(self, end: int) -> tuple[Replay, ...]:
        """Return the longest segments with an end, by rows per call and by how the last operator runs."""
        found: list[Replay] = []
        for last, accumulation in self.last_ways(end - 1):
            begin = max(_first(self.graph, (*self.rows[: end - 1], last)), self._asked_once(end))
            if self.longest is not None:
                begin = max(begin, end - self.longest)
            for rows_per_call in self.rows_per_call if end - begin > 1 else ():
                found.append(self.replay(begin, last, end, rows_per_call, accumulation))
        return tuple(found)

    def _asked_once(self, end: int) -> int:
        """Return the start of the longest segment with an end that requests no input twice.

        Otherwise a segment would read a strip of the input and then the next strip.
        """
        asked: set[int] = set()
        for index in sorted((index for index in self.reading if index < end), reverse=True):
            if not asked.isdisjoint(self.graph.nodes[index].reads):
                return index + 1
            asked.update(self.graph.nodes[index].reads)
        return 0

    def last_ways(self, index: int) -> list[tuple[RowOperator, RowAccumulation | None]]:
        """Return how an operator may run as the last of a segment: by its own rows, or by the rows of its operand."""
        operator, accumulation = self.rows[index], self.accumulations[index]
        ways = [(operator, None)] if operator else []
        makers = [self.made[value] for value in self.graph.nodes[index].reads if value in self.made]
        if accumulation is not None and len(makers) == 1:
            producer = self.rows[makers[0]]
            if producer is not None and producer.num_rows in accumulation.row_counts:
                ways.append((accumulation.operator(producer.num_rows), accumulation))
        return ways

    def replay(
        self, begin: int, last: RowOperator, end: int, rows_per_call: int, accumulation: RowAccumulation | None
    ) -> Replay:
        """Return a segment as it runs.

        last, accumulation: a result of `last_ways` for its last operator.
        """
        operators = [self.joined(begin, index, rows_per_call) for index in range(begin, end - 1)]
        operators.append(self._joining(begin, end - 1, last, rows_per_call))
        sequence = RowSequence(in_step(operators))
        counts, written = [0] * len(operators), list[int]()
        for operator, _, row in sequence.calls:
            counts[operator] += 1
            if operator == len(operators) - 1:
                written.append(row)
        return Replay(
            begin=begin, accumulation=accumulation, sequence=sequence, rings=self._rings(begin, sequence),
            num_calls=tuple(counts), made=np.array(sequence.before_last()), written=np.array(written),
        )  # fmt: skip

    def _joined(self, begin: int, index: int, rows_per_call: int) -> RowOperator:
        """Return an operator of a segment that starts at `begin`, with its producers in the segment."""
        operator = self.rows[index]
        assert operator is not None, "all operators of a segment have rows"
        return self._joining(begin, index, operator, rows_per_call)

    def _joining(self, begin: int, index: int, operator: RowOperator, rows_per_call: int) -> RowOperator:
        makers = [self.made.get(value, -1) for value in self.graph.nodes[index].reads]
        readers = tuple(
            replace(reader, producer=maker - begin if maker >= begin else None)
            for reader, maker in zip(operator.readers, makers, strict=True)
        )
        return replace(operator, readers=readers, rows_per_call=rows_per_call)

    def outlives(self, index: int, end: int) -> bool:
        """Return True if an operator's result is needed after a segment."""
        value = self.graph.nodes[index].writes[0]
        return self.last[value] >= end or value in self.graph.outputs

    def _rings(self, begin: int, sequence: RowSequence) -> RowRings:
        sizes = [self.graph.sizes[self.graph.nodes[begin + i].writes[0]] for i in range(len(sequence.operators))]
        row_bytes = [size // o.num_rows for size, o in zip(sizes, sequence.operators, strict=True)]
        end = begin + len(sizes)
        apart = [self.outlives(index, end) for index in range(begin, end)]
        return RowRings(sequence, possible_guests(sequence, row_bytes, apart))

    def _rowwise(self, replay: Replay) -> list[Segment]:
        """Return the segments with a replay's end, shortest first."""
        graph, operators = self.graph, replay.sequence.operators
        rows_made, ring_rows, lying = replay.sequence.rows_made(), replay.rings.rows(), replay.rings.lying()
        own = [0] * len(operators)
        end = replay.begin + len(operators)
        accumulation = replay.accumulation
        input_rows = operators[-1].num_rows if accumulation else 0
        stored = aligned(accumulation.sums_bytes) if accumulation else 0
        shared = self.shared(replay, graph.sizes[graph.nodes[end - 1].writes[0]])
        scratch = calls = added = held = 0
        found: list[Segment] = []
        for place in range(len(operators) - 1, -1, -1):
            index, operator = replay.begin + place, operators[place]
            value = graph.nodes[index].writes[0]
            size, rows = graph.sizes[value], operator.num_rows
            outlives = self.outlives(index, end)
            if outlives and rows_made[place] < rows:
                break
            own[place] = aligned(size if outlives else min(size, size // rows * max(ring_rows[place], 1)))
            stored += own[place] - sum(own[guest] for guest in lying[place])
            one = self.calls(index, operator.rows_per_call, input_rows if index == end - 1 else 0)
            scratch = max(scratch, one.scratch_bytes)
            held += index in self.reading and (outlives or ring_rows[place] >= rows)
            calls += replay.num_calls[place]
            added += one.added_instructions
            if end - index > 1:
                total = self.held(index) + aligned(scratch) + stored - shared[place]
                overhead = overhead_of(calls, end - index)
                found.append(
                    Segment(
                        begin=index, end=end, rows_per_call=operator.rows_per_call, num_bytes=total,
                        cost=overhead + added, overhead=overhead, input_rows=input_rows, held_inputs=held,
                    )
                )  # fmt: skip
        return found

    def _held(self, begin: int) -> int:
        """Return the bytes of values that are written ahead of an operator and read by it or later."""
        return sum(
            aligned(self.graph.sizes[value])
            for value, last in self.last.items()
            if self.made.get(value, -1) < begin <= last
        )

    def shared(self, replay: Replay, result: int) -> list[int]:
        """Return the overlap of the segment's output with an external input that is last read in it.

        result: bytes of the output. The overlaps are indexed by the segment's start, relative to the replay's start.
        """
        best = [0] * len(replay.sequence.operators)
        for _, (first, last), num_bytes in self.sharing(replay, result):
            for place in range(first - replay.begin, last - replay.begin):
                best[place] = max(best[place], num_bytes)
        return best

    def sharing(self, replay: Replay, result: int) -> list[tuple[int, tuple[int, int], int]]:
        """Return the operands whose bytes can be shared: value, [first, last) of the starts of such segments, bytes."""
        if replay.accumulation is not None:  # its accumulators may lie in the output from the first call on
            return []
        dying = self.dying(replay)
        distances = dying.distances(replay.written * (result // replay.sequence.operators[-1].num_rows))
        saved = result + dying.sizes - np.maximum(result, aligned(distances) + dying.sizes)
        whole = np.maximum(0, saved - ALIGNMENT_BYTES) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        return list(zip(dying.values, dying.begins, whole.tolist(), strict=True))

    def _dying(self, replay: Replay) -> Dying:
        return self.operands.of(replay.begin, replay.begin + len(replay.sequence.operators), replay.made)


def overhead_of(num_calls: int, num_operators: int) -> int:
    """Return the instructions of a sequence outside kernels."""
    return num_calls * (_CALL_COST + _ASK_COST * num_operators)


def _needed_from(operators: Sequence[RowOperator | None]) -> dict[tuple[int, int], tuple[int, np.ndarray]]:
    """Return what `DyingOperands` needs, by operator and position among its operands."""
    return {
        (index, position): (reader.input_rows, np.array(reader.needed_from))
        for index, operator in enumerate(operators)
        if operator is not None
        for position, reader in enumerate(operator.readers)
    }


def _first(graph: Graph, rows: Sequence[RowOperator | None]) -> int:
    """Return the start of the longest segment up to the last node whose operators can all run row by row."""
    wanted: dict[int, set[int]] = {}  # the numbers of rows that later operators expect of each value
    for index in range(len(rows) - 1, -1, -1):
        operator, node = rows[index], graph.nodes[index]
        if operator is None or len(node.writes) != 1 or len(operator.readers) != len(node.reads):
            return index + 1
        if wanted.get(node.writes[0], {operator.num_rows}) != {operator.num_rows}:
            return index + 1
        for value, reader in zip(node.reads, operator.readers, strict=True):
            wanted.setdefault(value, set()).add(reader.input_rows)
    return 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Dying:
    """Values that segments with one end read from ahead of them, and that nothing reads after them.

    values: the value numbers.
    begins: for each value, [first, last) of the starts of these segments.
    sizes, row_bytes: int64[values].
    needed: int64[values, calls of the last operator], the first row that is still read when such a call starts.
    """

    values: tuple[int, ...]
    begins: tuple[tuple[int, int], ...]
    sizes: np.ndarray
    row_bytes: np.ndarray
    needed: np.ndarray

    def distances(self, written: np.ndarray) -> np.ndarray:
        """Return the bytes by which a result has to lie ahead of each value.

        written: bytes of the result that are written when each call ends.
        """
        ahead = written - self.needed * self.row_bytes[:, None]
        return np.maximum(0, ahead.max(axis=1, initial=0))


@dataclass(frozen=True, kw_only=True, eq=False)
class DyingOperands:
    """The operands of a graph by their readers.

    made, last: of each value, the node that writes it (-1 for an input), and the last node that reads it.
    readers: of each value, its readers in order, as (node, position among the operands).
    needed_from: for a node and such a position, the number of rows of the operand, and, by the rows that the node has
    computed, the first row that it still reads.
    """

    graph: Graph
    made: Mapping[int, int]
    last: Mapping[int, int]
    readers: Mapping[int, Sequence[tuple[int, int]]]
    needed_from: Mapping[tuple[int, int], tuple[int, np.ndarray]]

    def of(self, begin: int, end: int, made: np.ndarray) -> Dying:
        """Return the dying operands of segments that start at `begin` or later.

        made: int[calls of the last operator, operators], the rows that each operator has computed when such a call
        starts.
        """
        found = [
            (value, *one)
            for value, readers in self.readers.items()
            if begin <= self.last[value] < end
            for one in self._of_value(value, readers, begin, made)
        ]
        return Dying(
            values=tuple(value for value, *_ in found),
            begins=tuple(begins for _, begins, *_ in found),
            sizes=np.array([size for *_, size, _, _ in found], np.int64),
            row_bytes=np.array([row_bytes for *_, row_bytes, _ in found], np.int64),
            needed=np.array([needed for *_, needed in found], np.int64).reshape(len(found), len(made)),
        )

    def _of_value(
        self, value: int, readers: Sequence[tuple[int, int]], begin: int, made: np.ndarray
    ) -> Iterator[tuple[tuple[int, int], int, int, np.ndarray]]:
        """Yield starts, size, bytes of a row and needed rows of a value, by its first reader in the segment."""
        size, earliest = self.graph.sizes[value], max(begin, self.made.get(value, -1) + 1)
        needed, heights = None, set[int]()
        for at in range(len(readers) - 1, -1, -1):
            node, _ = place = readers[at]
            if node < begin:
                return
            rows, needed_from = self.needed_from[place]
            heights.add(rows)
            one = needed_from[made[:, node - begin]]
            needed = one if needed is None else np.minimum(needed, one)
            first = max(earliest, readers[at - 1][0] + 1 if at else 0)
            if first <= node and len(heights) == 1 and size % rows == 0:
                yield (first, node + 1), size, size // rows, needed


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """The longest segment with one end.

    begin: its start in the order.
    made: int[calls of the last operator, operators], the rows that each operator has computed when such a call starts.
    written: the rows of the last operator when such a call ends.
    accumulation: of the last operator, where it adds up the rows of its operand.
    """

    begin: int
    accumulation: RowAccumulation | None
    sequence: RowSequence
    rings: RowRings
    num_calls: tuple[int, ...]
    made: np.ndarray
    written: np.ndarray
