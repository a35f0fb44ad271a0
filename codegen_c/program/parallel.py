"""A program for several processors: per-core schedules, the signals between them, and the order they guarantee.

The first schedule belongs to the caller's processor. A run begins and ends with this schedule: no other step runs
before or after it, so successive runs never overlap, and the caller may use inputs and outputs between runs.

The signals from one processor to another form a channel. They are awaited in the order in which they are sent, so a
channel needs only one word of 32 bits, which is never reset: the number of signals sent on it since the start. Only its
source writes the word, adding 1 with release order. Its target counts the signals that it has awaited, and waits until
(int32_t)(word - awaited) > 0, loaded with acquire order. Both counts wrap around together. In addition, an interrupt or
a mailbox may wake the target.

A pipeline works on several inputs at once. The caller puts an input, which runs its schedule up to the first wait, and
takes the outputs of the oldest input, which runs the rest; at most `in_flight` inputs are put and not yet taken.
Successive inputs have successive phases; after the last phase comes the first again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codegen_c.program.program import Program
from codegen_c.program.steps import Step


@dataclass(frozen=True, kw_only=True)
class RunStep:
    """Run a step of the program to its end."""

    index: int


@dataclass(frozen=True, kw_only=True)
class Notify:
    """Send a signal to another processor: everything before it is done, and its writes are visible."""

    signal: int
    target: int


@dataclass(frozen=True, kw_only=True)
class Await:
    """Wait until another processor has sent a signal in this run."""

    signal: int
    source: int


Entry = RunStep | Notify | Await


@dataclass(frozen=True, kw_only=True)
class StepList:
    """Per-core schedule: everything that one processor does in a run, in order. Other files call it a list."""

    processor: str
    entries: tuple[Entry, ...]

    @property
    def runs_steps(self) -> bool:
        """True if the processor does more than send and await signals."""
        return any(isinstance(entry, RunStep) for entry in self.entries)


@dataclass(frozen=True, kw_only=True, eq=False)
class ParallelProgram:
    """The steps of a program as per-core schedules. In a run, each signal is sent once and awaited once.

    program: its steps are in an order that respects every schedule and every signal, so on one processor it computes
    the same. lists: the schedules, the caller's first; `Notify` and `Await` refer to them by index. phases: for a
    pipeline, the program's steps with the tensors of each phase; empty if runs never overlap. copies: tensors with a
    copy for each phase, by the program's name, which is the first copy. advances: for a pipeline, the step after
    which each ring of states advances, by the tensor that holds its write index.
    """

    program: Program
    lists: tuple[StepList, ...]
    phases: tuple[tuple[Step, ...], ...] = ()
    copies: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    advances: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def in_flight(self) -> int:
        """Most inputs that may be put and not yet taken; 1 if runs never overlap."""
        return max(1, len(self.phases))

    @property
    def take_begins(self) -> int:
        """Number of entries of the caller's schedule before its first wait."""
        entries = self.lists[0].entries
        return next((place for place, entry in enumerate(entries) if isinstance(entry, Await)), len(entries))

    @property
    def num_signals(self) -> int:
        """Number of signals in a run."""
        return sum(isinstance(entry, Notify) for steps in self.lists for entry in steps.entries)

    def channels(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Return the signals of each pair (source, target) of schedules in the order in which they are sent."""
        found: dict[tuple[int, int], tuple[int, ...]] = {}
        for source, steps in enumerate(self.lists):
            for entry in steps.entries:
                if isinstance(entry, Notify):
                    found[source, entry.target] = (*found.get((source, entry.target), ()), entry.signal)
        return found


NONE, BEGIN = -2, -1
"""Last step known to have ended: no step, or no step but the begin of the run."""

Clock = tuple[int, ...]
"""The last step that has ended, by schedule."""


@dataclass(frozen=True, kw_only=True)
class StepOrder:
    """Partial order of the steps of a program between begin and end of a run.

    home: schedule of each step. done: the steps that have surely ended before each step begins.
    """

    home: tuple[int, ...]
    done: tuple[Clock, ...]

    def before(self, first: int, second: int) -> bool:
        """Return True if a step has surely ended when another step begins."""
        return self.done[second][self.home[first]] >= first


def joined(one: Sequence[int], other: Sequence[int]) -> Clock:
    """Return the steps that are known to have ended by at least one of two clocks."""
    return tuple(map(max, one, other))


def ended(clock: Sequence[int], home: int, step: int) -> Clock:
    """Return the clock after a step of schedule `home`."""
    return tuple(step if index == home else last for index, last in enumerate(clock))


def first_clock(num_lists: int, home: int) -> Clock:
    """Return the clock of a schedule before its first entry. Only the caller's knows that the run has begun."""
    return tuple(BEGIN if index == home == 0 else NONE for index in range(num_lists))


def order_of(parallel: ParallelProgram) -> StepOrder:
    """Return the order that schedules and signals guarantee. No schedule may wait forever."""
    num_lists = len(parallel.lists)
    clocks = [first_clock(num_lists, number) for number in range(num_lists)]
    next_entry = [0] * num_lists
    sent: dict[int, Clock] = {}
    found: dict[int, tuple[int, Clock]] = {}
    while any(_advance(parallel, number, clocks, next_entry, sent, found) for number in range(num_lists)):
        pass
    steps = range(len(parallel.program.steps))
    assert sorted(found) == [*steps], "each step is in one schedule, and no schedule waits forever"
    return StepOrder(home=tuple(found[step][0] for step in steps), done=tuple(found[step][1] for step in steps))


def _advance(
    parallel: ParallelProgram,
    number: int,
    clocks: list[Clock],
    next_entry: list[int],
    sent: dict[int, Clock],
    found: dict[int, tuple[int, Clock]],
) -> bool:
    """Advance through a schedule as far as possible. Return False if it cannot advance."""
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
