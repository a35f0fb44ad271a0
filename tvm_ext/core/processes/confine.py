"""Drop rights of this process before it runs untrusted code: starting processes, networks, files.

Two mechanisms of Linux serve this. Neither needs a privilege, and a process can undo neither. Other systems keep all
rights.

- seccomp refuses system calls by number. A thread may start, a process may not; no socket opens, and no other
  process is traced, read or signalled.
- Landlock refuses accesses to files by path: all files that are written, and on request all that are read.

This file is also a script: `confine.py RIGHTS COMMAND...` drops rights and becomes the command. Python starts it by
path, without any library, so that the rights are gone before a library has created a thread.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import runpy
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER_MODE = 38, 22, 2  # of prctl

# Numbers of system calls on x86-64 and on AArch64; None where an architecture has no such call.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None), "vfork": (58, None),
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425),  # opens files and connects by requests that no filter sees
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "unshare": (272, 97), "setns": (308, 268),
    "open_by_handle_at": (304, 265), "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219),
    "init_module": (175, 105), "finit_module": (313, 273), "kexec_load": (246, 104), "reboot": (169, 142),
}  # fmt: skip
_EXECUTE: dict[str, tuple[int | None, int | None]] = {"execve": (59, 221), "execveat": (322, 281)}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_KILL_PROCESS, _KILL_THREAD, _LIMIT = (62, 129), (234, 131), (302, 261)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> column of the tables, and the kernel's number of the architecture."""
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000
_EPERM, _ENOSYS = 1, 38

_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # operations of the filter
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16  # bytes of the kernel's struct seccomp_data
_ALLOW, _END, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls of Landlock, the same on all machines
_PATH_BENEATH = 1
_EXECUTE_FILE, _WRITE_FILE, _READ_FILE, _READ_FOLDER, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_CHANGES = sum(1 << bit for bit in range(4, 13))
"""Rights of a folder: to remove and to create files and folders of all kinds."""
_RENAMES_ACROSS = 1 << 13


@dataclass(frozen=True, kw_only=True)
class Rights:
    """The rights that remain.

    writes: existing files, and folders with everything below them, that may be written.
    reads: the same for reading; None for all.
    executes: whether the process may become another program; it may never start one.
    programs: the programs that it may become, with the loaders of their libraries; None for all.
    file_bytes: the largest file that it may write, 0 for no limit.
    demands_filter: whether to fail where this machine has no filter of system calls, instead of going on without it.
    """

    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] | None = None
    executes: bool = False
    programs: tuple[str, ...] | None = None
    file_bytes: int = 0
    demands_filter: bool = False


def confined_command(rights: Rights, command: Sequence[str]) -> list[str]:
    """Return a command that drops all other rights, and becomes the program of `command` in the same process."""
    if not _is_linux():
        return [*command]
    return [sys.executable, "-I", "-S", __file__, json.dumps(asdict(rights)), *command]


def confined_module(rights: Rights, module: str, arguments: Sequence[str]) -> list[str]:
    """Return a command that drops all other rights, and runs a Python module like `python -P -m`."""
    if not _is_linux():
        return [sys.executable, "-P", "-m", module, *arguments]
    return [sys.executable, "-P", __file__, json.dumps(asdict(rights)), "-m", module, *arguments]


def confine(rights: Rights) -> None:
    """Drop all other rights, in this thread and in threads that it starts from now on. Raises OSError."""
    import resource  # only Linux has the following

    libc = ctypes.CDLL(None, use_errno=True)
    if rights.file_bytes:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        wanted = rights.file_bytes if most == resource.RLIM_INFINITY else min(rights.file_bytes, most)
        resource.setrlimit(resource.RLIMIT_FSIZE, (wanted, wanted))
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "privileges cannot be given up")
    _restrict_files(libc, rights)
    _filter_calls(libc, rights)


def _is_linux() -> bool:
    from tvm_ext.core.processes.system import IS_LINUX  # a script cannot import this package by itself

    return IS_LINUX


def has_filter() -> bool:
    """Return True where this machine has a filter of system calls."""
    return platform.machine() in _MACHINES and os.path.exists("/proc/sys/kernel/seccomp/actions_avail")


def has_landlock() -> bool:
    """Return True where this machine has Landlock."""
    return _is_linux() and _landlock_version(ctypes.CDLL(None, use_errno=True)) > 0


def _landlock_version(libc: ctypes.CDLL) -> int:
    return int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def _restrict_files(libc: ctypes.CDLL, rights: Rights) -> None:
    """Restrict files by Landlock, where the kernel has it."""
    version = _landlock_version(libc)
    if version < 1:
        return
    of_file = _WRITE_FILE | (_TRUNCATE if version >= 3 else 0)
    of_folder = of_file | _CHANGES | (_RENAMES_ACROSS if version >= 2 else 0)
    reading = _READ_FILE | _READ_FOLDER if rights.reads is not None else 0
    running = _EXECUTE_FILE if rights.programs is not None else 0
    ruleset = libc.syscall(
        _CREATE_RULESET,
        ctypes.create_string_buffer(struct.pack("Q", of_folder | reading | running), 8),
        ctypes.c_size_t(8),
        0,
    )
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "accesses to files cannot be limited")
    for path in ("/dev/null", *rights.writes):
        _allow_beneath(libc, ruleset, path, of_file, of_folder)
    for path in ("/dev/null", "/dev/urandom", *(rights.reads or ())):
        if reading:
            _allow_beneath(libc, ruleset, path, _READ_FILE, reading)
    for path in rights.programs or ():
        _allow_beneath(libc, ruleset, path, running, running)
    if libc.syscall(_RESTRICT_SELF, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "accesses to files cannot be limited")
    os.close(ruleset)


def _allow_beneath(libc: ctypes.CDLL, ruleset: int, path: str, of_file: int, of_folder: int) -> None:
    """Add a rule for a path, if the path exists."""
    with suppress(FileNotFoundError, NotADirectoryError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = of_folder if os.path.isdir(path) else of_file
        rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, place), 12)
        if libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), f"{path}: accesses cannot be limited")
        os.close(place)


def _filter_calls(libc: ctypes.CDLL, rights: Rights) -> None:
    """Install the filter of system calls, where this machine has one."""
    if not has_filter():
        if rights.demands_filter:
            raise OSError(_ENOSYS, "this machine has no filter of system calls")
        return
    code = _filter_code(rights.executes)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)), 16)
    if libc.prctl(_SET_SECCOMP, _FILTER_MODE, program, 0, 0) != 0 and rights.demands_filter:
        raise OSError(ctypes.get_errno(), "system calls cannot be filtered")


def _filter_code(executes: bool) -> bytes:
    """Return the code of the filter: for each refused call a comparison that skips the following refusal."""
    column, architecture = _MACHINES[platform.machine()]

    def step(operation: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
        return struct.pack("HBBI", operation, then, otherwise, value)

    refused = {**_DENIED, **({} if executes else _EXECUTE)}
    numbers = [number for pair in refused.values() if (number := pair[column]) is not None]
    code = step(_LOAD, _ARCHITECTURE_AT) + step(_JUMP_EQUAL, architecture, 1) + step(_RETURN, _END)
    code += step(_LOAD, _NUMBER_AT)
    if platform.machine() == "x86_64":  # the same calls have other numbers in this ABI
        code += step(_JUMP_ABOVE, _X32, 0, 1) + step(_RETURN, _REFUSE | _ENOSYS)
    for number in numbers:
        code += step(_JUMP_EQUAL, number, 0, 1) + step(_RETURN, _REFUSE | _EPERM)
    # The filter cannot read the arguments of clone3, so it reports the call as missing. The C library then calls clone,
    # whose flags the filter can read.
    code += step(_JUMP_EQUAL, _CLONE3[column], 0, 1) + step(_RETURN, _REFUSE | _ENOSYS)
    code += step(_JUMP_EQUAL, _CLONE[column], 0, 4) + step(_LOAD, _ARGUMENT_AT)
    code += step(_JUMP_BITS, _CLONE_THREAD, 1) + step(_RETURN, _REFUSE | _EPERM) + step(_RETURN, _ALLOW)
    for call, own in (
        (_KILL_PROCESS, os.getpid()),
        (_KILL_THREAD, os.getpid()),
        (_LIMIT, 0),
    ):  # only for this process
        code += step(_JUMP_EQUAL, call[column], 0, 4) + step(_LOAD, _ARGUMENT_AT)
        code += step(_JUMP_EQUAL, own, 1) + step(_RETURN, _REFUSE | _EPERM) + step(_RETURN, _ALLOW)
    return code + step(_RETURN, _ALLOW)


def _main() -> None:
    """Read the arguments: rights as JSON, then a command, or `-m`, a module, and the module's arguments."""
    given, *command = sys.argv[1:]
    try:
        confine(Rights(**json.loads(given)))
        if command[0] != "-m":
            os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    sys.argv[:] = command[1:]
    runpy.run_module(command[1], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
