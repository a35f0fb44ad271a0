"""Jobs for tests of services: what comes back, what dies, what hangs, what raises."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path


def doubled(text: bytes) -> bytes:
    return text + text


def dies_once(marker: bytes) -> bytes:
    """Kills its own process where a file is not there yet; else says that it is done."""
    path = Path(os.fsdecode(marker))
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return b"done"


def dies_once_with(marker: bytes, content: bytes) -> bytes:
    dies_once(marker)
    return content


def dies(_: bytes) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def raises_in_a_thread_pool(_: bytes) -> bytes:
    """Raises but on the main thread, as what loses its worker does."""
    if threading.current_thread() is not threading.main_thread():
        raise OSError("the worker is gone")
    return b"done"


def hangs(_: bytes) -> bytes:
    time.sleep(60)
    return b""


def raises(_: bytes) -> bytes:
    raise KeyError("nothing here")
