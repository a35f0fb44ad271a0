"""Run cases in worker processes: one that faults or hangs loses its case only."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import Any

from benchmarks.conformance.run_case import Outcome, run_case

_CONTEXT = multiprocessing.get_context("spawn")


def _crash(reason: str) -> Outcome:
    return Outcome(verdict="crash", reason=reason)


def run_all(
    cases: Sequence[Any],
    *,
    num_workers: int,
    time_limit_s: float,
    run: Callable[[Any], Any] = run_case,
    failed: Callable[[str], Any] = _crash,
) -> Iterator[tuple[Any, Any]]:
    """Each case with its outcome, as they end.

    run: a function of a module, which worker processes import; cases and outcomes can be pickled. failed: outcome of a
    fault, or of no end within the limit, by its reason.
    """
    waiting = list(reversed(cases))
    workers = [_Worker(run, failed) for _ in range(min(num_workers, len(waiting)))]
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
                    workers[index] = worker = _Worker(run, failed)
                if waiting:
                    worker.start(waiting.pop())
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process and the case it works on."""

    def __init__(self, run: Callable[[Any], Any], failed: Callable[[str], Any]) -> None:
        self.pipe, other = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_work, args=(other, run), daemon=True)
        self._process.start()
        other.close()
        self._failed = failed
        self.case: Any = None
        self._begin = 0.0
        self.is_alive = True

    def start(self, case: Any) -> None:
        self.case, self._begin = case, monotonic()
        self.pipe.send(case)

    def outcome(self, time_limit_s: float) -> Any:
        """Outcome of the case; None while it runs."""
        found: Any = None
        try:
            if self.pipe.poll():
                found = self.pipe.recv()
        except EOFError:
            self._process.join()
            self.is_alive = False
            found = self._failed(f"the process ended with {self._process.exitcode}")
        if found is None and monotonic() - self._begin > time_limit_s:
            self.stop()
            self.is_alive = False
            found = self._failed(f"no end within {time_limit_s:g} s")
        if found is not None:
            self.case = None
        return found

    def stop(self) -> None:
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _work(pipe: Connection, run: Callable[[Any], Any]) -> None:
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        pipe.send(run(case))
