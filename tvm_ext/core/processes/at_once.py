"""Run work that waits for other programs, at once in threads or one after another."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from threading import Semaphore
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_TURNS = ContextVar[Semaphore | None]("_TURNS", default=None)


@contextmanager
def at_once(jobs: int | None) -> Generator[Executor]:
    """Yield an executor for so many calls at once; None for as many as there are processors.

    Programs take turns in the same number. With a single job, each call runs when it is submitted, so that an interrupt
    ends it too. Where an error ends the block, calls that have not started are cancelled.
    """
    jobs = jobs or os.cpu_count() or 1
    before = _TURNS.set(Semaphore(jobs))
    threads = _Here() if jobs == 1 else _Threads(jobs)
    try:
        yield threads
    finally:
        threads.shutdown(cancel_futures=True)
        _TURNS.reset(before)


def turns() -> AbstractContextManager[object]:
    """Return a context in which a program of this thread takes its turn. Outside `at_once` there is no limit."""
    return _TURNS.get() or nullcontext()


class _Threads(ThreadPoolExecutor):
    """Threads that continue in the context of the submitter."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(copy_context().run, fn, *args, **kwargs)


class _Here(Executor):
    """Runs calls when they are submitted. Errors are raised at once."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = Future[T]()
        future.set_result(fn(*args, **kwargs))
        return future
