"""Functions that a child process is asked to run, most of which do not come back."""

from __future__ import annotations

import os
import time
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
