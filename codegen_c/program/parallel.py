"""A program for several processors: a schedule for each, the signals between them, and the order they guarantee.

The first processor is the caller's. A run begins where its list begins and ends where its list ends: no other step runs
before the one or after the other, so successive runs never meet, and the caller may use inputs and outputs in between.

Signals from one processor to another are a channel. They are awaited in the order in which they are sent, so a channel
needs one word of 32 bits that nothing ever resets: the number of signals sent on it since the start. Its source alone
writes the word, adding 1 with release order; its target counts the signals it awaited, and waits until
(int32_t)(word - awaited) > 0, loaded with acquire order. Both counts wrap around together. An interrupt or a mailbox
may wake the target beside it.

A pipeline works on several inputs at once. The caller puts an input, which is its list up to the first wait, and takes
the outputs of the oldest one, which is the rest; at most `in_flight` inputs are put and not taken. Successive inputs
have successive phases, which begin anew behind the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codegen_c.program.program import Program
from codegen_c.program.steps import Step


@dataclass(frozen=True, kw_only=True)
class RunStep:
    """Runs a step of the program to its end."""

    index: int


@dataclass(frozen=True, kw_only=True)
class Notify:
    """Sends a signal to another list's processor: everything before it has been done, and its writes can be seen."""

    signal: int
    target: int


@dataclass(frozen=True, kw_only=True)
class Await:
    """Blocks until a signal of another list's processor was sent in this run."""

    signal: int
    source: int


Entry = RunStep | Notify | Await


@dataclass(frozen=True, kw_only=True)
class StepList:
    """Everything that one processor does in a run, in order."""

    processor: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ParallelProgram:
    """Steps of a program, each in one list. Each signal is sent once and awaited once in a run.

    program: its steps stand in an order that every list and every signal keeps, so it is a program for one processor
    that computes the same. lists: the caller's first; `Notify` and `Await` name the others by position.
    phases: of a pipeline, the program's steps over the tensors of each phase; empty where runs never meet. copies: of
    tensors that have a place for each phase, their names by phase, the program's own first. turns: of a pipeline, for
    each ring that runs keep, by the tensor that says how far it is turned, the step behind which it is turned on.
    """

    program: Program
    lists: tuple[StepList, ...]
    phases: tuple[tuple[Step, ...], ...] = ()
    copies: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    turns: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def in_flight(self) -> int:
        """Inputs that may be put and not taken; 1 where runs never meet."""
        return max(1, len(self.phases))

    @property
    def take_begins(self) -> int:
        """Entries of the caller's list before its first wait."""
        entries = self.lists[0].entries
        return next((place for place, entry in enumerate(entries) if isinstance(entry, Await)), len(entries))

    @property
    def num_signals(self) -> int:
        """Signals sent in a run."""
        return sum(isinstance(entry, Notify) for steps in self.lists for entry in steps.entries)

    def channels(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Signals of each pair (source, target) of lists that has any, in the order in which they are sent."""
        found: dict[tuple[int, int], tuple[int, ...]] = {}
        for source, steps in enumerate(self.lists):
            for entry in steps.entries:
                if isinstance(entry, Notify):
                    found[source, entry.target] = (*found.get((source, entry.target), ()), entry.signal)
        return found


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
