"""Hide warnings that TVM's C++ code prints on standard error, which name lines of TVM's own source.

C++ writes to descriptor 2 directly, past Python's filters and streams. Meanwhile the descriptor leads into a filter
process, which passes on every line except lines in the form of TVM's log. It is a separate process, so that the last
words of a crash still arrive. Python's own stream keeps the terminal, so that spinners and colours work as usual.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import FileIO, TextIOWrapper

STDERR = 2
_LOG_LINE = r"^\[[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\] [^ ]*\.(cc|cpp|h|hpp):[0-9]+: Warning: "
"""Start of a warning in TVM's log: time, source file, line."""
_END_S = 2.0
"""Seconds that the filter has to pass on the last lines. A child that is still running may hold its input open."""


class _Holders:
    """Number of open contexts in all threads. The first context redirects, and the last one restores."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.redirection: _Redirection | None = None


_HOLDERS = _Holders()


@contextmanager
def native_warnings_dropped() -> Generator[None]:
    """Drop TVM's warnings from standard error until the end, from all threads and child processes.

    Errors, and all lines in another form, arrive. Where there is no `grep`, no standard error, or no process can be
    started, nothing is dropped.
    """
    with _HOLDERS.lock:
        _HOLDERS.count += 1
        if _HOLDERS.count == 1:
            _HOLDERS.redirection = _redirection()
    try:
        yield
    finally:
        with _HOLDERS.lock:
            _HOLDERS.count -= 1
            if _HOLDERS.count == 0 and _HOLDERS.redirection is not None:
                _HOLDERS.redirection.end()
                _HOLDERS.redirection = None


class _Redirection:
    """Descriptor 2 led into a filter. `terminal` is its former target."""

    def __init__(self, terminal: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        self._terminal, self._process = terminal, process
        self._stream = _stream_on(STDERR)
        if self._stream is not None:
            _lead(self._stream, terminal)
        os.dup2(process.stdin.fileno(), STDERR)
        process.stdin.close()

    def end(self) -> None:
        """Restore the descriptor, and wait until the filter has passed on what it holds."""
        os.dup2(self._terminal, STDERR)
        if self._stream is not None:
            _lead(self._stream, STDERR)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        os.close(self._terminal)


def _redirection() -> _Redirection | None:
    filter_program = shutil.which("grep")
    if filter_program is None:
        return None
    try:
        terminal = os.dup(STDERR)
    except OSError:
        return None
    try:
        process = subprocess.Popen(
            [filter_program, "--line-buffered", "--text", "-v", "-E", _LOG_LINE],
            stdin=subprocess.PIPE, stdout=terminal, stderr=subprocess.DEVNULL, start_new_session=True,
            env={"LC_ALL": "C"},
        )  # fmt: skip
    except OSError:
        os.close(terminal)
        return None
    return _Redirection(terminal, process)


def _stream_on(descriptor: int) -> TextIOWrapper | None:
    """Return Python's standard error where it writes to a descriptor itself; other streams stay as they are."""
    stream = sys.__stderr__
    if not isinstance(stream, TextIOWrapper):
        return None
    raw = _raw(stream)
    try:
        return stream if raw is not None and raw.fileno() == descriptor else None
    except (ValueError, OSError):  # closed
        return None


def _raw(stream: TextIOWrapper) -> FileIO | None:
    """Return the file below a stream and its buffer; None where the stream was detached."""
    try:
        raw: object = getattr(stream.buffer, "raw", stream.buffer)  # unbuffered, the file itself
    except ValueError:
        return None
    return raw if isinstance(raw, FileIO) else None


def _lead(stream: TextIOWrapper, descriptor: int) -> None:
    """Let a stream write to another descriptor from here on: a FileIO that is initialised again stays what it is."""
    with suppress(ValueError, OSError):
        stream.flush()
    raw = _raw(stream)
    if raw is not None:
        FileIO.__init__(raw, descriptor, "wb", closefd=False)
