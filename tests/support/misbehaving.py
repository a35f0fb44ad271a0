"""Functions that a child process is asked to run, most of which do not come back."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from tvm_ext.core.errors import BadInput

_calls: list[int] = []


def same(value):
    return value


def count() -> int:
    _calls.append(1)
    return len(_calls)


def print_and_count() -> int:
    os.write(1, b"a library prints this\n")
    return 7


def total_of_asked(numbers, ask) -> int:
    return sum(ask(number) for number in numbers)


def raise_ours() -> None:
    raise BadInput("input 'x' is wrong")


def raise_foreign() -> None:
    raise KeyError("x")


def crash(signal_number: int) -> None:
    os.write(2, b"about to crash\n")
    os.kill(os.getpid(), signal_number)


def leave(status: int) -> None:
    os._exit(status)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def start_and_sleep(seconds: float, pid_file: str) -> None:
    started = os.fork()
    if started:
        Path(pid_file).write_text(str(started))
    time.sleep(seconds)


def allocate(num_bytes: int) -> int:
    return int(np.ones(num_bytes, np.uint8).sum())


def write_file(path: str, num_bytes: int) -> None:
    with open(path, "wb") as file:
        file.truncate(num_bytes)
        file.seek(num_bytes)
        file.write(b"x")


def start(how: str, canary: str) -> str:
    """Try to start a program that makes a file; the name of the error, or `started`."""
    libc = ctypes.CDLL(None, use_errno=True)
    touch = ["/usr/bin/touch", canary]
    if how == "system":
        status = libc.system(f"touch {canary}".encode())
        return "EPERM" if status else "started"
    try:
        if how == "shell":
            subprocess.run(touch, check=True)
        elif how == "posix_spawn":
            os.waitpid(os.posix_spawn(touch[0], touch, {}), 0)
        elif how == "execve":
            os.execve(touch[0], touch, {})
        elif how == "vfork":
            if libc.syscall(58) < 0:
                return errno.errorcode[ctypes.get_errno()]
        elif not (pid := os.fork()):
            os.execve(touch[0], touch, {})
        else:
            os.waitpid(pid, 0)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "started"


def _tried(work: Callable[[], object]) -> str:
    try:
        work()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def write(path: str) -> str:
    return _tried(lambda: Path(path).write_text("written"))


def read(path: str) -> str:
    return Path(path).read_text()


def remove(path: str) -> str:
    return _tried(lambda: os.remove(path))


def rename(path: str) -> str:
    return _tried(lambda: os.rename(path, f"{path}.moved"))


def truncate(path: str) -> str:
    return _tried(lambda: os.truncate(path, 0))


def chmod(path: str) -> str:
    return _tried(lambda: os.chmod(path, 0o777))


def make_folder(path: str) -> str:
    return _tried(lambda: os.mkdir(path))


def open_socket() -> str:
    return _tried(lambda: socket.socket(socket.AF_INET))


def send_signal(pid: int) -> str:
    return _tried(lambda: os.kill(pid, 0))


def limit(pid: int) -> str:
    return _tried(lambda: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)))


def abort() -> None:
    os.abort()


def thread_sum() -> int:
    found: list[int] = []
    threads = [threading.Thread(target=found.append, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found)


def parent() -> int:
    return os.getppid()


def own_id() -> int:
    return os.getpid()


def descriptors() -> list[str]:
    """What each open descriptor is, without numbers."""
    found: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor that lists the folder
            found.append(os.readlink(f"/proc/self/fd/{name}").partition(":[")[0].partition("#")[0])
    return found


def working_folder() -> str:
    return os.getcwd()


def temporary_folder() -> str:
    return tempfile.gettempdir()


def variable(name: str) -> str:
    return os.environ[name]


def compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def limits() -> dict[str, int]:
    return {"memory_bytes": resource.getrlimit(resource.RLIMIT_AS)[0]}
