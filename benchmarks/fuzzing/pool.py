"""Cases in forked children, a few at once, reported in order."""

from __future__ import annotations

import re
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator

from benchmarks.fuzzing.canary import alarms
from benchmarks.fuzzing.forked import End, Forked, Limits, Stages
from benchmarks.fuzzing.outcome import FOREIGN, OVER_MEMORY, OVER_TIME, RAN, SIGNAL, Outcome


def run_in_order(
    work: Callable[[int, Stages], Outcome],
    indices: Iterable[int],
    *,
    num_workers: int,
    seconds: float | None = None,
    limits: Limits | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """Outcomes of `work(index)`, in the order of the indices; after `seconds` no more of them begin."""
    begin, left = time.monotonic(), iter(indices)
    busy: dict[int, Forked] = {}
    order: list[int] = []
    ended: dict[int, Outcome] = {}
    try:
        while True:
            is_open = seconds is None or time.monotonic() - begin < seconds
            while is_open and len(busy) < num_workers and (index := next(left, None)) is not None:
                busy[index] = Forked(lambda stages, index=index: work(index, stages), limits)
                order.append(index)
            if not busy:
                return
            select.select([child.pipe for child in busy.values()], [], [], 0.2)
            for index, child in list(busy.items()):
                end = child.end()
                if end is not None:
                    ended[index] = judged_end(end)
                    del busy[index]
            while order and order[0] in ended:
                yield order[0], ended.pop(order.pop(0))
    finally:
        for child in busy.values():
            child.kill()
            child.wait()


def judged_end(end: End) -> Outcome:
    """The outcome that a child sent, or the way it ended without one."""
    figures = {"cpu_s": end.cpu_s, "peak_bytes": end.peak_bytes, "stage": end.stage}
    if heard := alarms(end.said):
        return Outcome(
            kind=RAN, error=heard[0].split()[0], where=heard[0][:120], detail="\n".join(heard[:20]), **figures
        )
    if end.is_done:
        return Outcome(**{**end.value.to_json(), **figures})
    tail = end.said[-1500:]
    if end.over_time:
        return Outcome(kind=OVER_TIME, error=end.stage, where=_innermost(end.said), detail=tail, **figures)
    if end.signal and ("bad_alloc" in end.said or "MemoryError" in end.said):
        return Outcome(kind=OVER_MEMORY, error="bad_alloc", detail=tail, **figures)
    if end.signal:
        return Outcome(
            kind=SIGNAL, error=signal.Signals(end.signal).name, where=_innermost(end.said), detail=tail, **figures
        )
    last = tail.strip().splitlines()[-1:] or [""]
    return Outcome(kind=FOREIGN, error="left without an outcome", where=last[0][:80], detail=tail, **figures)


def _innermost(said: str) -> str:
    """The project's function that ran when a signal came, from the trace that was printed then."""
    found = re.findall(r'File ".*?/((?:tvm_ext|relay_passes|codegen_c)/\S+?)", line \d+ in (\w+)', said)
    return ":".join(found[0]) if found else ""
