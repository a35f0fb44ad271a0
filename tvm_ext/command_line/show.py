"""Results as tables or JSON on standard output; stages, warnings and errors on standard error."""

from __future__ import annotations

import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tvm_ext.core.errors import BadOptions, DefectNotice, OutOfMemory, SystemNotice, TvmExtError
from tvm_ext.core.memory_exhausted import is_limited, memory_message
from tvm_ext.core.printable import json_text, printable_lines
from tvm_ext.core.processes.supervise import OutputLost
from tvm_ext.core.short_tracebacks import full_tracebacks
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.report.cells import escape

if TYPE_CHECKING:
    from rich.progress import Progress


class SafeConsole(Console):
    """A console that shows escapes in place of characters that control a terminal: all tables and messages pass it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)


# Files and pipes get lines long enough for the table of steps, or as COLUMNS says.
stdout = SafeConsole(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 140)
stderr = SafeConsole(stderr=True)

_INTERNAL = "InternalError"
"""Kind of an error that nobody raised on purpose."""


def show_report(report: dict[str, Any], as_json: bool) -> None:
    """A package's report, as its tables or as it is."""
    if as_json:
        print_json(report)
        return
    from tvm_ext.report.tables import report_tables  # the other commands do not wait for it

    for table in report_tables(report):
        stdout.print(table)


def show_end(folder: Path, report: dict[str, Any], seconds: float) -> None:
    """Lines that end a build: where the package is, its bytes, what verified it, and commands that come next."""
    from tvm_ext.report.summary import summary_line

    lines = [
        summary_line(report),
        f"Package: {folder}, in {seconds:.1f} s. Read {folder}/README.md, or go on with",
        f"  tvm-ext report {folder} --html     a page with pictures",
        f"  make -C {folder} run               the self-test",
    ]
    for line in lines:
        stdout.print(printable_lines(line), highlight=False, markup=False, soft_wrap=True)


def print_json(value: object) -> None:
    """One JSON value on stdout, which every parser reads."""
    sys.stdout.write(json_text(value) + "\n")


def _show_notice(message: Warning | str, *_: object, **__: object) -> None:
    stderr.print(printable_lines(f"notice: {message}"), style="yellow", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def errors_shown(as_json: bool, debug: bool) -> Generator[None]:
    """Turn errors into a message on stderr and an exit status; with --json also into `{"error": ...}` on stdout.

    Notices about the model go to stderr as one line each; warnings of the libraries underneath only with --debug.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default" if debug else "ignore")
            for category in (ModelNotice, DefectNotice, SystemNotice):
                warnings.simplefilter("always", category)
            warnings.showwarning = _show_notice
            with full_tracebacks() if debug else nullcontext():
                yield
    except (BrokenPipeError, OutputLost):
        raise  # who read standard output has seen enough, or cannot be reached
    except TvmExtError as error:
        trace, kind, message = traceback.format_exc(), type(error).__name__, str(error)
        status = 2 if isinstance(error, BadOptions) else 1
    except Exception as error:
        trace, status, exhausted = traceback.format_exc(), 1, memory_message(error)
        kind = _INTERNAL if exhausted is None else OutOfMemory.__name__
        defect = printable_lines(f"{type(error).__name__}: {error}") + " (a defect of tvm-ext; --debug shows where)"
        message = exhausted or defect
    else:
        return
    if debug:
        stderr.print(trace, highlight=False, markup=False, soft_wrap=True)
    stderr.print(f"{kind}: {message}", style="red", highlight=False, markup=False, soft_wrap=True)
    if kind != _INTERNAL:
        stderr.print(f"More: tvm-ext explain {kind}", style="dim", highlight=False, markup=False)
    if as_json:
        print_json({"error": {"kind": kind, "message": message}})
    raise typer.Exit(status)


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
