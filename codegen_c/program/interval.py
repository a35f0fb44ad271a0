"""Executed instructions between successive outputs of a pipeline: its lists replayed by a clock for each processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen_c.program.parallel import Entry, Notify, ParallelProgram, RunStep

MEASURED_INPUTS = 8
"""Inputs that firmware puts for a measurement: a few to fill the pipeline, a few to see that intervals repeat."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """instructions: between two successive outputs, waits included; stages: of each list meanwhile, without waits."""

    instructions: int
    stages: tuple[int, ...]


def put_order(in_flight: int, count: int) -> str:
    """Puts and takes of so many inputs, a letter each, with as many under way as may be."""
    ahead = min(count, in_flight) - 1
    return "p" * ahead + "pt" * (count - ahead) + "t" * ahead


def successive_signals(parallel: ParallelProgram, count: int) -> list[list[Entry]]:
    """Signals of each list in the order in which it sends and awaits them over so many inputs."""
    own, at = parallel.lists[0].entries, parallel.take_begins
    of_caller = {"p": _signals(own[:at]), "t": _signals(own[at:])}
    callers = [entry for letter in put_order(parallel.in_flight, count) for entry in of_caller[letter]]
    return [callers, *(_signals(steps.entries) * count for steps in parallel.lists[1:])]


def replayed_interval(parallel: ParallelProgram, counts: Sequence[Sequence[int]], count: int) -> Interval:
    """The interval while the pipeline is full. counts: instructions behind each of `successive_signals`.

    As if all processors had one clock and a signal were seen at once; a wait costs what looking once does, and the time
    until its signal is sent.
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
    """Place of each take's last signal among the caller's."""
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
