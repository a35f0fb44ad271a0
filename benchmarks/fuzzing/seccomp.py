"""System calls of a process and its children, shown to a supervisor before they happen (seccomp user notification).

The kernel stops a call that the filter names, the supervisor reads its arguments out of the caller's memory, and lets
it go on. So code below Python is watched as well, and programs that a process starts are, too. Linux on x86-64 only;
nothing is forbidden.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_EXEC = {59: 0, 322: 1}
_CONNECT = 42
_PATHS = {85: 0, 76: 0, 82: 1, 264: 3, 316: 3, 86: 1, 265: 3, 88: 1, 266: 2, 87: 0, 263: 1, 83: 0, 258: 1, 84: 0}
"""creat, truncate, rename, link, symlink, unlink, mkdir, rmdir in all forms -> the argument that is written to."""
_RELATIVE = {322: 0, 264: 2, 316: 2, 265: 2, 266: 1, 263: 0, 258: 0, 257: 0, 437: 0}
"""Calls with a folder that their path is relative to -> its argument."""
_OPEN, _OPENAT, _OPENAT2 = 2, 257, 437
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_ALLOW, _NOTIFY, _ARCH = 0x7FFF0000, 0x7FC00000, 0xC000003E
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_NOTICE, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_LOAD, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x45, 0x06


@dataclass(frozen=True, kw_only=True)
class Call:
    """A system call: `exec`, `write` or `connect`, and the path or address that it names."""

    kind: str
    name: str


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def is_available() -> bool:
    return platform.system() == "Linux" and platform.machine() == "x86_64"


def watch_calls(judge: Callable[[Call], None]) -> None:
    """Have a forked supervisor call `judge` before each call of this process, of its children and theirs.

    The supervisor ends when all of them have.
    """
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        try:
            _, handles, _, _ = socket.recv_fds(theirs, 1, 1)
            _close_others({1, 2, handles[0]})
            _supervise(handles[0], judge)
        finally:
            os._exit(0)
    theirs.close()
    listener = _install()
    socket.send_fds(ours, [b"x"], [listener])
    os.close(listener)
    ours.close()


def _close_others(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))


def _filter() -> list[tuple[int, int, int, int]]:
    """Instructions that show calls which run, write or connect."""
    rules = [(_LOAD, 0, 0, 4), (_JUMP_EQUAL, 1, 0, _ARCH), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0)]
    for number in (*_EXEC, _CONNECT, *_PATHS, _OPENAT2):
        rules += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY)]
    for number, flags in ((_OPEN, 1), (_OPENAT, 2)):  # their flags lie in the lower half of an argument
        rules += [(_JUMP_EQUAL, 0, 4, number), (_LOAD, 0, 0, 16 + 8 * flags), (_JUMP_SET, 0, 1, _WRITING),
                  (_RETURN, 0, 0, _NOTIFY), (_RETURN, 0, 0, _ALLOW)]  # fmt: skip
    return [*rules, (_RETURN, 0, 0, _ALLOW)]


def _install() -> int:
    """Handle of the filter's notifications."""
    library = ctypes.CDLL(None, use_errno=True)
    rules = [_Instruction(*rule) for rule in _filter()]
    program = _Program(len(rules), (_Instruction * len(rules))(*rules))
    if library.prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "prctl")
    handle = library.syscall(317, 1, 8, ctypes.byref(program))  # SECCOMP_SET_MODE_FILTER with a listener
    if handle < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return handle


def _supervise(handle: int, judge: Callable[[Call], None]) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    while True:
        for _, events in poll.poll():
            if not events & select.POLLIN:  # nobody is left
                return
            buffer = bytearray(_NOTICE.size)
            try:
                fcntl.ioctl(handle, _RECEIVE, buffer)
            except OSError:  # the caller was killed meanwhile
                continue
            identity, pid, _, number, _, _, *arguments = _NOTICE.unpack(buffer)
            try:
                judge(_call(pid, number, arguments))
            finally:
                with suppress(OSError):
                    fcntl.ioctl(handle, _SEND, _ANSWER.pack(identity, 0, 0, _CONTINUE))


def _call(pid: int, number: int, arguments: list[int]) -> Call:
    if number == _CONNECT:
        return Call(kind="connect", name=_address(_memory(pid, arguments[1], min(arguments[2], 128))))
    at = _EXEC.get(number, _PATHS.get(number, 1 if number in (_OPENAT, _OPENAT2) else 0))
    name = _memory(pid, arguments[at], 4096).split(b"\0")[0].decode(errors="surrogateescape")
    folder = arguments[_RELATIVE[number]] & 0xFFFFFFFF if number in _RELATIVE else 0xFFFFFF9C
    base = f"/proc/{pid}/cwd" if folder == 0xFFFFFF9C else f"/proc/{pid}/fd/{folder}"  # AT_FDCWD
    path = name if name.startswith("/") else os.path.join(_target(base), name)
    return Call(kind="exec" if number in _EXEC else "write", name=os.path.normpath(path))


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return "?"


def _memory(pid: int, address: int, size: int) -> bytes:
    """Bytes of a process up to the end of a page that cannot be read."""
    found = b""
    with suppress(OSError), Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        while len(found) < size and b"\0" not in found[:size]:
            memory.seek(address + len(found))
            part = memory.read(min(size - len(found), 4096 - (address + len(found)) % 4096))
            if not part:
                break
            found += part
    return found


def _address(data: bytes) -> str:
    family = int.from_bytes(data[:2], "little")
    if family == socket.AF_UNIX:
        name = data[2:].split(b"\0")[0] or data[2:]  # a path may end early, an abstract name begins with a zero
        return name.decode(errors="replace")
    if family == socket.AF_INET:
        return f"{socket.inet_ntoa(data[4:8])}:{int.from_bytes(data[2:4], 'big')}"
    return f"family {family}: {data[2:].hex()}"
