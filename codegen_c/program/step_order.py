"""Order of a parallel program's steps that its signals guarantee: happens-before, as vector clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen_c.program.parallel import Await, Notify, ParallelProgram

NONE, BEGIN = -2, -1
"""Last step known to have ended, where that is none, and where only the begin of the run is known of."""

Clock = tuple[int, ...]
"""Per list, the last of its steps that has ended."""


@dataclass(frozen=True, kw_only=True)
class StepOrder:
    """Partial order of the steps of a program, all of them between begin and end of a run.

    home: list of each step. done: what each step knows to have ended before it begins.
    """

    home: tuple[int, ...]
    done: tuple[Clock, ...]

    def before(self, first: int, second: int) -> bool:
        """True if a step has surely ended when the other one begins."""
        return self.done[second][self.home[first]] >= first


def joined(one: Sequence[int], other: Sequence[int]) -> Clock:
    """Steps known to have ended by either of two clocks."""
    return tuple(map(max, one, other))


def ended(clock: Sequence[int], home: int, step: int) -> Clock:
    """A clock behind a step of list `home`."""
    return tuple(step if index == home else last for index, last in enumerate(clock))


def first_clock(num_lists: int, home: int) -> Clock:
    """The clock of a list before its first entry; the caller's knows that the run has begun."""
    return tuple(BEGIN if index == home == 0 else NONE for index in range(num_lists))


def order_of(parallel: ParallelProgram) -> StepOrder:
    """The order that lists and signals guarantee, for lists that come to their ends."""
    num_lists = len(parallel.lists)
    clocks = [first_clock(num_lists, number) for number in range(num_lists)]
    next_entry = [0] * num_lists
    sent: dict[int, Clock] = {}
    found: dict[int, tuple[int, Clock]] = {}
    while any(_advance(parallel, number, clocks, next_entry, sent, found) for number in range(num_lists)):
        pass
    steps = range(len(parallel.program.steps))
    assert sorted(found) == [*steps], "each step is in one list, and no list waits in vain"
    return StepOrder(home=tuple(found[step][0] for step in steps), done=tuple(found[step][1] for step in steps))


def _advance(
    parallel: ParallelProgram,
    number: int,
    clocks: list[Clock],
    next_entry: list[int],
    sent: dict[int, Clock],
    found: dict[int, tuple[int, Clock]],
) -> bool:
    """Goes through a list as far as it can; False if not at all."""
    entries, begin = parallel.lists[number].entries, next_entry[number]
    while next_entry[number] < len(entries):
        entry = entries[next_entry[number]]
        if isinstance(entry, Await):
            if entry.signal not in sent:
                break
            clocks[number] = joined(clocks[number], sent[entry.signal])
        elif isinstance(entry, Notify):
            sent[entry.signal] = clocks[number]
        else:
            found[entry.index] = number, clocks[number]
            clocks[number] = ended(clocks[number], number, entry.index)
        next_entry[number] += 1
    return next_entry[number] > begin
