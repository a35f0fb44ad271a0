"""Stages of a long call, as its caller wants to be told of them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Progress = Callable[[str], object]
"""Called with the name of a stage that begins. Where it gives a context manager, that is entered then, and left when
the stage ends or fails. Stages may overlap, in threads of their own."""


@contextmanager
def stage(progress: Progress | None, name: str) -> Generator[None]:
    """Tell of a stage that lasts as long as the block."""
    told = progress(name) if progress else None
    with told if isinstance(told, AbstractContextManager) else nullcontext():
        yield


def named(progress: Progress | None, model: str) -> Progress | None:
    """The same for one model of several: its name stands before each stage's."""
    return (lambda name: progress(f"{model}: {name}")) if progress else None
