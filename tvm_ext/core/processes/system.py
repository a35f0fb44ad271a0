"""The features of this system for processes and files, queried in a single place.

Linux has all of them. macOS has no rights to drop and no signal at a parent's end. Windows also lacks signals, locks,
process groups and limits. There, plain child processes run with the rights of the user, and end with the process that
closes them.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

from tvm_ext.core.errors import SystemNotice

_resource: ModuleType | None
_fcntl: ModuleType | None
try:
    import fcntl as _fcntl
    import resource as _resource
except ImportError:
    _resource = _fcntl = None

IS_LINUX = sys.platform == "linux" and hasattr(os, "fork") and hasattr(signal, "pthread_sigmask")
"""Whether a process can be supervised, by blocked signals and as reaper of orphaned processes."""
ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # fmt: skip
"""Signals that request the end of a process."""
PLAIN_FILE_FLAGS: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""Flags to open files that may not be regular files: opening a pipe would otherwise wait for its writer."""
NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_PR_SET_PDEATHSIG = 1


@cache
def warn_of_rights() -> None:
    """Warn once that programs run with all rights of the user, where nothing restricts them."""
    warnings.warn(
        f"{sys.platform} has no filter of system calls that this compiler knows: compilers, emulators and other "
        "runtimes run with your own rights and without limits. Compile models that you trust.",
        SystemNotice,
        stacklevel=3,
    )


def limit_addresses() -> int | None:
    """Return the address space that this process may use, or None without a limit."""
    if _resource is None:
        return None
    limits = [_resource.getrlimit(which)[0] for which in (_resource.RLIMIT_AS, _resource.RLIMIT_DATA)]
    return min([limit for limit in limits if limit != _resource.RLIM_INFINITY], default=None)


def most_used_bytes() -> int:
    """Return the most address space that this process has used, or memory, or 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmPeak:"):
                return int(line.split()[1]) << 10
    return 0 if _resource is None else _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss << 10


def processor_seconds() -> float:
    """Return the processor time of this process and, where the system tells, of its finished children."""
    if _resource is None:
        return time.process_time()
    own, others = (_resource.getrusage(who) for who in (_resource.RUSAGE_SELF, _resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def limit_self(limits: Mapping[str, int]) -> None:
    """Limit this process: `AS` bytes of addresses, `FSIZE` of a file, `NOFILE` open files, `CORE` bytes of a dump."""
    if _resource is None:
        return
    for name, limit in limits.items():
        which = getattr(_resource, f"RLIMIT_{name}")
        _, most = _resource.getrlimit(which)
        wanted = limit if most == _resource.RLIM_INFINITY else min(limit, most)
        if IS_LINUX:
            _resource.setrlimit(which, (wanted, wanted))
        else:
            with suppress(OSError, ValueError):  # macOS has the limit of addresses in name only
                _resource.setrlimit(which, (wanted, most))


def limit_processor_time(pid: int, seconds: float) -> None:
    """Make the system end a program in time, even if its supervisor has ended."""
    limit = math.ceil(seconds * (os.cpu_count() or 1)) + 1
    if hasattr(_resource, "prlimit"):
        assert _resource is not None, "it has the function"
        with suppress(OSError, ValueError):
            _resource.prlimit(pid, _resource.RLIMIT_CPU, (limit, limit))


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started in a session of its own, with everything it started in that session."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def die_with(parent: int) -> None:
    """End this process when its parent ends in any manner, where the system has a signal for that."""
    if IS_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if hasattr(os, "fork") and os.getppid() != parent:
        sys.exit(1)


def signal_name(number: int) -> str | None:
    """Return the name of a signal, or None where this system has none of that number."""
    return signal.Signals(number).name if number in set(signal.Signals) else None


def lock(file: int) -> bool:
    """Lock an open file for the life of this process, or return False where the system has no such lock.

    Raises BlockingIOError where another process holds the lock.
    """
    if _fcntl is None:
        return False
    _fcntl.flock(file, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    return True


def is_own(status: os.stat_result) -> bool:
    """Return whether a file or folder belongs to this user."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
