"""Functions in a forked process, with limits: it starts warm, and what crashes, hangs or grows there ends there.

A child inherits every module that its parent has imported, so that it begins to work within milliseconds; TVM bears
that as long as the parent has not run anything in threads of its own.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_SAID_BYTES = 200_000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Processor seconds of each stage, wall seconds of the whole, and bytes of memory beyond what was inherited.

    wall_s: ends what waits for ever; work on a machine that is busy with other things is not to be ended by it.
    """

    cpu_s: int = 60
    wall_s: float = 1800.0
    memory_bytes: int = 4 << 30


@dataclass(frozen=True, kw_only=True)
class End:
    """End of a child: its function's result, or what ended it.

    signal: 0 where none did; stage: the last one that began; said: the end of what it printed. cpu_s: processor time,
    its children's included; peak_bytes: resident, of the largest of these processes. told: what it told meanwhile.
    """

    value: Any = None
    is_done: bool = False
    signal: int = 0
    over_time: bool = False
    stage: str = ""
    said: str = ""
    cpu_s: float = 0.0
    peak_bytes: int = 0
    told: tuple[Any, ...] = ()


class Stages:
    """Told by a child which stage begins; each has `cpu_s` processor seconds of its own, children's included."""

    def __init__(self, limits: Limits, pipe: int) -> None:
        self._limits, self._pipe = limits, pipe

    def begin(self, stage: str, *, cpu_s: int | None = None) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + (cpu_s or self._limits.cpu_s)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
        _send(self._pipe, ("stage", stage))

    def tell(self, value: Any) -> None:
        """Hand a value to the parent, which gets it however the child ends."""
        _send(self._pipe, ("told", value))


class Forked:
    """A child at work; `pipe` is readable when there is news. Call `end` until it is not None."""

    def __init__(self, work: Callable[[Stages], Any], limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the child has ended
        self.pipe, far_end = os.pipe()
        self._received = b""
        self._stage = ""
        self._begin = time.monotonic()
        self._pid = os.fork()
        if self._pid == 0:
            self._be_child(work, far_end)
        os.close(far_end)

    def end(self) -> End | None:
        """End of the child; None while it works."""
        is_late = time.monotonic() - self._begin > self._limits.wall_s
        if is_late:
            self.kill()
        if not is_late and not select.select([self.pipe], [], [], 0)[0]:
            return None
        data = os.read(self.pipe, 1 << 20)
        self._received += data
        return self._ended(is_late) if not data or is_late else None

    def kill(self) -> None:
        """Ends the child and everything it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> End:
        """The end, as soon as it comes."""
        while (end := self.end()) is None:
            select.select([self.pipe], [], [], 1.0)
        return end

    def _ended(self, is_late: bool) -> End:
        _, status, usage = os.wait4(self._pid, 0)
        with suppress(ProcessLookupError, PermissionError):  # what it left running
            os.killpg(self._pid, signal.SIGKILL)
        os.close(self.pipe)
        value, is_done, told = None, False, list[Any]()
        for kind, content in _messages(self._received):
            if kind == "stage":
                self._stage = content
            elif kind == "told":
                told.append(content)
            else:
                value, is_done = content, True
        said = self._tail()
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return End(
            value=value, is_done=is_done, stage=self._stage, said=said, signal=0 if is_late else ended_by,
            over_time=is_late or ended_by == signal.SIGXCPU, cpu_s=round(usage.ru_utime + usage.ru_stime, 2),
            peak_bytes=usage.ru_maxrss * 1024, told=tuple(told),
        )  # fmt: skip

    def _tail(self) -> str:
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - _SAID_BYTES))
        said = self._said.read().decode(errors="replace")
        self._said.close()
        return said

    def _be_child(self, work: Callable[[Stages], Any], pipe: int) -> None:
        """Works, sends the result, and leaves without running what the parent wants run at its own exit."""
        status = 1
        try:
            os.setpgid(0, 0)
            os.close(self.pipe)
            with open(os.devnull) as nothing:
                os.dup2(nothing.fileno(), 0)
            os.dup2(self._said.fileno(), 1)
            os.dup2(self._said.fileno(), 2)
            sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - until the end
            sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
            faulthandler.enable(2)
            faulthandler.register(signal.SIGXCPU, 2, chain=True)  # says where time went, and ends
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            most = _address_bytes() + self._limits.memory_bytes
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
            stages = Stages(self._limits, pipe)
            stages.begin("")
            _send(pipe, ("result", work(stages)))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)


def apart(function: Callable[..., Any], *values: Any, limits: Limits | None = None) -> End:
    """End of `function(*values)` in a process of its own."""
    return Forked(lambda _: function(*values), limits).wait()


def _address_bytes() -> int:
    """Bytes of this process's address space."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _send(pipe: int, message: tuple[str, Any]) -> None:
    data = pickle.dumps(message)
    data = len(data).to_bytes(8, "little") + data
    while data:
        data = data[os.write(pipe, data) :]


def _messages(data: bytes) -> list[tuple[str, Any]]:
    """Whole messages; one that a crash cut short is left out."""
    found: list[tuple[str, Any]] = []
    while len(data) >= 8:
        size = int.from_bytes(data[:8], "little")
        if len(data) < 8 + size:
            break
        found.append(pickle.loads(data[8 : 8 + size]))
        data = data[8 + size :]
    return found
