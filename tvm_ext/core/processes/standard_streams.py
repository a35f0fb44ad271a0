"""Standard input, output and error of the command line: open, whatever the caller closed, and honest about writing.

A closed descriptor is a danger beyond its traceback: the next file that opens would take its number, and what is
printed would be written into that file.
"""

from __future__ import annotations

import errno
import io
import os
import sys

_NEEDED = "results are written there; give it a file, or /dev/null"


class OutputLost(Exception):
    """Standard output cannot be written; the text says why."""


class _Output(io.TextIOWrapper):
    """Standard output whose failures are told apart from those of other files."""

    def write(self, s: str, /) -> int:
        try:
            return super().write(s)
        except BrokenPipeError:
            raise  # who read it has seen enough
        except OSError as error:
            raise OutputLost(error.strerror or str(error)) from None

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(error.strerror or str(error)) from None


def open_streams() -> str | None:
    """Open on /dev/null what the caller closed. Returns why nothing can be done without standard output, else None."""
    closed = [number for number in (0, 1, 2) if _is_closed(number)]
    for number in closed:  # the lowest free number is the one that is opened
        opened = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        assert opened == number, "descriptors are opened from below"
        os.set_inheritable(opened, True)
    if 0 in closed:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "rb", closefd=False)), encoding="utf-8")
    if 2 in closed:
        sys.stderr = _writer(2)
    if 1 in closed:
        sys.stdout = _writer(1)
        return f"standard output is closed: {_NEEDED}."
    return None


def own_output() -> None:
    """Put a stream in place of standard output that raises OutputLost where it cannot be written."""
    raw = io.BufferedWriter(io.FileIO(1, "wb", closefd=False))
    sys.stdout.flush()
    is_terminal = sys.stdout.isatty()
    sys.stdout = _Output(
        raw, encoding=sys.stdout.encoding, errors="backslashreplace", line_buffering=is_terminal, write_through=False
    )


def _writer(number: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(io.FileIO(number, "wb", closefd=False)), encoding="utf-8")


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError as error:
        return error.errno == errno.EBADF
    return False
