"""Output of commands: results as tables or JSON on stdout; stages, warnings and errors on stderr."""

from __future__ import annotations

import os
import shlex
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
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
    """Console that escapes characters that control a terminal. Every table and message goes through it.

    Names in models are untrusted, and could otherwise move the cursor or change what the user sees.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)


# In files and pipes, lines are long enough for the table of steps; COLUMNS overrides this width.
stdout = SafeConsole(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 140)
stderr = SafeConsole(stderr=True)

_INTERNAL = "InternalError"
"""Name in messages for an error that the product did not raise itself: a defect."""


def show_report(report: dict[str, Any], as_json: bool) -> None:
    """Print a package's report as tables or as JSON."""
    if as_json:
        print_json(report)
        return
    from tvm_ext.report.tables import report_tables  # imported here so that other commands start faster

    for table in report_tables(report):
        stdout.print(table)


def show_end(folder: Path, report: dict[str, Any], seconds: float) -> None:
    """Print the last lines of a build: the package's folder, its memory, its verification, and the next commands."""
    from tvm_ext.report.summary import summary_line

    quoted = shlex.quote(str(folder))  # the commands can be copied as they stand
    target = "run" if report["artifacts"]["elf"] else "selftest"
    lines = [
        summary_line(report),
        f"Package: {folder}, in {seconds:.1f} s. Next, read {folder}/README.md, or run",
        f"  tvm-ext report {quoted} --html     for a page with pictures",
        f"  make -C {quoted} {target:<17} for the self-test",
    ]
    for line in lines:
        stdout.print(printable_lines(line), highlight=False, markup=False, soft_wrap=True)


def print_json(value: object) -> None:
    """Print a value to stdout as strict JSON."""
    sys.stdout.write(json_text(value) + "\n")


def _show_notice(message: Warning | str, *_: object, **__: object) -> None:
    stderr.print(printable_lines(f"warning: {message}"), style="yellow", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def errors_shown(as_json: bool, debug: bool) -> Generator[None]:
    """Turn errors into a message on stderr and an exit status; with --json also into `{"error": ...}` on stdout.

    Each of our own warnings is a line on stderr; warnings of libraries are shown only with --debug.
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
        raise  # the reader of standard output closed the pipe, so that no message can reach it
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


_SECONDS_PER_LINE = 30.0
"""Seconds between two lines of a sweep's progress where standard error is no terminal."""


@contextmanager
def sweep_shown(total: int) -> Generator[Callable[[int, Mapping[str, Any]], None]]:
    """Yield the `progress` of a sweep. It shows finished candidates, their rate and errors on stderr.

    A terminal shows a bar; elsewhere a line appears from time to time.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    begin = shown = time.monotonic()
    failed = 0

    def said(done: int) -> str:
        rate = done / max(time.monotonic() - begin, 1e-3)
        return f"{done:,} of {total:,} candidates, {rate:,.1f} per second, {failed:,} with errors"

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not moves()) as bar:
        task = bar.add_task(said(0), total=total)

        def show(done: int, row: Mapping[str, Any]) -> None:
            nonlocal shown, failed
            failed += bool(row.get("error"))
            bar.update(task, completed=done, description=said(done))
            if bar.disable and time.monotonic() >= shown + _SECONDS_PER_LINE:
                shown = time.monotonic()
                stderr.print(said(done), highlight=False, markup=False, soft_wrap=True)

        yield show


ShowStage = Callable[[str], AbstractContextManager[None]]


@contextmanager
def stages_shown(quiet: bool) -> Generator[ShowStage]:
    """Yield a function that returns a context in which a stage is shown as running. A quiet command shows nothing.

    On a terminal, running stages stand in the last lines with the elapsed time. In a pipe, a line is printed at the
    end of each stage.
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
    """Show a name and the elapsed time on a terminal while the context lasts, for commands with a single stage."""
    if not moves():
        yield
        return
    with _bar() as bar:
        bar.add_task(escape(name), total=None)
        yield


def _bar() -> Progress:
    # Imported here, because most commands show no progress.
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    return Progress(*columns, console=stderr, transient=True)


def moves() -> bool:
    """Return True if lines may be redrawn while a stage runs: on a terminal, in a process without a memory limit.

    A thread redraws the lines. Under a memory limit a failed allocation in a thread may hang Python for good, because
    CPython 3.11 searches for the handler of the MemoryError again and again.
    """
    return stderr.is_terminal and not is_limited()


@contextmanager
def _silent(_: str) -> Generator[None]:
    yield


@contextmanager
def _line(name: str) -> Generator[None]:
    """Print a line at the end of the stage: done or failed, its name, its seconds."""
    begin, sign = time.monotonic(), _letter("\N{BALLOT X}", "failed")
    try:
        yield
        sign = _letter("\N{CHECK MARK}", "done")
    finally:
        text = printable_lines(f"{sign} {name}, {time.monotonic() - begin:.1f} s")
        stderr.print(text, highlight=False, markup=False, soft_wrap=True)


def _letter(letter: str, word: str) -> str:
    """Return the character, or the word instead if standard error cannot encode the character."""
    try:
        letter.encode(stderr.encoding)
    except UnicodeEncodeError:
        return word
    return letter
