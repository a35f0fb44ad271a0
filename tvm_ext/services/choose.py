"""The services that a caller chose: processes of this machine, an executor, or a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from tvm_ext.core.errors import BadOptions
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.services.cache import Services
from tvm_ext.services.executors import ExecutorServices, cluster
from tvm_ext.services.job import OpenServices
from tvm_ext.services.local import LocalServices


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
