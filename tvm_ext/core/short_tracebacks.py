"""Shorten the tracebacks of our own errors to the function that the caller called, and the line that raised.

The frames between belong to passes, TVM and helpers, and tell nothing that the message does not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from tvm_ext.core.errors import PlanRejected, TvmExtError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_KEEPS_ALL = ContextVar("keeps all frames of tracebacks", default=False)


@contextmanager
def full_tracebacks() -> Generator[None]:
    """Keep all frames of the errors that are raised in the block."""
    token = _KEEPS_ALL.set(True)
    try:
        yield
    finally:
        _KEEPS_ALL.reset(token)


def short_tracebacks(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a public function so that our errors keep only the frame that raised them.

    An explicit cause stays, an error that was merely being handled does not. A rejected plan is a defect and keeps all
    frames.
    """

    @wraps(function)
    def short(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        try:
            return function(*arguments, **keywords)
        except PlanRejected:
            raise
        except TvmExtError as error:
            if _KEEPS_ALL.get():
                raise
            raise error.with_traceback(_last(error.__traceback__)) from error.__cause__

    return short


def _last(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace
