"""Choose the services of a build: local processes, an executor of the caller, or a dask.distributed cluster."""

from __future__ import annotations

import hashlib
import warnings
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass

from tvm_ext.core.errors import BadOptions, MissingTool, WorkerRefused
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.services.cache import Services
from tvm_ext.services.contents import LEAST_BYTES
from tvm_ext.services.job import Job, JobOutcome, OpenServices, result_of
from tvm_ext.services.local import TRIES, LocalServices
from tvm_ext.services.work import run

MOST_AT_ONCE = 256
"""Limit of submitted jobs without a result. An iterator of jobs is read lazily, so a search may create them late."""
MOST_HELD = 16
"""Limit of large inputs that workers of a cluster keep. Those of submitted jobs are kept as long as the jobs."""
MOST_AHEAD = 8
"""Limit of speculative jobs of a search, submitted before they are known to be needed."""


@dataclass(frozen=True, kw_only=True)
class ExecutorServices:
    """Services of an executor. Jobs that it loses, because a worker or the executor failed, run on this machine.

    A job of an executor cannot be stopped, so time limits only apply to `local`.
    hand_over: returns what an executor's function takes in place of an input, such as a reference to data on workers.
    """

    executor: Executor
    local: LocalServices
    hand_over: Callable[[bytes], object] = lambda content: content

    def outcomes(self, jobs: Iterable[Job | JobOutcome]) -> Generator[tuple[int, JobOutcome]]:
        """Yield (index, outcome) of jobs, like `LocalServices.outcomes`. Raises WorkerRefused for different code."""
        source, running = enumerate(jobs), dict[Future[bytes], tuple[int, Job, int]]()
        lost: list[tuple[int, Job]] = []

        def submit(index: int, job: Job, tries: int) -> None:
            try:
                # A repeated job brings its inputs along: the worker that held them may be the lost one.
                inputs = map(self.hand_over, job.inputs) if tries == 1 else job.inputs
                future = self.executor.submit(run, job.function, *inputs)
            except RuntimeError:  # a broken executor, or one that was shut down
                lost.append((index, job))
            else:
                running[future] = index, job, tries

        def fill() -> Iterator[tuple[int, JobOutcome]]:
            """Submit jobs up to the limit, and yield outcomes that are known already."""
            while len(running) < MOST_AT_ONCE and (taken := next(source, None)) is not None:
                index, job = taken
                if isinstance(job, JobOutcome):
                    yield index, job
                else:
                    submit(index, job, 1)

        try:
            yield from fill()
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
                yield from fill()
        finally:
            for future in running:
                future.cancel()
        for place, outcome in self.local.outcomes(job for _, job in lost):
            yield lost[place][0], outcome

    @contextmanager
    def opened(self) -> Generator[OpenServices]:
        """Yield the executor for single jobs. At the end, jobs that have not begun are cancelled."""
        opened = _Opened(self.executor)
        try:
            yield opened
        finally:
            for future in opened.handed_over:
                future.cancel()


class _Opened:
    """An executor that accepts single jobs."""

    at_once = most_ahead = MOST_AHEAD
    start_s = 0.0

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.handed_over: list[Future[bytes]] = []

    def submit(self, job: Job) -> Future[bytes]:
        """Return the future of a job. It raises the executor's errors, and WorkerRefused for different code."""
        try:
            answer = self.executor.submit(run, job.function, *job.inputs)
        except RuntimeError as error:  # a broken executor, or one that was shut down
            answer = Future[bytes]()
            answer.set_exception(error)
        future = _Result(answer)
        self.handed_over.append(future)
        return future


class _Result(Future[bytes]):
    """Future of a job's result, made from the future of a worker's answer. Cancelling it cancels the answer."""

    def __init__(self, answer: Future[bytes]) -> None:
        super().__init__()
        self._answer = answer
        answer.add_done_callback(self._settle)

    def cancel(self) -> bool:
        """Cancel the answer. Return False if a worker has begun the job."""
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
    """Yield the services of a dask.distributed cluster, whose workers need the same tvm_ext with the same libraries.

    scheduler: address of the cluster, such as `tcp://host:8786`. Raises MissingTool if dask.distributed is not
    installed, or no scheduler answers at the address.
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
        raise MissingTool(
            f"{scheduler}: no scheduler of dask.distributed answers: {error}. Check the address and the scheduler."
        ) from None
    with client:
        held = OrderedDict[bytes, object]()

        def hand_over(content: bytes) -> object:
            """Return a reference to a large input, which each worker receives once."""
            if len(content) < LEAST_BYTES:
                return content
            if content not in held:
                # A task, which the scheduler repeats if the workers with its result are lost. Scattered data would be
                # lost with them, and the jobs that wait for it would never end.
                name = f"tvm_ext-{hashlib.sha256(content).hexdigest()}"
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # dask asks to scatter inputs above 10 MB
                    held[content] = client.submit(bytes, content, key=name)
            held.move_to_end(content)
            while len(held) > MOST_HELD:
                held.popitem(last=False)
            return held[content]

        yield ExecutorServices(executor=client.get_executor(pure=False), local=local, hand_over=hand_over)


def check_services(jobs: int, executor: Executor | None, scheduler: str | None) -> None:
    """Raise BadOptions for an invalid choice of services."""
    if executor is not None and scheduler is not None:
        raise BadOptions("executor and scheduler: only one of them can run the jobs; leave the other out.")
    if jobs < 1:
        raise BadOptions(f"jobs = {jobs!r}: give a number of processes, 1 or more.")


@contextmanager
def chosen_services(
    jobs: int, executor: Executor | None, scheduler: str | None, limits: ChildLimits
) -> Iterator[Services]:
    """Yield local processes, or the services of the executor or cluster. limits: of a process. Raises MissingTool."""
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
    """Yield services for single jobs in addition to this process, which counts as one of `jobs`; None without any.

    Raises BadOptions, MissingTool.
    """
    check_services(jobs, executor, scheduler)
    if jobs == 1 and executor is None and scheduler is None:
        yield None
        return
    with chosen_services(max(1, jobs - 1), executor, scheduler, ChildLimits()) as services, services.opened() as opened:
        yield opened
