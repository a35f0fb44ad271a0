"""Choose the services of a build: processes of this machine, or an executor that the caller brings."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass

from tvm_ext.core.errors import BadOptions, MissingTool, WorkerRefused
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.services.cache import Services
from tvm_ext.services.job import Job, JobOutcome, OpenServices, result_of
from tvm_ext.services.local import TRIES, LocalServices
from tvm_ext.services.work import run

MOST_AT_ONCE = 256
"""Jobs handed over and not back yet: a search may make up its candidates while earlier ones run."""
MOST_AHEAD = 8
"""Jobs of a search handed over before it is known that they are needed."""


@dataclass(frozen=True, kw_only=True)
class ExecutorServices:
    """Jobs through an executor; those that it loses, with a worker or with itself, are done on this machine.

    A job cannot be ended there: limits of time are for `local` alone.
    """

    executor: Executor
    local: LocalServices

    def outcomes(self, jobs: Iterable[Job]) -> Generator[tuple[int, JobOutcome]]:
        """As `LocalServices.outcomes` gives them. Raises WorkerRefused for a worker with other code."""
        source, running = enumerate(jobs), dict[Future[bytes], tuple[int, Job, int]]()
        lost: list[tuple[int, Job]] = []

        def submit(index: int, job: Job, tries: int) -> None:
            try:
                future = self.executor.submit(run, job.function, *job.inputs)
            except RuntimeError:  # a broken executor, or one that was shut down
                lost.append((index, job))
            else:
                running[future] = index, job, tries

        def fill() -> None:
            while len(running) < MOST_AT_ONCE and (taken := next(source, None)) is not None:
                submit(*taken, 1)

        try:
            fill()
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    index, job, tries = running.pop(future)
                    if future.cancelled() or future.exception() is not None:
                        if tries < TRIES:
                            submit(index, job, tries + 1)
                        else:
                            lost.append((index, job))
                    else:
                        yield index, JobOutcome(result=result_of(future.result()))
                fill()
        finally:
            for future in running:
                future.cancel()
        for place, outcome in self.local.outcomes(job for _, job in lost):
            yield lost[place][0], outcome

    @contextmanager
    def opened(self) -> Generator[OpenServices]:
        """The executor for jobs one by one; those that have not begun are cancelled with this."""
        opened = _Opened(self.executor)
        try:
            yield opened
        finally:
            for future in opened.handed_over:
                future.cancel()


class _Opened:
    """An executor, which takes jobs one by one."""

    at_once = most_ahead = MOST_AHEAD

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.handed_over: list[Future[bytes]] = []

    def submit(self, job: Job) -> Future[bytes]:
        """A job's result to come, or whatever the executor raises; WorkerRefused for a worker with other code."""
        try:
            answer = self.executor.submit(run, job.function, *job.inputs)
        except RuntimeError as error:  # a broken executor, or one that was shut down
            answer = Future[bytes]()
            answer.set_exception(error)
        future = _Result(answer)
        self.handed_over.append(future)
        return future


class _Result(Future[bytes]):
    """The result of an answer to come, which is cancelled with it."""

    def __init__(self, answer: Future[bytes]) -> None:
        super().__init__()
        self._answer = answer
        answer.add_done_callback(self._settle)

    def cancel(self) -> bool:
        """Cancel the answer; False where a worker has begun it."""
        return self._answer.cancel() and super().cancel()

    def _settle(self, answer: Future[bytes]) -> None:
        if answer.cancelled():
            super().cancel()
            self.set_running_or_notify_cancel()
        elif error := answer.exception():
            self.set_exception(error)
        else:
            try:
                self.set_result(result_of(answer.result()))
            except WorkerRefused as refusal:
                self.set_exception(refusal)


@contextmanager
def cluster(scheduler: str, local: LocalServices) -> Iterator[ExecutorServices]:
    """Services of a cluster of dask.distributed, whose workers have this tvm_ext with the same libraries.

    scheduler: its address, as in `tcp://host:8786`. Raises MissingTool where the extra is not installed, or nothing
    answers at the address.
    """
    try:
        from distributed import Client  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingTool(
            "dask.distributed is not installed; it comes with the extra: pip install 'tvm-ext[distributed]'."
        ) from None
    try:
        client = Client(scheduler, timeout="20s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise MissingTool(f"{scheduler}: no scheduler of dask.distributed answers: {error}.") from None
    with client:
        yield ExecutorServices(executor=client.get_executor(pure=False), local=local)


def check_services(jobs: int, executor: Executor | None, scheduler: str | None) -> None:
    """Raises BadOptions for a choice that is none."""
    if executor is not None and scheduler is not None:
        raise BadOptions("executor and scheduler: only one of them can do the jobs.")
    if jobs < 1:
        raise BadOptions(f"jobs = {jobs!r}: a number of processes is needed, 1 or more.")


@contextmanager
def chosen_services(
    jobs: int, executor: Executor | None, scheduler: str | None, limits: ChildLimits
) -> Iterator[Services]:
    """Processes of this machine, or what was given. limits: of a process. Raises MissingTool, as `cluster` does."""
    local = LocalServices(jobs=jobs, limits=limits)
    if scheduler is not None:
        with cluster(scheduler, local) as services:
            yield services
    else:
        yield local if executor is None else ExecutorServices(executor=executor, local=local)


@contextmanager
def opened_services(
    jobs: int, executor: Executor | None = None, scheduler: str | None = None
) -> Iterator[OpenServices | None]:
    """Services for jobs one by one, beside this process, which is one of `jobs`; None where there is no other.

    Raises BadOptions, MissingTool.
    """
    check_services(jobs, executor, scheduler)
    if jobs == 1 and executor is None and scheduler is None:
        yield None
        return
    with chosen_services(max(1, jobs - 1), executor, scheduler, ChildLimits()) as services, services.opened() as opened:
        yield opened
