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

    def next_end(self, made: int) -> int:
        """End of the rows that the next call computes."""
        return min(made + (self.rows_per_call if made else self.first_rows or self.rows_per_call), self.num_rows)


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


@dataclass(frozen=True, kw_only=True)
class RowCall:
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
        return tuple(self._calls())

    def _calls(self) -> Iterator[RowCall]:
        """Calls in order, by a heap of waiting operators, which a call changes only by its operator and producers."""
        made, sink = [0] * len(self.operators), len(self.operators) - 1
        waiting, is_waiting = [sink], [False] * sink + [True]
        self._ask_producers(sink, made, waiting, is_waiting)
        while waiting:
            index = waiting[0]
            operator = self.operators[index]
            end = operator.next_end(made[index])
            yield RowCall(operator=index, begin=made[index], end=end)
            made[index] = end
            if end < operator.num_rows and (index == sink or self._is_asked(index, made, is_waiting)):
                self._ask_producers(index, made, waiting, is_waiting)
            else:
                is_waiting[heappop(waiting)] = False

    def _ask_producers(self, index: int, made: Sequence[int], waiting: list[int], is_waiting: list[bool]) -> None:
        """Add the producers of rows that a waiting operator needs for its next call, and their own producers."""
        asking = [index]
        while asking:
            index = asking.pop()
            operator = self.operators[index]
            last = operator.next_end(made[index]) - 1
            for reader in operator.readers:
                producer = reader.producer
                if producer is not None and not is_waiting[producer] and made[producer] < reader.needed_to[last]:
                    is_waiting[producer] = True
                    heappush(waiting, producer)
                    asking.append(producer)

    def _is_asked(self, index: int, made: Sequence[int], is_waiting: Sequence[bool]) -> bool:
        """True where a waiting operator needs more rows of this one for its next call."""
        for consumer, reader in self.consumers[index]:
            last = self.operators[consumer].next_end(made[consumer]) - 1
            if is_waiting[consumer] and made[index] < reader.needed_to[last]:
                return True
        return False

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


def in_step(operators: Sequence[RowOperator]) -> tuple[RowOperator, ...]:
    """The operators, each with as many rows in its first call as leave whole calls to what is asked of it then.

    So no operator runs ahead of those that read it by rows that a call happens to compute as well.
    """
    found = list(operators)
    for index in reversed(range(len(found))):
        asked = [
            reader.needed_to[consumer.next_end(0) - 1]
            for consumer in found[index + 1 :]
            for reader in consumer.readers
            if reader.producer == index
        ]
        first = max(asked, default=0) % found[index].rows_per_call
        found[index] = replace(found[index], first_rows=first)
    return tuple(found)
