"""Run the command line in a child process, to report crashes and interrupts, and own its standard streams.

However the work ends, nothing that it started keeps running, and no temporary file remains.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from tvm_ext.core.errors import OutOfMemory
from tvm_ext.core.files.staging import remove_stale, staged
from tvm_ext.core.memory_exhausted import is_limited, memory_message, message
from tvm_ext.core.printable import json_text
from tvm_ext.core.processes.system import ENDING, IS_LINUX

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CRASHES = ("SIGABRT", "SIGSEGV", "SIGBUS")
"""Signals by which C++ ends without memory: an uncaught std::bad_alloc, a null pointer."""
_CLEAR_LINE_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"


def supervised(work: Callable[[], None]) -> None:
    """Run `work` and exit with its status, or with 128 + n where signal n requests the end.

    A crash of the work gives exit status 1 with a line on standard error, and with --json a value on standard output.
    """
    if (refusal := open_streams()) is not None:
        _say(refusal)
        sys.exit(1)
    if not IS_LINUX:
        sys.exit(_unsupervised(work))
    ending = {number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, {*ending, signal.SIGCHLD})
    try:
        with staged(Path(tempfile.gettempdir())) as temporary:
            status = _run_below(work, temporary, ending)
    except OSError as error:
        _say(f"no folder for temporary files is usable: {error.strerror or error}. Set TMPDIR to a writable folder.")
        status = 1
    sys.exit(status)


def _unsupervised(work: Callable[[], None]) -> int:
    """Return the exit status of the work in this process, on systems that cannot supervise another process."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    try:
        return _status_of(work)
    except KeyboardInterrupt:
        _say("interrupted.")
        return 128 + signal.SIGINT


def _run_below(work: Callable[[], None], temporary: Path, ending: Collection[signal.Signals]) -> int:
    """Return the exit status of the work in a separate process, with its temporary files in `temporary`."""
    supervisor = os.getpid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # processes that the work leaves running become children of this process
    child = os.fork()
    if child:
        return _watch(child, ending)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    for number in ending:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*ENDING, signal.SIGCHLD})
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    os._exit(_status_of(work))


def _status_of(work: Callable[[], None]) -> int:
    own_output()
    lost = None
    try:
        work()
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    except OutputLost as error:
        lost, status = error, 1
    except KeyboardInterrupt:
        raise  # only a process without supervisor receives the signal
    except BaseException as error:
        exhausted = memory_message(error)
        if exhausted is None:
            traceback.print_exc()
        else:
            _fail(OutOfMemory.__name__, exhausted)
        status = 1
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # the reader of the output has seen enough
    except OutputLost as error:
        lost = error
    if lost is not None:
        _say(f"standard output cannot be written: {lost}.")
        return status or 1
    return status


def _watch(child: int, ending: Collection[signal.Signals]) -> int:
    """Return the exit status for a child that ends, or for a signal that requests the end of this process."""
    while True:
        number = signal.sigwait({*ending, signal.SIGCHLD})
        if number != signal.SIGCHLD:
            _interrupt(child)
            _say("interrupted." if number == signal.SIGINT else f"ended by {signal.Signals(number).name}.")
            return 128 + number
        for pid, status in _reaped():
            if pid == child:
                _end_children()
                return _exit_status(os.waitstatus_to_exitcode(status))


def _reaped() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def _exit_status(code: int) -> int:
    if code >= 0:
        return code
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    if name == "SIGKILL":
        kind, reason = OutOfMemory.__name__, "the system ends programs with this signal if its memory is exhausted"
    elif is_limited() and name in _CRASHES:
        kind, reason = OutOfMemory.__name__, message("a library ended the process")
    else:
        kind, reason = "InternalError", "a defect of tvm-ext, or of a library that it uses"
    _fail(kind, f"ended by {name} ({reason.rstrip('.')}); the output folder is as it was.")
    return 1


def _fail(kind: str, reason: str) -> None:
    _say(f"{kind}: {reason}")
    if "--json" in sys.argv:
        with suppress(OSError):
            sys.stdout.write(json_text({"error": {"kind": kind, "message": reason}}) + "\n")
            sys.stdout.flush()


def _interrupt(child: int) -> None:
    """End the work at once, and remove its unfinished files."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
    folders = _open_folders(child)
    _end_children()
    for folder in folders:
        remove_stale(folder)


def _open_folders(pid: int) -> set[Path]:
    """Return the folders that a process holds open, among them the parents of its staging folders."""
    found: set[Path] = set()
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                path = Path(os.readlink(entry.path))
                if path.is_dir():
                    found.add(path)
    return found


def _end_children() -> None:
    """Kill children until none are left, because the children of a killed process become children of this process."""
    with suppress(ChildProcessError):
        while True:
            for pid in _children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _children() -> list[int]:
    own, found = str(os.getpid()), list[int]()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                text = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace")
                if text.rpartition(")")[2].split()[1] == own:
                    found.append(int(entry.name))
    return found


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _say(message: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"{_CLEAR_LINE_SHOW_CURSOR if sys.stderr.isatty() else ''}tvm-ext: {message}\n")
        sys.stderr.flush()


_NEEDED = "results are written there; give it a file, or /dev/null"


class OutputLost(Exception):
    """Standard output cannot be written. The text says why."""


class _Output(io.TextIOWrapper):
    """Standard output whose failures can be told from failures of other files."""

    def write(self, s: str, /) -> int:
        try:
            return super().write(s)
        except BrokenPipeError:
            raise  # the reader has seen enough
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
    """Open on /dev/null what the caller closed.

    Return why nothing can be done without standard output, or None.
    """
    closed = [number for number in (0, 1, 2) if _is_closed(number)]
    for number in closed:  # the system opens the lowest free number
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
    """Replace standard output by a stream that raises OutputLost where it cannot be written."""
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
