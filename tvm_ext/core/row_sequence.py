"""Sequences of operators that run row by row: the order of their calls, as loops, and their ring buffers.

Each operator computes its output rows in ascending order, some rows a call. The last operator asks for its next rows;
an operator whose rows are asked for asks its producers for what it reads, and the first of all that were asked, in the
operators' order, runs. So every row is computed as late as it can be, and exactly once. A result that only operators
of the sequence read needs no more rows than lie between the first row still to be read and the last one made: it is
kept in a ring, row h in slot h modulo the ring's rows.

Rows are equal parts of a tensor in the order of its bytes: rows of an image, vectors of a matrix, and of one vector
runs of its channels.
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


LOOP_LINES = 2
"""Lines that a loop takes beside its body."""
MOST_TURNS_TRIED = 8
"""Most places in a repetition at which a turn is tried to begin."""


@dataclass(frozen=True, kw_only=True)
class RowLoop:
    """`body`, `count` times; its calls stand as in the first turn. advances: rows that a turn computes, by operator."""

    count: int
    body: tuple[RowCall | RowLoop, ...]
    advances: dict[int, int]


Schedule = tuple[RowCall | RowLoop, ...]


@dataclass(frozen=True, kw_only=True)
class _Repeat:
    """A part of a word, several times."""

    count: int
    body: _Word


_Letter = tuple[int, int]
"""An operator, and the number of rows that a call computes."""
_Word = tuple["_Letter | _Repeat", ...]


def with_loops(calls: Sequence[RowCall]) -> Schedule:
    """The calls in their order, with loops for what repeats."""
    letters = tuple((call.operator, call.end - call.begin) for call in calls)
    return _placed(_folder()(letters), {})


def merged(calls: Sequence[RowCall], operators: Collection[int]) -> list[RowCall]:
    """The calls, neighbouring ones of one of these operators as one."""
    found: list[RowCall] = []
    for call in calls:
        if found and call.operator in operators and found[-1].operator == call.operator:
            call = found.pop()._replace(end=call.end)
        found.append(call)
    return found


def in_turn(schedule: Schedule) -> list[RowCall]:
    """Every call, in the order they run."""
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
    """A function from letters to the shortest word found for them."""

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
    """(begin, period, letters by which its first turn may begin later) of the repetition that saves most."""
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
    """Number of times that the turn at `begin` repeats without a gap."""
    turn, count = letters[begin : begin + period], 1
    while letters[begin + count * period : begin + (count + 1) * period] == turn:
        count += 1
    return count


def _lines(word: _Word) -> int:
    return sum(LOOP_LINES + _lines(entry.body) if isinstance(entry, _Repeat) else 1 for entry in word)


def _placed(word: _Word, made: dict[int, int]) -> Schedule:
    """The word with its rows, each operator's behind those `made` before; `made` comes to count these as well."""
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
    """An operator's output that may lie in the ring of its producer `host`, `lag` rows behind its place there."""

    host: int
    lag: int


@dataclass(frozen=True)
class RowRings:
    """guests: by operator, those that may share a ring; each host has one, and its output no other reader."""

    sequence: RowSequence
    guests: Mapping[int, Guest]

    @cached_property
    def _guest_of(self) -> dict[int, int]:
        return {guest.host: index for index, guest in self.guests.items()}

    def _chain(self, host: int) -> list[tuple[int, int]]:
        """(operator, its lag behind the host) of a host and all that might share its ring."""
        found = [(host, 0)]
        while (guest := self._guest_of.get(found[-1][0])) is not None:
            found.append((guest, found[-1][1] + self.guests[guest].lag))
        return found

    @cached_property
    def _rows(self) -> tuple[tuple[int, ...], ...]:
        """Per operator, rows of a ring for itself, for itself and a guest, and so on; 0 where nobody reads it."""
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
        """Number of guests in each operator's ring, were it a host: all that need no more rows together than apart."""
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
        """Per operator, rows of its ring and of all that lie in it, were it not in another one itself."""
        return tuple(rows[depth] for rows, depth in zip(self._rows, self._depths, strict=True))

    def shared(self) -> dict[int, Guest]:
        """The guests that lie in their hosts' rings."""
        return {index: guest for index, guest in self.guests.items() if self._depths[guest.host]}

    def lying(self) -> tuple[tuple[int, ...], ...]:
        """Per operator, those whose outputs lie in its ring themselves, not in a guest's."""
        found: list[tuple[int, ...]] = [()] * len(self._rows)
        for index, guest in self.shared().items():
            found[guest.host] = (*found[guest.host], index)
        return tuple(found)


def possible_guests(sequence: RowSequence, row_bytes: Sequence[int], apart: Sequence[bool]) -> dict[int, Guest]:
    """Guests by operator: outputs of the host's number and size of rows, where nobody else reads the host's.

    row_bytes: of each operator's output. apart: whether an output has a place of its own, as it outlives the sequence.
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
