"""Run cases in worker processes: one that faults or hangs loses its case only."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from time import monotonic

from benchmarks.conformance.cases import Case
from benchmarks.conformance.run_case import Outcome, run_case

Run = Callable[[Case], Outcome]

_CONTEXT = multiprocessing.get_context("spawn")


def run_all(
    cases: Sequence[Case], *, num_workers: int, time_limit_s: float, run: Run = run_case
) -> Iterator[tuple[Case, Outcome]]:
    """Each case with its outcome, as they end. A fault or no end within the limit is a crash.

    run: a function of a module, which worker processes import.
    """
    waiting = list(reversed(cases))
    workers = [_Worker(run) for _ in range(min(num_workers, len(waiting)))]
    try:
        for worker in workers:
            worker.start(waiting.pop())
        while busy := [worker for worker in workers if worker.case is not None]:
            wait([worker.pipe for worker in busy], timeout=1.0)
            for index, worker in enumerate(workers):
                case = worker.case
                outcome = worker.outcome(time_limit_s) if case is not None else None
                if case is None or outcome is None:
                    continue
                yield case, outcome
                if not worker.is_alive:
                    workers[index] = worker = _Worker(run)
                if waiting:
                    worker.start(waiting.pop())
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process and the case it works on."""

    def __init__(self, run: Run) -> None:
        self.pipe, other = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_work, args=(other, run), daemon=True)
        self._process.start()
        other.close()
        self.case: Case | None = None
        self._begin = 0.0
        self.is_alive = True

    def start(self, case: Case) -> None:
        self.case, self._begin = case, monotonic()
        self.pipe.send(case)

    def outcome(self, time_limit_s: float) -> Outcome | None:
        """Outcome of the case; None while it runs."""
        found: Outcome | None = None
        try:
            if self.pipe.poll():
                found = self.pipe.recv()
        except EOFError:
            self._process.join()
            self.is_alive = False
            found = Outcome(verdict="crash", reason=f"the process ended with {self._process.exitcode}")
        if found is None and monotonic() - self._begin > time_limit_s:
            self.stop()
            self.is_alive = False
            found = Outcome(verdict="crash", reason=f"no end within {time_limit_s:g} s")
        if found is not None:
            self.case = None
        return found

    def stop(self) -> None:
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _work(pipe: Connection, run: Run) -> None:
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        pipe.send(run(case))
