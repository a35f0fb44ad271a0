"""The calls of a row sequence as loops: repeated calls stand once, in the fewest lines found.

Each operator's calls compute its rows in order, so a call is known from its operator and how many rows it computes, and
a loop advances each operator by as many rows as one turn computes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from tvm_ext.core.row_sequence import RowCall

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
