"""Children with limits: each way to end is told from the others, and costs nobody else anything."""

from __future__ import annotations

import os
import signal
import time

import pytest

from benchmarks.fuzzing.forked import Limits, Stages, apart
from benchmarks.fuzzing.outcome import AGREES, FOREIGN, OVER_MEMORY, OVER_TIME, SIGNAL, Outcome
from benchmarks.fuzzing.pool import judged_end, run_in_order

LIMITS = Limits(cpu_s=1, wall_s=60.0, memory_bytes=1 << 30)


def _works(index: int, stages: Stages) -> Outcome:
    stages.begin("work")
    time.sleep(0.2 * (index == 0))
    return Outcome(kind=AGREES, detail=str(index))


def _crashes() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _spins() -> None:
    while True:
        pass


def _raises() -> None:
    raise ValueError("here")


def _grows() -> int:
    return len(bytearray(2 << 30))


def test_results_come_in_order() -> None:
    found = [(index, outcome.detail) for index, outcome in run_in_order(_works, range(6), num_workers=2)]
    assert found == [(index, str(index)) for index in range(6)]


@pytest.mark.parametrize(
    ("work", "kind", "says"),
    [
        (_crashes, SIGNAL, "SIGSEGV"),
        (_spins, OVER_TIME, ""),
        (_raises, FOREIGN, "ValueError: here"),
        (_grows, FOREIGN, "MemoryError"),
    ],
)
def test_ends_are_told_apart(work, kind: str, says: str) -> None:
    outcome = judged_end(apart(work, limits=LIMITS))
    assert outcome.kind == kind
    assert says in f"{outcome.error} {outcome.where}"


def test_memory_that_a_library_asked_for_in_vain() -> None:
    def aborts() -> None:
        print("terminate called after throwing an instance of 'std::bad_alloc'", flush=True)
        os.abort()

    assert judged_end(apart(aborts, limits=LIMITS)).kind == OVER_MEMORY


def test_what_waits_for_ever_is_ended() -> None:
    begin = time.monotonic()
    outcome = judged_end(apart(time.sleep, 1000, limits=Limits(wall_s=1.0)))
    assert outcome.kind == OVER_TIME and time.monotonic() - begin < 60
