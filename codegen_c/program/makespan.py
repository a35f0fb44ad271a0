"""Executed instructions of a run that several processors share: its lists replayed by a clock for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen_c.program.interval import Interval
from codegen_c.program.parallel import Entry, Notify, ParallelProgram, RunStep


@dataclass(frozen=True, kw_only=True)
class SharedRun:
    """Instructions of each list, waits left out, and of the run from begin to end, waits included.

    single: of the model on the one processor that runs it fastest; None where it was not measured. interval: of a
    pipeline.
    """

    instructions: tuple[int, ...]
    makespan: int
    single: int | None = None
    interval: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class ListCounts:
    """Instructions that a processor had executed behind each signal of a run, sent or awaited, in order.

    begin, end: of the caller's, at the begin and the end of the run.
    """

    behind_signals: tuple[int, ...]
    begin: int = 0
    end: int = 0


def replayed(parallel: ParallelProgram, counts: Sequence[ListCounts]) -> SharedRun:
    """The run by the counts of each list, as if all processors had one clock and a signal were seen at once.

    A wait costs what looking once does, and the time until its signal is sent.
    """
    signals = [[e for e in steps.entries if not isinstance(e, RunStep)] for steps in parallel.lists]
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
    """Goes through a list's signals as far as it can; False if not at all."""
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
