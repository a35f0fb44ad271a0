"""Run functions in a separate Python process with limits, where a crash or a hang becomes an error here.

This is for code that may never return: generated C loaded as a library, and other runtimes on untrusted models. The
functions are public functions of a module. The process lives, with the module's state, until it is closed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tvm_ext.core import errors
from tvm_ext.core.errors import ChildExpired, ChildFailed, ChildLost, TvmExtError
from tvm_ext.core.memory_exhausted import is_limited, message
from tvm_ext.core.processes import child_main
from tvm_ext.core.processes.confine import Rights
from tvm_ext.core.processes.fork_server import Fork, Request
from tvm_ext.core.processes.system import IS_LINUX, end_group, signal_name, warn_of_rights
from tvm_ext.core.processes.wire import Value, read_value, write_value

_TAIL_LINES = 6
_GRACE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class ChildLimits:
    """Limits of a child process.

    seconds: wall time of each call; the first call includes the start-up.
    memory_bytes: its address space, including libraries.
    file_bytes: the largest file that it may write.
    open_files: the number of files that it may hold open.
    """

    seconds: float = 300.0
    memory_bytes: int = 8 << 30
    file_bytes: int = 1 << 30
    open_files: int = 256


class Child:
    """A process that runs public functions of a module. Use it as a context manager, or call `close`.

    Messages pass through its standard input and output. Text that libraries print there goes into the error's text
    instead. The process starts no other process, opens no socket, and writes only temporary files in a folder of its
    own and to `writes`, which are existing files or folders, as far as the machine supports it (`confine.py`).
    trusted: whether the process may compile and run programs, as this process may.
    """

    def __init__(
        self, module: str, *, limits: ChildLimits | None = None, writes: Sequence[Path] = (), trusted: bool = False
    ) -> None:
        self._module = module
        self._limits = limits or ChildLimits()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        limit = self._limits
        numbers = (limit.memory_bytes, limit.file_bytes, limit.open_files)
        self._temporary = None if trusted else tempfile.TemporaryDirectory(prefix="tvm_ext_")
        rights = None
        if self._temporary:
            environment["TMPDIR"] = self._temporary.name
            given = (Path(self._temporary.name), *writes)
            rights = Rights(writes=tuple(str(path.resolve()) for path in given))
        self._process: Fork | subprocess.Popen[bytes]
        if IS_LINUX:
            request = Request(module=module, limits=numbers, rights=rights, environment=environment)
            self._process = Fork(request, self._said)
        else:
            if rights is not None:
                warn_of_rights()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", child_main.__name__, module, *map(str, numbers), str(os.getpid())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, env=environment,
                start_new_session=True,
            )  # fmt: skip

    def call(self, function: str, *values: Value, ask: Callable[..., Value] | None = None) -> Value:
        """Return the function's result. `ask` answers requests of the function through a keyword parameter of that
        name.

        Raises the function's error where it is one of ours, else ChildFailed with the reason: another exception, or the
        memory limit. After ChildLost (by a signal) or ChildExpired (by time) the process has ended.
        """
        stdin = self._process.stdin
        assert stdin is not None, "the process was started with pipes"
        expired = threading.Event()
        timer = threading.Timer(self._limits.seconds, self._expire, [expired])
        timer.daemon = True
        timer.start()
        try:
            write_value(stdin, {"function": function, "values": values, "asks": ask is not None})
            while (answer := read_value(self._read))["kind"] == "ask":
                assert ask is not None, "only a function that was told of `ask` asks"
                write_value(stdin, ask(*answer["values"]))
        except (EOFError, OSError):
            kind = ChildExpired if expired.is_set() else ChildLost
            raise kind(f"{self._module}.{function} {self._reason(expired)}") from None
        finally:
            timer.cancel()
        if answer["kind"] == "result":
            return answer["value"]
        raise self._raised(function, answer)

    def close(self) -> None:
        """End the process and everything that it started."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # unsent data is no longer needed
                if stream:
                    stream.close()
        self._process.wait()
        if isinstance(self._process, Fork):
            self._process.close()
        self._said.close()
        if self._temporary:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, size: int) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None, "the process was started with pipes"
        data = stdout.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def _expire(self, expired: threading.Event) -> None:
        expired.set()
        self.kill()

    def kill(self) -> None:
        """End the process at once, from any thread. A call that waits for it raises ChildLost."""
        if isinstance(self._process, Fork):
            self._process.kill()
        else:
            end_group(self._process)

    def _raised(self, function: str, answer: dict[str, Any]) -> TvmExtError:
        """Return our error of that name, or ChildFailed for any other error."""
        kind: object = getattr(errors, answer["class"], None)
        if isinstance(kind, type) and issubclass(kind, TvmExtError):
            return kind(answer["message"])
        raised = f"{answer['class']}: {answer['message']}"
        where = f" ({message('in a child process')})" if answer["class"] == "MemoryError" and is_limited() else ""
        return ChildFailed(f"{self._module}.{function} raised {raised}{where}")

    def _reason(self, expired: threading.Event) -> str:
        """Return why no answer came, with the last lines that the process printed."""
        if expired.is_set():
            why = f"did not end within {self._limits.seconds:g} s"
        else:
            status = self._exit_status()
            name = signal_name(-status) or str(-status)
            why = f"was ended by signal {name}" if status < 0 else f"left with exit status {status}"
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - 4096))
        lines = self._said.read().decode(errors="replace").strip().splitlines()[-_TAIL_LINES:]
        return "\n".join([f"{why}.", *lines])

    def _exit_status(self) -> int:
        """Return the status of a process that closed its end of the pipe. If it is still alive, it is ended."""
        end = time.monotonic() + _GRACE_S
        while (status := self._process.poll()) is None and time.monotonic() < end:
            time.sleep(0.01)
        self.kill()
        return self._process.wait() or 0 if status is None else status
