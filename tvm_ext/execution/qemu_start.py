"""Start QEMU on firmware, without the right to start other programs, and compile QEMU's plugins.

Firmware calls its debugger by semihosting, and QEMU does what it asks: open, write, rename and remove files, run a
command by the shell (SYS_SYSTEM). Firmware needs two files. So QEMU gets rights to these alone, and to its own program
and libraries, and none to start a process: by the kernel (`tvm_ext/core/processes/confine.py`) before QEMU begins, and
once more by QEMU's own `-sandbox`, where it has that.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from codegen_c.emit.firmware import qemu_arguments
from codegen_c.targets.registry import startup_of
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.platform import HOST_TOOLCHAIN, Platform
from tvm_ext.core.processes.confine import Rights, confined_command, has_filter
from tvm_ext.core.processes.process import allowed_seconds, run_program
from tvm_ext.core.toolchain import compile_objects, find_program, shared_library

INPUTS, OUTPUTS = "in.bin", "out.bin"
"""Files that firmware reads and writes in the folder that it runs in."""

_SANDBOX = ("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
_SYSTEM = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/home/linuxbrew",
    "/etc/ld.so.cache",
)
"""Programs and libraries of a system: QEMU and what it is linked with are read from there."""
_PREFIX_FOLDERS = ("lib", "lib64", "libexec", "share")
"""Folders beside that of QEMU's program, where it is installed elsewhere."""
_FILE_BYTES = 1 << 30
_PROBE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class QemuExtras:
    """Arguments of QEMU's beside those of the board, and the files that these concern."""

    arguments: tuple[str, ...] = ()
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()

    def __add__(self, other: QemuExtras) -> QemuExtras:
        return QemuExtras(
            arguments=(*self.arguments, *other.arguments), reads=(*self.reads, *other.reads),
            writes=(*self.writes, *other.writes),
        )  # fmt: skip


def keeps_firmware_in(emulator: str) -> bool:
    """Whether an emulator, or this machine, keeps firmware from running programs."""
    return bool(_sandboxed(emulator)) or has_filter()


def qemu_command(
    elf: Path,
    platform: Platform,
    folder: Path,
    *,
    shift: int | None,
    words: Sequence[str] = (),
    extras: QemuExtras | None = None,
) -> list[str]:
    """The command that starts firmware on its board with a command line of `words`; it runs in `folder`.

    The firmware reads `in.bin` and writes `out.bin` there; files that extras name are read and written, too, and no
    others. What is written is made here, empty, where it does not exist. shift: as `qemu_arguments` takes it.

    Raises MissingTool, and RunFailed where nothing here keeps QEMU from starting programs.
    """
    given = extras or QemuExtras()
    emulator = find_program(startup_of(platform).emulator)
    own = _sandboxed(emulator)
    if not keeps_firmware_in(emulator):
        raise RunFailed(
            f"{Path(emulator).name}: was built without -sandbox, and this machine has no filter of system calls, so "
            "nothing keeps firmware from running programs here. --verify host leaves the board out; or install a QEMU "
            "with seccomp."
        )
    line = "".join(f",arg={word}" for word in words)
    command = [
        emulator, *qemu_arguments(platform, shift=shift), *own,
        "-semihosting-config", f"enable=on,target=native{line}", "-kernel", str(elf.resolve()), *given.arguments,
    ]  # fmt: skip
    writes = [folder / OUTPUTS, *given.writes]
    for path in writes:
        path.touch()
    reads = [elf, folder / INPUTS, *given.reads, *writes]
    rights = Rights(
        reads=(*_program_folders(emulator), *(str(path.resolve()) for path in reads)),
        writes=tuple(str(path.resolve()) for path in writes),
        executes=True, file_bytes=_FILE_BYTES, demands_filter=not own,
    )  # fmt: skip
    return confined_command(rights, command)


def started(
    elf: Path,
    platform: Platform,
    shift: int | None,
    folder: Path,
    seconds: float,
    prefixes: Sequence[str],
    words: Sequence[str],
    extras: QemuExtras,
) -> list[str]:
    """One start of the board to its end: its report lines. shift, words, extras: as `qemu_command` takes them.

    prefixes: of report lines, each before `instructions=`.
    Raises MissingTool, and RunFailed with what the board said.
    """
    assert platform.board is not None, "the caller has looked"
    command = qemu_command(elf, platform, folder, shift=shift, words=words, extras=extras)
    done = run_program(command, folder, seconds=seconds)
    said = (done.stdout + done.stderr).strip()
    lines = [re.search(rf"^{re.escape(one)}instructions=.*$", said, re.MULTILINE) for one in prefixes]
    if done.problem or done.status or None in lines:
        tail = "\n".join([":", *(text[:1000] for text in said.splitlines()[-12:])])
        silent = " and said nothing; look for an endless loop, or for what keeps it from starting."
        left = _FORBIDDEN if done.status == -signal.SIGSYS and not done.problem else done.left
        raise RunFailed(f"{elf.name} on {platform.board.qemu_machine} {left}{tail if said else silent}")
    return [found[0] for found in lines if found]


_FORBIDDEN = "was ended, since it asked QEMU for what is forbidden, such as to run a command of this machine"


@cache
def _sandboxed(emulator: str) -> tuple[str, ...]:
    """QEMU's arguments by which it denies itself new processes; none where it was built without."""
    done = run_program([emulator, *_SANDBOX, "-version"], Path("/"), seconds=allowed_seconds(_PROBE_SECONDS))
    return () if done.problem or done.status else _SANDBOX


def _program_folders(emulator: str) -> list[str]:
    """Files and folders that QEMU's program, its libraries and its firmware are read from."""
    program = Path(emulator).resolve()
    beside = [str(program.parent.parent / name) for name in _PREFIX_FOLDERS]
    libraries = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path.startswith("/")]
    return [*_SYSTEM, str(program), *beside, *libraries]


def compiled_plugin(package: str, name: str, folder: Path) -> Path:
    """The library of a plugin in `folder`. package: Python's, in which `<name>.c` stands.

    Raises MissingTool, BuildFailed.
    """
    with as_file(files("tvm_ext.execution")) as headers, as_file(files(package) / f"{name}.c") as source:
        objects = compile_objects([source], folder, HOST_TOOLCHAIN, flags=["-fPIC"], include_dirs=[headers])
    return shared_library(objects, folder / f"{name}.so", HOST_TOOLCHAIN)


def quoted(path: Path) -> str:
    """A path as QEMU reads it in a list of options: two commas are one."""
    return str(path.resolve()).replace(",", ",,")
