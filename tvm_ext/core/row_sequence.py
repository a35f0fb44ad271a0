"""Operators that run row by row, in series: their order of calls, and the rows of each result that must be kept.

Each operator computes its output rows in ascending order, some rows a call. The last operator asks for its next rows;
an operator whose rows are asked for asks its producers for what it reads, and the first of all that were asked, in the
operators' order, runs. So every row is computed as late as it can be, and exactly once. A result that only operators
of the sequence read needs no more rows than lie between the first row still to be read and the last one made: it is
kept in a ring, row h in slot h modulo the ring's rows.

Rows are equal parts of a tensor in the order of its bytes: rows of an image, vectors of a matrix, and of one vector
runs of its channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

from tvm_ext.core.row_access import RowAccess


@dataclass(frozen=True, kw_only=True)
class RowReader:
    """Rows of one input that an operator reads, by output row.

    producer: the operator of the sequence that makes the input; None for a tensor that is there from the start.
    lag: rows by which the output may lie behind the input in one ring; None where it may not lie there.
    """

    access: RowAccess
    producer: int | None = None
    lag: int | None = None

    @property
    def input_rows(self) -> int:
        return self.access.input_rows

    @property
    def needed_from(self) -> Sequence[int]:
        return self.access.needed_from

    @property
    def needed_to(self) -> Sequence[int]:
        return self.access.needed_to


@dataclass(frozen=True, kw_only=True)
class RowOperator:
    """num_rows: of its output. readers: of each input. rows_per_call: computed together, fewer in the last call.

    first_rows: of the first call; 0 stands for as many as of the others.
    """

    num_rows: int
    readers: tuple[RowReader, ...]
    rows_per_call: int = 1
    first_rows: int = 0

    def ends(self) -> list[int]:
        """End of the rows that each call computes."""
        first = min(self.first_rows or self.rows_per_call, self.num_rows)
        return [*range(first, self.num_rows, self.rows_per_call), self.num_rows]


@dataclass(frozen=True, kw_only=True)
class RowAccumulation:
    """An operator whose calls each add some rows of its only input to sums; the last one writes its output.

    row_counts: numbers of equal rows to cut the input into. sums_bytes: kept between the calls, beside the output.
    """

    row_counts: tuple[int, ...]
    sums_bytes: int

    def operator(self, num_rows: int) -> RowOperator:
        """The accumulation with the rows of its input: row r is there when the input's row r has been added."""
        return RowOperator(num_rows=num_rows, readers=(RowReader(access=RowAccess.same(num_rows)),))


class RowCall(NamedTuple):
    """Rows [begin, end) of one operator."""

    operator: int
    begin: int
    end: int


@dataclass(frozen=True)
class RowSequence:
    """Operators in an order in which each stands behind its producers."""

    operators: tuple[RowOperator, ...]

    @cached_property
    def calls(self) -> tuple[RowCall, ...]:
        """Every call, in the order they run."""
        return tuple(_Asking(self).calls())

    @cached_property
    def consumers(self) -> tuple[tuple[tuple[int, RowReader], ...], ...]:
        """Per operator, the operators that read its output, and the rows they read."""
        found: list[list[tuple[int, RowReader]]] = [[] for _ in self.operators]
        for index, operator in enumerate(self.operators):
            for reader in operator.readers:
                if reader.producer is not None:
                    found[reader.producer].append((index, reader))
        return tuple(tuple(readers) for readers in found)

    def rows_made(self) -> tuple[int, ...]:
        """Per operator, rows computed when the last operator has all of its own; nobody asks for the rest."""
        made = [0] * len(self.operators)
        for call in self.calls:
            made[call.operator] = call.end
        return tuple(made)

    def ring_rows(self) -> tuple[int, ...]:
        """Per operator, the most rows of its output between the first that the sequence still reads and the last made.

        0 for an output that no operator of the sequence reads.
        """
        made = [0] * len(self.operators)
        most = [0] * len(self.operators)
        for call in self.calls:
            made[call.operator] = call.end
            if self.consumers[call.operator]:
                needed = min(reader.needed_from[made[index]] for index, reader in self.consumers[call.operator])
                most[call.operator] = max(most[call.operator], call.end - needed)
        return tuple(most)

    def before_last(self) -> list[tuple[int, ...]]:
        """Per call of the last operator, the rows that each operator has made when it begins."""
        made, sink = [0] * len(self.operators), len(self.operators) - 1
        found: list[tuple[int, ...]] = []
        for call in self.calls:
            if call.operator == sink:
                found.append(tuple(made))
            made[call.operator] = call.end
        return found


class _Asking:
    """Who waits to run, by a heap; a call changes it only by its operator and that one's producers.

    ends: of each operator's calls. producers, consumers: others, and the rows of theirs, or of it, that each of the
    calls needs.
    """

    def __init__(self, sequence: RowSequence) -> None:
        self.sink = len(sequence.operators) - 1
        self.ends = [operator.ends() for operator in sequence.operators]
        self.producers: list[list[tuple[int, list[int]]]] = [[] for _ in sequence.operators]
        self.consumers: list[list[tuple[int, list[int]]]] = [[] for _ in sequence.operators]
        for index, operator in enumerate(sequence.operators):
            for reader in operator.readers:
                if reader.producer is not None:
                    needed_to = reader.needed_to
                    needs = [needed_to[end - 1] for end in self.ends[index]]
                    self.producers[index].append((reader.producer, needs))
                    self.consumers[reader.producer].append((index, needs))
        self.made = [0] * len(sequence.operators)
        self.done = [0] * len(sequence.operators)
        """Calls of each operator."""
        self.waiting = [self.sink]
        self.is_waiting = [False] * self.sink + [True]

    def calls(self) -> Iterator[RowCall]:
        """Every call, in the order they run."""
        made, done, waiting, is_waiting = self.made, self.done, self.waiting, self.is_waiting
        self._ask_producers(self.sink)
        while waiting:
            index = waiting[0]
            ends, call = self.ends[index], done[index]
            yield RowCall(index, made[index], ends[call])
            made[index] = ends[call]
            done[index] = call = call + 1
            if call < len(ends) and (index == self.sink or self._is_asked(index)):
                self._ask_producers(index)
            else:
                is_waiting[heappop(waiting)] = False

    def _ask_producers(self, index: int) -> None:
        """Add the producers of rows that a waiting operator needs for its next call, and their own producers."""
        made, is_waiting = self.made, self.is_waiting
        asking = [index]
        while asking:
            index = asking.pop()
            call = self.done[index]
            for producer, needs in self.producers[index]:
                if not is_waiting[producer] and made[producer] < needs[call]:
                    is_waiting[producer] = True
                    heappush(self.waiting, producer)
                    asking.append(producer)

    def _is_asked(self, index: int) -> bool:
        """True where a waiting operator needs more rows of this one for its next call."""
        for consumer, needs in self.consumers[index]:
            if self.is_waiting[consumer] and self.made[index] < needs[self.done[consumer]]:
                return True
        return False


def in_step(operators: Sequence[RowOperator]) -> tuple[RowOperator, ...]:
    """The operators, each with as many rows in its first call as leave whole calls to what is asked of it then.

    So no operator runs ahead of those that read it by rows that a call happens to compute as well.
    """
    found, asked = list(operators), [0] * len(operators)
    for index in reversed(range(len(found))):
        operator = found[index]
        first = asked[index] % operator.rows_per_call
        if first != operator.first_rows:
            operator = found[index] = replace(operator, first_rows=first)
        last = min(first or operator.rows_per_call, operator.num_rows) - 1
        for reader in operator.readers:
            if reader.producer is not None:
                asked[reader.producer] = max(asked[reader.producer], reader.needed_to[last])
    return tuple(found)
