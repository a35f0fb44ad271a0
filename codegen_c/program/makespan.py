"""Executed instructions of a run on several processors, and between two outputs of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen_c.program.parallel import Entry, Notify, ParallelProgram, RunStep


@dataclass(frozen=True, kw_only=True)
class SharedRun:
    """Instructions of each per-core schedule without waits, and of the run from begin to end with waits.

    single: instructions of the model on the one processor that runs it fastest; None if not measured. interval: of a
    pipeline.
    """

    instructions: tuple[int, ...]
    makespan: int
    single: int | None = None
    interval: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class ListCounts:
    """Instructions that a processor has executed after each signal of a run that it sent or awaited, in order.

    begin, end: counts of the caller's processor at the begin and at the end of the run.
    """

    behind_signals: tuple[int, ...]
    begin: int = 0
    end: int = 0


def replayed(lists: Sequence[Sequence[Entry]], counts: Sequence[ListCounts]) -> SharedRun:
    """Replay a run from the counts of each schedule, as if all processors had one clock and signals arrived at once.

    lists: entries of each schedule, the caller's first. A wait costs one check of the signal, and the time until the
    signal is sent.
    """
    signals = [[e for e in entries if not isinstance(e, RunStep)] for entries in lists]
    clocks = [0] * len(signals)
    position = [0] * len(signals)
    sent: dict[int, int] = {}
    while any(_advance(signals, number, counts, clocks, position, sent) for number in range(len(signals))):
        pass
    first = counts[0]
    last = first.behind_signals[-1] if first.behind_signals else first.begin
    return SharedRun(
        instructions=(first.end - first.begin, *(one.behind_signals[-1] - one.behind_signals[0] for one in counts[1:])),
        makespan=clocks[0] + first.end - last,
    )


def _advance(
    signals: Sequence[Sequence[Entry]],
    number: int,
    counts: Sequence[ListCounts],
    clocks: list[int],
    position: list[int],
    sent: dict[int, int],
) -> bool:
    """Advance through a schedule's signals as far as possible. Return False if it cannot advance."""
    own, begin = counts[number].behind_signals, position[number]
    while position[number] < len(signals[number]):
        at, entry = position[number], signals[number][position[number]]
        assert not isinstance(entry, RunStep), "steps are between signals"
        before = own[at - 1] if at else counts[number].begin if number == 0 else own[0]
        clock = clocks[number] + own[at] - before
        if isinstance(entry, Notify):
            sent[entry.signal] = clock
        elif entry.signal in sent:
            clock = max(clock, sent[entry.signal])
        else:
            break
        clocks[number] = clock
        position[number] += 1
    return position[number] > begin


MEASURED_INPUTS = 8
"""Inputs that the firmware puts for a measurement: enough to fill the pipeline and to see that intervals repeat."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Instructions between two successive outputs, with waits. stages: of each schedule in this time, without waits."""

    instructions: int
    stages: tuple[int, ...]


def put_order(in_flight: int, count: int) -> str:
    """Return the order of puts (p) and takes (t) of `count` inputs, with as many inputs in flight as possible."""
    ahead = min(count, in_flight) - 1
    return "p" * ahead + "pt" * (count - ahead) + "t" * ahead


def successive_signals(parallel: ParallelProgram, count: int) -> list[list[Entry]]:
    """Return the signals of each schedule over `count` inputs, in the order in which it sends and awaits them."""
    own, at = parallel.lists[0].entries, parallel.take_begins
    of_caller = {"p": _signals(own[:at]), "t": _signals(own[at:])}
    callers = [entry for letter in put_order(parallel.in_flight, count) for entry in of_caller[letter]]
    return [callers, *(_signals(steps.entries) * count for steps in parallel.lists[1:])]


def replayed_interval(parallel: ParallelProgram, counts: Sequence[Sequence[int]], count: int) -> Interval:
    """Return the interval while the pipeline is full. counts: instructions after each of `successive_signals`.

    As in `replayed`, all processors have one clock and signals arrive at once; a wait costs one check of the signal,
    and the time until the signal is sent.
    """
    signals = successive_signals(parallel, count)
    times: list[list[int]] = [[] for _ in signals]
    sent: dict[tuple[int, int], list[int]] = {}
    awaited: dict[tuple[int, int], int] = {}
    moved = True
    while moved:
        moved = False
        for number, entries in enumerate(signals):
            while len(times[number]) < len(entries):
                at = len(times[number])
                entry = entries[at]
                clock = times[number][-1] + counts[number][at] - counts[number][at - 1] if at else 0
                if isinstance(entry, Notify):
                    sent.setdefault((number, entry.target), []).append(clock)
                else:
                    assert not isinstance(entry, RunStep), "steps are between signals"
                    channel, done = (entry.source, number), awaited.get((entry.source, number), 0)
                    if len(sent.get(channel, ())) <= done:
                        break
                    clock, awaited[channel] = max(clock, sent[channel][done]), done + 1
                times[number].append(clock)
                moved = True
    # The first and the last inputs are left out, because the pipeline is not full then.
    ends = _take_ends(parallel, count)
    first, last = ends[parallel.in_flight - 1], ends[count - parallel.in_flight]
    periods = count - 2 * parallel.in_flight + 1
    stages = [counts[0][last] - counts[0][first]]
    for entries, own in zip(signals[1:], counts[1:], strict=True):
        each = len(entries) // count
        stages.append(own[each * (parallel.in_flight - 1 + periods)] - own[each * (parallel.in_flight - 1)])
    return Interval(
        instructions=round((times[0][last] - times[0][first]) / periods),
        stages=tuple(round(stage / periods) for stage in stages),
    )


def _take_ends(parallel: ParallelProgram, count: int) -> list[int]:
    """Return the position of each take's last signal among the caller's signals."""
    own, at = parallel.lists[0].entries, parallel.take_begins
    sizes = {"p": len(_signals(own[:at])), "t": len(_signals(own[at:]))}
    ends: list[int] = []
    place = 0
    for letter in put_order(parallel.in_flight, count):
        place += sizes[letter]
        ends += [place - 1] if letter == "t" else []
    return ends


def _signals(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if not isinstance(entry, RunStep)]
