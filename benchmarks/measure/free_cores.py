"""Seconds that a command would take on free cores, estimated on a machine that others use, too.

All threads of the command and of its child processes are sampled. CPU time that they use while k of them can run would
take 1 / min(k, cores) of it on free cores. Time in which none can run counts in full.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PERIOD_S = 0.05
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PARENT, _FIRST_TIME, _NUM_TIMES = 1, 11, 4
"""Fields of /proc/PID/stat after the name: the parent, and four CPU times, of the process and of ended children."""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Times of a command: by the clock, of CPU, and by the clock on this number of free cores, estimated."""

    s: float
    cpu_s: float
    free_s: float


def timed(command: Sequence[str], folder: Path, environment: Mapping[str, str], cores: int) -> Timed:
    """Run a command and return its times. Raises CalledProcessError if it fails."""
    begin, used, free = time.monotonic(), 0.0, 0.0
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        before = begin
        while process.poll() is None:
            time.sleep(_PERIOD_S)
            now = time.monotonic()
            total, running = _sample(process.pid)
            added = max(0.0, total - used)
            free += added / min(max(running, 1), cores) if running or added else now - before
            used, before = max(used, total), now
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Timed(s=round(time.monotonic() - begin, 1), cpu_s=round(used, 1), free_s=round(free, 1))


def _sample(root: int) -> tuple[float, int]:
    """Return the CPU seconds of a process and its descendants so far, and how many of their threads can run."""
    stats: dict[int, list[str]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                stats[int(entry.name)] = _fields(Path(entry.path) / "stat")
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    tree, waiting = list[int](), [root]
    while waiting:
        pid = waiting.pop()
        tree += [pid] if pid in stats else []
        waiting += children.get(pid, [])
    seconds = sum(int(ticks) * _TICK_S for pid in tree for ticks in stats[pid][_FIRST_TIME : _FIRST_TIME + _NUM_TIMES])
    return seconds, sum(_running(pid) for pid in tree)


def _running(pid: int) -> int:
    """Return the number of threads of a process that run or wait for a core."""
    count = 0
    with suppress(OSError):
        for thread in os.scandir(f"/proc/{pid}/task"):
            with suppress(OSError):
                count += _fields(Path(thread.path) / "stat")[0] == "R"
    return count


def _fields(stat: Path) -> list[str]:
    """Return the fields of a stat file after the process's name."""
    return stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
