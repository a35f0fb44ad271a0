"""Services on this machine: child processes with limits, each of which runs a job at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tvm_ext.core.errors import ChildExpired, ChildFailed, ChildLost
from tvm_ext.core.processes.child import Child, ChildLimits
from tvm_ext.services.contents import NamedInputs
from tvm_ext.services.job import Job, JobOutcome, OpenServices, result_of

TRIES = 3
"""Number of attempts for a job whose process was killed: the cause may be the job, or something else on the machine."""

MOST_AHEAD = 64
"""Limit of speculative jobs that wait for a process. Waiting jobs cost nothing."""

START_S = 4.0
"""Seconds of CPU in which a process starts, imports TVM and reads a model of a hundred layers."""

_WORK = "tvm_ext.services.work"


@dataclass(frozen=True, kw_only=True)
class LocalServices:
    """Parallel child processes. limits: of each process; seconds are per job. entry: function of `work` to call."""

    jobs: int = 1
    limits: ChildLimits = field(default_factory=ChildLimits)
    entry: str = "run_alone"

    def outcomes(self, jobs: Iterable[Job | JobOutcome]) -> Generator[tuple[int, JobOutcome]]:
        """Yield (index, outcome) of each job when it is ready. The next job is taken when a process is free.

        An outcome among the jobs is yielded without a process. Raises the errors of the iterable, and WorkerRefused.
        Closing the generator stops the processes.
        """
        source, ended = _Source(jobs), _Ended(_MOST_ENDED)
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
            while any(thread.is_alive() for thread in threads):  # a thread may wait for space in the queue
                with suppress(queue.Empty):
                    ended.get(timeout=0.01)
            for thread in threads:
                thread.join()

    @contextmanager
    def opened(self) -> Generator[OpenServices]:
        """Yield the processes for single jobs. At the end they are stopped, even while they run a job."""
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
    """A child process that runs jobs; a lost process is replaced."""

    def __init__(self, limits: ChildLimits, entry: str) -> None:
        self._limits, self._entry = limits, entry
        self._child: Child | None = None
        self._stopped = False

    def outcome(self, job: Job) -> JobOutcome:
        """Return the outcome of a job. If its process is lost, the job is tried again in a new process."""
        lost = ""
        for _ in range(TRIES):
            if self._stopped:
                break
            self._child = self._child or Child(_WORK, limits=self._limits, trusted=True)
            named = NamedInputs(job.inputs)
            try:
                answer = self._child.call(self._entry, job.function, *named.sent, ask=named.asked)
                return JobOutcome(result=result_of(answer))
            except ChildExpired as error:
                self.close()
                return JobOutcome(result=None, kind="ChildExpired", problem=str(error))
            except ChildLost as error:
                self.close()
                lost = str(error)
            except ChildFailed as error:
                return JobOutcome(result=None, kind="ChildFailed", problem=str(error))
        return JobOutcome(
            result=None, kind="ChildLost", problem=f"{TRIES} processes ended during this job; the last one: {lost}"
        )

    def stop(self) -> None:
        """Stop the current job, from another thread."""
        self._stopped = True
        if (child := self._child) is not None:
            child.kill()

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()


class _Opened:
    """Services for single jobs: each job goes to a free process."""

    most_ahead = MOST_AHEAD
    start_s = START_S

    def __init__(self, services: list[_Service], threads: ThreadPoolExecutor) -> None:
        self.at_once = len(services)
        self._threads, self._free = threads, queue.SimpleQueue[_Service]()
        for service in services:
            self._free.put(service)

    def submit(self, job: Job) -> Future[bytes]:
        """Return the future of a job. It raises ChildFailed if the job fails, and WorkerRefused."""
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


_Ended = queue.Queue[tuple[int, JobOutcome] | BaseException | None]
_MOST_ENDED = 256
"""Limit of outcomes that wait to be yielded. Outcomes that are known already come faster than they are used."""


class _Source:
    """Thread-safe iterator of jobs with their indices."""

    def __init__(self, jobs: Iterable[Job | JobOutcome]) -> None:
        self._jobs, self._lock = enumerate(jobs), threading.Lock()
        self._stopped = False

    def take(self) -> tuple[int, Job | JobOutcome] | None:
        with self._lock:
            return None if self._stopped else next(self._jobs, None)

    def stop(self) -> None:
        self._stopped = True


def _serve(service: _Service, source: _Source, ended: _Ended) -> None:
    """Run jobs of the source until it is empty. Put outcomes and errors into the queue, and at last None."""
    try:
        while (taken := source.take()) is not None:
            index, job = taken
            ended.put((index, job if isinstance(job, JobOutcome) else service.outcome(job)))
    except BaseException as error:
        ended.put(error)
    finally:
        service.close()
        ended.put(None)
