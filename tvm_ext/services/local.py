"""Services on this machine: processes with limits, each of which does one job after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from tvm_ext.core.errors import ChildExpired, ChildFailed, ChildLost
from tvm_ext.core.processes.child import Child, ChildLimits
from tvm_ext.services.job import Job, JobOutcome, OpenServices

TRIES = 3
"""Processes that a job may cost: what ends one may be the job, or somebody else."""

MOST_AHEAD = 64
"""Jobs that may wait for a process: they cost nothing."""

_WORK = "tvm_ext.services.work"


@dataclass(frozen=True, kw_only=True)
class LocalServices:
    """So many processes at once. limits: of each, its seconds for one job. entry: function of `work` that does one."""

    jobs: int = 1
    limits: ChildLimits = field(default_factory=ChildLimits)
    entry: str = "run_alone"

    def outcomes(self, jobs: Iterable[Job]) -> Generator[tuple[int, JobOutcome]]:
        """(index of a job, its outcome), as they come; jobs are taken when a process is free.

        What the iterable raises is raised here. Whoever stops listening ends the processes.
        """
        source, ended = _Source(jobs), _Ended()
        services = [_Service(self.limits, self.entry) for _ in range(max(1, self.jobs))]
        threads = [threading.Thread(target=_serve, args=(one, source, ended), daemon=True) for one in services]
        for thread in threads:
            thread.start()
        left = len(threads)
        try:
            while left:
                one = ended.get()
                if isinstance(one, BaseException):
                    raise one
                if one is None:
                    left -= 1
                else:
                    yield one
        finally:
            source.stop()
            for service in services:
                service.stop()
            for thread in threads:
                thread.join()

    @contextmanager
    def opened(self) -> Generator[OpenServices]:
        """The processes for jobs one by one; they end with this, in the middle of what they do."""
        services = [_Service(self.limits, self.entry) for _ in range(max(1, self.jobs))]
        threads = ThreadPoolExecutor(len(services))
        try:
            yield _Opened(services, threads)
        finally:
            for service in services:
                service.stop()
            threads.shutdown(cancel_futures=True)
            for service in services:
                service.close()


class _Service:
    """One process that does jobs, a new one where it is gone."""

    def __init__(self, limits: ChildLimits, entry: str) -> None:
        self._limits, self._entry = limits, entry
        self._child: Child | None = None
        self._stopped = False

    def outcome(self, job: Job) -> JobOutcome:
        """A job's outcome, tried again where its process is lost."""
        lost = ""
        for _ in range(TRIES):
            if self._stopped:
                break
            self._child = self._child or Child(_WORK, limits=self._limits, trusted=True)
            try:
                return JobOutcome(result=self._child.call(self._entry, job.function, *job.inputs))
            except ChildExpired as error:
                self.close()
                return JobOutcome(result=None, kind="ChildExpired", problem=str(error))
            except ChildLost as error:
                self.close()
                lost = str(error)
            except ChildFailed as error:
                return JobOutcome(result=None, kind="ChildFailed", problem=str(error))
        return JobOutcome(
            result=None, kind="ChildLost", problem=f"{TRIES} processes ended with it; the last one: {lost}"
        )

    def stop(self) -> None:
        """End what it does, from another thread."""
        self._stopped = True
        if (child := self._child) is not None:
            child.kill()

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()


class _Opened:
    """Services that take turns: each job goes to one that is free."""

    most_ahead = MOST_AHEAD

    def __init__(self, services: list[_Service], threads: ThreadPoolExecutor) -> None:
        self.at_once = len(services)
        self._threads, self._free = threads, queue.SimpleQueue[_Service]()
        for service in services:
            self._free.put(service)

    def submit(self, job: Job) -> Future[bytes]:
        """A job's result to come; ChildFailed where it comes to none."""
        return self._threads.submit(self._result, job)

    def _result(self, job: Job) -> bytes:
        service = self._free.get()
        try:
            outcome = service.outcome(job)
        finally:
            self._free.put(service)
        if outcome.result is None:
            raise ChildFailed(outcome.problem)
        return outcome.result


_Ended = queue.SimpleQueue[tuple[int, JobOutcome] | BaseException | None]


class _Source:
    """Jobs with their indices, of which several threads take the next one."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs, self._lock = enumerate(jobs), threading.Lock()
        self._stopped = False

    def take(self) -> tuple[int, Job] | None:
        with self._lock:
            return None if self._stopped else next(self._jobs, None)

    def stop(self) -> None:
        self._stopped = True


def _serve(service: _Service, source: _Source, ended: _Ended) -> None:
    try:
        while (taken := source.take()) is not None:
            index, job = taken
            ended.put((index, service.outcome(job)))
    except BaseException as error:
        ended.put(error)
    finally:
        service.close()
        ended.put(None)
