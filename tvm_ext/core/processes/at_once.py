"""Work that waits for other programs: at once in threads, or one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def at_once(jobs: int) -> Generator[Executor]:
    """So many at once. One at a time is done when it is handed over, where an interrupt ends it too.

    What has not begun is cancelled where an error ends this.
    """
    if jobs == 1:
        yield _Here()
        return
    threads = ThreadPoolExecutor(jobs)
    try:
        yield threads
    finally:
        threads.shutdown(cancel_futures=True)


class _Here(Executor):
    """Calls what is submitted; its errors are raised at once."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = Future[T]()
        future.set_result(fn(*args, **kwargs))
        return future
