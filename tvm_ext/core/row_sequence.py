"""Sequences of operators that run row by row: the order of their calls, as loops, and their ring buffers.

Each operator computes its output rows in ascending order, some rows per call. The last operator requests its next rows.
A requested operator requests what it reads from its producers, and of all requested operators the first in the
operators' order runs. So every row is computed as late as possible, and exactly once. A result that only operators of
the sequence read needs no more rows than lie between the first row still to be read and the last row computed. It is
kept in a ring, with row h in slot h modulo the ring's rows.

Rows are equal parts of a tensor in the order of its bytes: rows of an image, vectors of a matrix, or ranges of the
channels of a single vector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from tvm_ext.core.row_access import RowAccess


@dataclass(frozen=True, kw_only=True)
class RowReader:
    """The rows of an input that an operator reads, by output row.

    producer: the operator of the sequence that computes the input; None for a tensor that exists from the start.
    lag: rows by which the output may lie behind the input in a shared ring; None where it may not lie there.
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
    """An operator that computes rows.

    num_rows: of its output.
    readers: of each input.
    rows_per_call: rows that are computed together; the last call may compute fewer.
    first_rows: rows of the first call; 0 for as many as in the others. tile_rows: rows that a kernel by tiles computes
    together; a call that begins or ends between two of them computes a tile for some of its rows only.
    """

    num_rows: int
    readers: tuple[RowReader, ...]
    rows_per_call: int = 1
    first_rows: int = 0
    tile_rows: int = 1

    def ends(self) -> list[int]:
        """Return the end of the rows that each call computes."""
        first = min(self.first_rows or self.rows_per_call, self.num_rows)
        return [*range(first, self.num_rows, self.rows_per_call), self.num_rows]


@dataclass(frozen=True, kw_only=True)
class RowAccumulation:
    """An operator whose calls each add some rows of its only input to accumulators. The last call writes its output.

    row_counts: the numbers of equal rows into which the input may be cut.
    sums_bytes: bytes of the accumulators between the calls, besides the output.
    """

    row_counts: tuple[int, ...]
    sums_bytes: int

    def operator(self, num_rows: int) -> RowOperator:
        """Return the accumulation as an operator with the rows of its input.

        Row r exists when row r of the input is added.
        """
        return RowOperator(num_rows=num_rows, readers=(RowReader(access=RowAccess.same(num_rows)),))


class RowCall(NamedTuple):
    """Rows [begin, end) of an operator."""

    operator: int
    begin: int
    end: int


@dataclass(frozen=True)
class RowSequence:
    """Operators in an order in which each follows its producers."""

    operators: tuple[RowOperator, ...]

    @cached_property
    def calls(self) -> tuple[RowCall, ...]:
        """Every call, in the order of execution."""
        return tuple(_Asking(self).calls())

    @cached_property
    def consumers(self) -> tuple[tuple[tuple[int, RowReader], ...], ...]:
        """For each operator, the operators that read its output, and the rows that they read."""
        found: list[list[tuple[int, RowReader]]] = [[] for _ in self.operators]
        for index, operator in enumerate(self.operators):
            for reader in operator.readers:
                if reader.producer is not None:
                    found[reader.producer].append((index, reader))
        return tuple(tuple(readers) for readers in found)

    def rows_made(self) -> tuple[int, ...]:
        """For each operator, the rows computed when the last operator has all its rows. The rest is never requested."""
        made = [0] * len(self.operators)
        for call in self.calls:
            made[call.operator] = call.end
        return tuple(made)

    def ring_rows(self) -> tuple[int, ...]:
        """For each operator, the most rows between the first row still to be read and the last row computed.

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
        """Return for each call of the last operator the rows that each operator has computed when the call starts."""
        made, sink = [0] * len(self.operators), len(self.operators) - 1
        found: list[tuple[int, ...]] = []
        for call in self.calls:
            if call.operator == sink:
                found.append(tuple(made))
            made[call.operator] = call.end
        return found


class _Asking:
    """The operators that wait to run, as a heap. A call changes the state of only its operator and its producers.

    ends: of each operator's calls.
    producers, consumers: the other operators, and the rows that each call needs.
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
        """Number of calls of each operator so far."""
        self.waiting = [self.sink]
        self.is_waiting = [False] * self.sink + [True]

    def calls(self) -> Iterator[RowCall]:
        """Yield every call, in the order of execution."""
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
        """Request rows from the producers that a waiting operator needs for its next call, and from their producers."""
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
        """Return True where a waiting operator needs more rows of this operator for its next call."""
        for consumer, needs in self.consumers[index]:
            if self.is_waiting[consumer] and self.made[index] < needs[self.done[consumer]]:
                return True
        return False


def in_step(operators: Sequence[RowOperator]) -> tuple[RowOperator, ...]:
    """Return the operators with first calls such that later requests are whole calls.

    Otherwise an operator could run ahead of its readers by rows that a call computes in addition. Calls that compute
    whole tiles keep to tiles: a first call of some rows of a tile would split those of all later calls, and compute one
    more in total.
    """
    found, asked = list(operators), [0] * len(operators)
    for index in reversed(range(len(found))):
        operator = found[index]
        tile_rows = operator.tile_rows if operator.rows_per_call % operator.tile_rows == 0 else 1
        first = -(-asked[index] // tile_rows) * tile_rows % operator.rows_per_call
        if first != operator.first_rows:
            operator = found[index] = replace(operator, first_rows=first)
        last = min(first or operator.rows_per_call, operator.num_rows) - 1
        for reader in operator.readers:
            if reader.producer is not None:
                asked[reader.producer] = max(asked[reader.producer], reader.needed_to[last])
    return tuple(found)


LOOP_LINES = 2
"""Lines that a loop takes besides its body."""
MOST_TURNS_TRIED = 8
"""Most positions in a repetition at which an iteration may be chosen to start."""


@dataclass(frozen=True, kw_only=True)
class RowLoop:
    """`body`, repeated `count` times. Its calls are those of the first iteration.

    advances: rows that an iteration computes, by operator.
    """

    count: int
    body: tuple[RowCall | RowLoop, ...]
    advances: dict[int, int]


Schedule = tuple[RowCall | RowLoop, ...]


@dataclass(frozen=True, kw_only=True)
class _Repeat:
    """A part of a word, repeated several times."""

    count: int
    body: _Word


_Letter = tuple[int, int]
"""An operator, and the number of rows that a call computes."""
_Word = tuple["_Letter | _Repeat", ...]


def with_loops(calls: Sequence[RowCall]) -> Schedule:
    """Return the calls in their order, with loops for repetitions."""
    letters = tuple((call.operator, call.end - call.begin) for call in calls)
    return _placed(_folder()(letters), {})


def merged(calls: Sequence[RowCall], operators: Collection[int]) -> list[RowCall]:
    """Return the calls, where neighbouring calls of one of these operators are merged."""
    found: list[RowCall] = []
    for call in calls:
        if found and call.operator in operators and found[-1].operator == call.operator:
            call = found.pop()._replace(end=call.end)
        found.append(call)
    return found


def in_turn(schedule: Schedule) -> list[RowCall]:
    """Return every call, in the order of execution."""
    return [call for entry in schedule for call in _unrolled(entry)]


def _unrolled(entry: RowCall | RowLoop) -> list[RowCall]:
    if isinstance(entry, RowCall):
        return [entry]
    return [
        RowCall(
            operator=call.operator, begin=call.begin + turn * entry.advances[call.operator],
            end=call.end + turn * entry.advances[call.operator],
        )
        for turn in range(entry.count)
        for call in in_turn(entry.body)
    ]  # fmt: skip


def _folder() -> Callable[[tuple[_Letter, ...]], _Word]:
    """Return a function from letters to the shortest word found for them."""

    @cache
    def fold(letters: tuple[_Letter, ...]) -> _Word:
        repetition = _longest_repetition(letters)
        if repetition is None:
            return letters
        begin, period, slack = repetition
        words: list[_Word] = []
        step = max(1, -(-(slack + 1) // MOST_TURNS_TRIED))
        for first in range(begin, begin + slack + 1, step):
            count = _repeats(letters, first, period)
            end = first + count * period
            turn = _Repeat(count=count, body=fold(letters[first : first + period]))
            words.append((*fold(letters[:first]), turn, *fold(letters[end:])))
        return min(*words, letters, key=_lines)

    return fold


def _longest_repetition(letters: tuple[_Letter, ...]) -> tuple[int, int, int] | None:
    """Return the repetition that saves most lines, or None.

    It consists of its start, its period, and the letters by which its start may be delayed.
    """
    numbers = {letter: number for number, letter in enumerate(dict.fromkeys(letters))}
    word = np.array([numbers[letter] for letter in letters], np.int64)
    best, saved = None, 0
    for period in range(1, len(word) // 2 + 1):
        same = np.concatenate([[False], word[period:] == word[:-period], [False]])
        edges = np.flatnonzero(same[1:] != same[:-1])
        begins, lengths = edges[::2], edges[1::2] - edges[::2]
        if not lengths.size:
            continue
        longest = int(lengths.argmax())
        turns, slack = divmod(int(lengths[longest]), period)
        if turns * period - LOOP_LINES > saved:
            best, saved = (int(begins[longest]), period, slack), turns * period - LOOP_LINES
    return best


def _repeats(letters: tuple[_Letter, ...], begin: int, period: int) -> int:
    """Return the number of times that the iteration at `begin` repeats without a gap."""
    turn, count = letters[begin : begin + period], 1
    while letters[begin + count * period : begin + (count + 1) * period] == turn:
        count += 1
    return count


def _lines(word: _Word) -> int:
    return sum(LOOP_LINES + _lines(entry.body) if isinstance(entry, _Repeat) else 1 for entry in word)


def _placed(word: _Word, made: dict[int, int]) -> Schedule:
    """Return the word with its rows, each operator continuing after the rows in `made`, which is updated."""
    found: list[RowCall | RowLoop] = []
    for entry in word:
        if isinstance(entry, _Repeat):
            before = dict(made)
            body = _placed(entry.body, made)
            advances = {o: rows - before.get(o, 0) for o, rows in made.items() if rows > before.get(o, 0)}
            for operator, rows in advances.items():
                made[operator] += (entry.count - 1) * rows
            found.append(RowLoop(count=entry.count, body=body, advances=advances))
        else:
            operator, rows = entry
            begin = made.get(operator, 0)
            found.append(RowCall(operator=operator, begin=begin, end=begin + rows))
            made[operator] = begin + rows
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Guest:
    """An operator's output that may lie in the ring of its producer `host`, `lag` rows behind its rows there."""

    host: int
    lag: int


@dataclass(frozen=True)
class RowRings:
    """Rings of a sequence.

    guests: the outputs that may share a ring, by operator. Each host has a single guest, and its output no other
    reader.
    """

    sequence: RowSequence
    guests: Mapping[int, Guest]

    @cached_property
    def _guest_of(self) -> dict[int, int]:
        return {guest.host: index for index, guest in self.guests.items()}

    def _chain(self, host: int) -> list[tuple[int, int]]:
        """Return (operator, its lag from the host) of a host and of everything that might share its ring."""
        found = [(host, 0)]
        while (guest := self._guest_of.get(found[-1][0])) is not None:
            found.append((guest, found[-1][1] + self.guests[guest].lag))
        return found

    @cached_property
    def _rows(self) -> tuple[tuple[int, ...], ...]:
        """For each operator, the rows of a ring for itself, for itself and a guest, and so on.

        0 for an output without reader.
        """
        consumers = self.sequence.consumers
        needs = [[(index, reader.needed_from) for index, reader in readers] for readers in consumers]
        chains = [
            [(needs[index], lag) for index, lag in self._chain(host)] if consumers[host] else []
            for host in range(len(needs))
        ]
        made = [0] * len(chains)
        most = [[0] * max(1, len(chain)) for chain in chains]
        for host, _, end in self.sequence.calls:
            made[host] = needed = end
            for depth, (readers, lag) in enumerate(chains[host]):
                for index, needed_from in readers:
                    needed = min(needed, needed_from[made[index]] - lag)
                most[host][depth] = max(most[host][depth], end - needed)
        return tuple(map(tuple, most))

    @cached_property
    def _depths(self) -> tuple[int, ...]:
        """The number of guests in each operator's ring, as a host: as many as need no more rows together than apart."""
        depths = [0] * len(self._rows)
        for host in reversed(range(len(depths))):
            guest = self._guest_of.get(host)
            if guest is not None:
                together = self._rows[host][1 + depths[guest]]
                apart = self._rows[host][0] + self._rows[guest][depths[guest]]
                if together <= apart and together < self.sequence.operators[host].num_rows:
                    depths[host] = 1 + depths[guest]
        return tuple(depths)

    def rows(self) -> tuple[int, ...]:
        """Return for each operator the rows of its ring with its guests.

        An operator whose output lies in another ring is counted as if it did not.
        """
        return tuple(rows[depth] for rows, depth in zip(self._rows, self._depths, strict=True))

    def shared(self) -> dict[int, Guest]:
        """Return the guests that lie in their hosts' rings."""
        return {index: guest for index, guest in self.guests.items() if self._depths[guest.host]}

    def lying(self) -> tuple[tuple[int, ...], ...]:
        """Return for each operator the operators whose outputs lie directly in its ring, not in a guest's."""
        found: list[tuple[int, ...]] = [()] * len(self._rows)
        for index, guest in self.shared().items():
            found[guest.host] = (*found[guest.host], index)
        return tuple(found)


def possible_guests(sequence: RowSequence, row_bytes: Sequence[int], apart: Sequence[bool]) -> dict[int, Guest]:
    """Return possible guests by operator: outputs with the host's number and size of rows, as the host's only reader.

    row_bytes: of each operator's output.
    apart: whether an output has an offset of its own, because it outlives the sequence.
    """
    found: dict[int, Guest] = {}
    for index, operator in enumerate(sequence.operators):
        if apart[index] or not sequence.consumers[index]:
            continue
        for reader in operator.readers:
            host, lag = reader.producer, reader.lag
            if host is None or lag is None or apart[host] or len(sequence.consumers[host]) > 1:
                continue
            same_rows = sequence.operators[host].num_rows == operator.num_rows
            if same_rows and row_bytes[host] == row_bytes[index]:
                found[index] = Guest(host=host, lag=lag)
                break
    return found
