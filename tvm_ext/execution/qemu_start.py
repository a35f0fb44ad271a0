"""Start QEMU on firmware without the right to start other programs, and compile QEMU's plugins.

By semihosting, firmware can ask QEMU to open, write, rename and remove files, and to run a shell command (SYS_SYSTEM).
Our firmware needs only two files. QEMU therefore gets rights to these files, to its own program and to its libraries,
and no right to start a process. The kernel enforces this (`tvm_ext/core/processes/confine.py`), and QEMU's own
`-sandbox` enforces it again if QEMU was built with it.
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
"""Files that firmware reads and writes, in its working folder."""

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
"""Folders of a system's programs and libraries, from which QEMU and its libraries are read."""
_PREFIX_FOLDERS = ("lib", "lib64", "libexec", "share")
"""Folders beside the folder of QEMU's program that it reads if it is installed under another prefix."""
_FILE_BYTES = 1 << 30
_PROBE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class QemuExtras:
    """Additional arguments of QEMU, and the files that they read and write."""

    arguments: tuple[str, ...] = ()
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()

    def __add__(self, other: QemuExtras) -> QemuExtras:
        return QemuExtras(
            arguments=(*self.arguments, *other.arguments), reads=(*self.reads, *other.reads),
            writes=(*self.writes, *other.writes),
        )  # fmt: skip


def keeps_firmware_in(emulator: str) -> bool:
    """Return True if the emulator or this machine's kernel prevents firmware from running programs."""
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
    """Return the command that starts firmware on its board, with arguments `words`, in the working folder `folder`.

    The firmware may only read `in.bin`, write `out.bin`, and use the files of `extras`. Files to write are created here
    if they do not exist, because the sandbox needs their paths. shift: as in `qemu_arguments`.

    Raises MissingTool, and RunFailed if nothing on this machine can prevent QEMU from starting programs.
    """
    given = extras or QemuExtras()
    emulator = find_program(startup_of(platform).emulator)
    own = _sandboxed(emulator)
    if not keeps_firmware_in(emulator):
        raise RunFailed(
            f"{Path(emulator).name} was built without -sandbox, and this machine has no filter of system calls, so "
            "nothing prevents firmware from running programs here. Install a QEMU with seccomp, or leave the board out "
            "with --verify host."
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
    """Run the board to its end and return its report lines. shift, words, extras: as in `qemu_command`.

    prefixes: texts before `instructions=` in the report lines, one for each line.
    Raises MissingTool, and RunFailed with the board's output.
    """
    assert platform.board is not None, "the caller checked the board"
    command = qemu_command(elf, platform, folder, shift=shift, words=words, extras=extras)
    done = run_program(command, folder, seconds=seconds)
    said = (done.stdout + done.stderr).strip()
    lines = [re.search(rf"^{re.escape(one)}instructions=.*$", said, re.MULTILINE) for one in prefixes]
    if done.problem or done.status or None in lines:
        tail = "\n".join([":", *(text[:1000] for text in said.splitlines()[-12:])])
        silent = " and printed nothing; look for an endless loop, or for a reason why it does not start."
        left = _FORBIDDEN if done.status == -signal.SIGSYS and not done.problem else done.left
        raise RunFailed(f"{elf.name} on {platform.board.qemu_machine} {left}{tail if said else silent}")
    return [found[0] for found in lines if found]


_FORBIDDEN = "was stopped, because it made a forbidden request to QEMU, such as to run a command on this machine"


@cache
def _sandboxed(emulator: str) -> tuple[str, ...]:
    """Return QEMU's arguments that forbid it to start processes; empty if it was built without a sandbox."""
    done = run_program([emulator, *_SANDBOX, "-version"], Path("/"), seconds=allowed_seconds(_PROBE_SECONDS))
    return () if done.problem or done.status else _SANDBOX


def _program_folders(emulator: str) -> list[str]:
    """Return the files and folders from which QEMU's program, its libraries and its firmware are read."""
    program = Path(emulator).resolve()
    beside = [str(program.parent.parent / name) for name in _PREFIX_FOLDERS]
    libraries = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path.startswith("/")]
    return [*_SYSTEM, str(program), *beside, *libraries]


def compiled_plugin(package: str, name: str, folder: Path) -> Path:
    """Compile a QEMU plugin to a library in `folder`. package: the Python package that holds `<name>.c`.

    Raises MissingTool, BuildFailed.
    """
    with as_file(files("tvm_ext.execution")) as headers, as_file(files(package) / f"{name}.c") as source:
        objects = compile_objects([source], folder, HOST_TOOLCHAIN, flags=["-fPIC"], include_dirs=[headers])
    return shared_library(objects, folder / f"{name}.so", HOST_TOOLCHAIN)


def quoted(path: Path) -> str:
    """Return a path in the form of QEMU's option lists, in which a comma is written twice."""
    return str(path.resolve()).replace(",", ",,")
