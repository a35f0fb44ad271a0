"""Stages of a long command on standard error: each that ended with a tick and its seconds, below them what runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from tvm_ext.command_line.show import stderr
from tvm_ext.core.memory_exhausted import is_limited
from tvm_ext.core.printable import printable_lines
from tvm_ext.report.cells import escape

if TYPE_CHECKING:
    from rich.progress import Progress

ShowStage = Callable[[str], AbstractContextManager[None]]


@contextmanager
def stages_shown(quiet: bool) -> Generator[ShowStage]:
    """A function that shows a stage for as long as the context that it gives; nothing where the command is quiet.

    On a terminal stages that run stand below, with the time that they take so far; in a pipe a line comes as each ends.
    """
    if quiet or not moves():
        yield _silent if quiet else _line
        return
    with _bar() as bar:

        @contextmanager
        def shown(name: str) -> Generator[None]:
            task = bar.add_task(escape(name), total=None)
            try:
                with _line(name):
                    yield
            finally:
                bar.remove_task(task)

        yield shown


@contextmanager
def waiting(name: str) -> Generator[None]:
    """What a command does that has one stage only: shown on a terminal while it lasts, with the time that it takes."""
    if not moves():
        yield
        return
    with _bar() as bar:
        bar.add_task(escape(name), total=None)
        yield


def _bar() -> Progress:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # no command waits for it in vain

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    return Progress(*columns, console=stderr, transient=True)


def moves() -> bool:
    """True where lines may change while time passes: on a terminal, by a thread, which may hang Python for good where
    it gets no memory under a limit of the process (CPython 3.11 looks for the handler of that error again and again).
    """
    return stderr.is_terminal and not is_limited()


@contextmanager
def _silent(_: str) -> Generator[None]:
    yield


@contextmanager
def _line(name: str) -> Generator[None]:
    """A line when the stage ends: whether it was done, its name, its seconds."""
    begin, sign = time.monotonic(), _letter("\N{BALLOT X}", "failed")
    try:
        yield
        sign = _letter("\N{CHECK MARK}", "done")
    finally:
        text = printable_lines(f"{sign} {name}, {time.monotonic() - begin:.1f} s")
        stderr.print(text, highlight=False, markup=False, soft_wrap=True)


def _letter(letter: str, word: str) -> str:
    """The letter, or a word for it where standard error cannot write it."""
    try:
        letter.encode(stderr.encoding)
    except UnicodeEncodeError:
        return word
    return letter
