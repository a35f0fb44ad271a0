"""A canary: notices that a case runs a program, writes outside of its folder, connects, imports or unpickles.

Two watch at once: an audit hook in the interpreter, and seccomp for code below it and for child processes. Each alarm
is a line on standard error that begins with `ALARM`, which remains however the child ended.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fuzzing import seccomp
from benchmarks.fuzzing.seccomp import Call

ALARM = "canary:"
MODULE = "canary_of_the_fuzzer"
"""A module that does not exist: cases try to have it imported."""

_TOOLS = re.compile(
    r"(?:[\w-]+-)?(?:gcc|g\+\+|cc|clang|cc1|cc1plus|as|ld|lld|collect2|lto1|lto-wrapper|objcopy|objdump|nm|size|ar|"
    r"readelf|readobj|strip|gcov|prlimit)(?:-[\d.]+)?(?:\.bfd)?|python3?(?:\.\d+)?|"
    r"qemu-(?:aarch64|hexagon|riscv64|system-(?:arm|riscv32|xtensa))"
)
_TOOL_FOLDERS = (
    "/usr/bin/", "/usr/lib/", "/usr/libexec/", "/usr/local/", "/bin/", f"{sys.prefix}/", f"{sys.base_prefix}/",
)  # fmt: skip
_FILTERS = ("/usr/bin/grep", "/bin/grep")
"""What our own readers start to drop warnings of TVM's C++ (`tvm_ext/core/processes/native_warnings.py`)."""
_DEVICES = ("/dev/null", "/dev/tty", "/dev/shm/")
# Folders that libraries keep for themselves, whatever the case: onnxruntime's telemetry, compiled code of PyTorch's.
_LIBRARIES = (
    os.path.expanduser("~/.cache/Microsoft/DeveloperTools/.onnxruntime"),
    os.path.join(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}"),
)
_NAME_SERVICES = "/var/run/nscd/socket"
# What the standard library, numpy and torch put into pickles of their own: results that processes send each other.
_PICKLED = re.compile(
    r"(?:benchmarks|tvm_ext|relay_passes|codegen_c|numpy|torch\._|collections|multiprocessing|pathlib|_codecs)\b.*"
)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a case may do. folder: where it may write. may_build: compilers and what they made may run."""

    folder: Path
    may_build: bool

    def alarm(self, call: Call) -> str | None:
        """What is wrong with a call; None where nothing is."""
        if call.kind == "write":
            is_own = self._is_inside(call.name) or call.name.startswith((*_DEVICES, *_LIBRARIES))
            return None if is_own else f"writes {call.name}"
        if call.kind == "connect":
            return None if call.name == _NAME_SERVICES else f"connects to {call.name}"
        if not os.path.exists(call.name) or call.name in _FILTERS:  # a search along PATH
            return None
        if self.may_build and (self._is_inside(call.name) or _is_tool(call.name)):
            return None
        return f"runs {call.name}"

    def event_alarm(self, event: str, values: tuple[Any, ...]) -> str | None:
        """The same for an event of Python's that no system call shows."""
        if event == "os.system":
            return f"runs os.system({values[0]!r})"
        if event == "pickle.find_class" and not _PICKLED.fullmatch(f"{values[0]}.{values[1]}"):
            return f"unpickles {values[0]}.{values[1]}"
        if event == "import" and values[0] == MODULE:
            return f"imports {MODULE}"
        if (
            event == "ctypes.dlopen"
            and isinstance(values[0], str)
            and self._is_inside(values[0])
            and not self.may_build
        ):
            return f"loads {values[0]}"
        if event == "open" and isinstance(values[0], str) and _is_for_writing(values[2]):
            return self.alarm(Call(kind="write", name=os.path.abspath(values[0])))
        if event == "socket.connect":
            return self.alarm(Call(kind="connect", name=str(values[1])))
        return None

    def _is_inside(self, name: str) -> bool:
        return name == str(self.folder) or name.startswith(f"{self.folder}/")


def _is_tool(name: str) -> bool:
    path = os.path.realpath(name)
    return path.startswith(_TOOL_FOLDERS) and bool(_TOOLS.fullmatch(os.path.basename(path)))


def _is_for_writing(flags: object) -> bool:
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def watch(policy: Policy) -> None:
    """Watch this process and what it starts until it ends; temporary and kept files go to the policy's folder."""
    tempfile.tempdir = str(policy.folder)
    os.environ["TMPDIR"] = str(policy.folder)
    os.environ["TVM_EXT_CACHE"] = str(policy.folder / "cache")

    def judge(call: Call) -> None:
        _say(policy.alarm(call))

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if event in _EVENTS:
            _say(policy.event_alarm(event, values))

    if seccomp.is_available():
        seccomp.watch_calls(judge)
    sys.addaudithook(hook)


_EVENTS: Mapping[str, None] = dict.fromkeys(
    ("os.system", "pickle.find_class", "import", "ctypes.dlopen", "open", "socket.connect")
)


def _say(alarm: str | None) -> None:
    if alarm is not None:
        os.write(2, f"{ALARM} {alarm}\n".encode(errors="replace"))


def alarms(said: str) -> list[str]:
    """Alarms in what a watched process said."""
    return [line.removeprefix(f"{ALARM} ") for line in said.splitlines() if line.startswith(ALARM)]
