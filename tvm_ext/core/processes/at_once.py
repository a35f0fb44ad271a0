"""Work that waits for other programs: at once in threads, or one after the other."""

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
    """So many at once, None: as many as there are processors; programs that take turns in them, too.

    One at a time is done when it is handed over, where an interrupt ends it too. What has not begun is cancelled where
    an error ends this.
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
    """Turns of this thread's work: a program runs inside. Elsewhere they may be taken by all at once."""
    return _TURNS.get() or nullcontext()


class _Threads(ThreadPoolExecutor):
    """Threads that go on in the context of who hands something over."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(copy_context().run, fn, *args, **kwargs)


class _Here(Executor):
    """Calls what is submitted; its errors are raised at once."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = Future[T]()
        future.set_result(fn(*args, **kwargs))
        return future
