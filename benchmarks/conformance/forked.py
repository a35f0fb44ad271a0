"""Child processes of the compiler forked from this one, which has imported what they import.

A start of Python with numpy and onnxruntime is two thirds of the time that a build of one operator takes. What runs
in a child, its limits and its end are those of `tvm_ext.core.processes`; only the imports are shared.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import IO, NoReturn
from unittest.mock import patch

from tvm_ext.core.processes import child, child_main

_MODULES = (
    "tvm_ext.execution.host_library",
    "tvm_ext.verification.reference_runtimes.onnxruntime_runtime",
    "tvm_ext.verification.reference_runtimes.tvm_runtime",
)


@contextmanager
def forked_children() -> Generator[None]:
    """Children that begin inside are forks of this process. For one thread of Python's own at the time of a start."""
    for name in _MODULES:
        importlib.import_module(name)
    with patch.object(child, "subprocess", SimpleNamespace(Popen=_Forked, PIPE=subprocess.PIPE)):
        yield


class _Forked:
    """The part of `subprocess.Popen` that `Child` uses, for a command that runs `child_main`."""

    def __init__(self, command: Sequence[str], *, stderr: IO[bytes], **_: object) -> None:
        read_end, stdin = os.pipe()
        stdout, write_end = os.pipe()
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _become(command[command.index(child_main.__name__) :], (read_end, write_end, stderr.fileno()))
        os.close(read_end)
        os.close(write_end)
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")

    def poll(self) -> int | None:
        return self._waited(os.WNOHANG)

    def wait(self) -> int:
        status = self._waited(0)
        assert status is not None, "it was waited for"
        return status

    def _waited(self, options: int) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, options)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status


def _become(arguments: Sequence[str], streams: Sequence[int]) -> NoReturn:
    """Go on as the child of these arguments, with its standard streams and no other file of the parent's."""
    status = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        held = [os.dup(number) for number in streams]
        for number, stream in enumerate(held):
            os.dup2(stream, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.argv = list(arguments)
        child_main.main()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
