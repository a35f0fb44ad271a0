"""Start an emulator on firmware without the right to start other programs, and compile QEMU's plugins.

By semihosting, firmware can ask QEMU to open, write, rename and remove files, and to run a shell command (SYS_SYSTEM).
Our firmware needs only two files. QEMU therefore gets rights to these files, to its own program and to its libraries,
and no right to start a process. The kernel enforces this (`tvm_ext/core/processes/confine.py`), and QEMU's own
`-sandbox` enforces it again if QEMU was built with it.

A process of an emulator has the same rights. Its system calls reach this machine's kernel, so it only starts where the
kernel filters them. A program that a Python module runs makes no system calls: the module offers it the two files.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path

from codegen_c.emit.firmware import LINKER_SCRIPT, emulator_arguments, firmware_libraries, firmware_link_flags
from codegen_c.targets.instruction_set import Startup
from codegen_c.targets.registry import machine_name, startup_of, startup_text
from tvm_ext.core.errors import BuildFailed, MissingTool, RunFailed
from tvm_ext.core.platform import HOST_TOOLCHAIN, Platform
from tvm_ext.core.processes.confine import Rights, confined_command, confined_module, has_filter
from tvm_ext.core.processes.process import allowed_seconds, run_program
from tvm_ext.core.toolchain import (
    compile_objects,
    find_program,
    installed,
    link_program,
    linker_name,
    shared_library,
    undefined_symbols,
)

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


def runs_board(platform: Platform) -> bool:
    """Return True if this machine has the compiler and the emulator of a platform's board, and can confine firmware."""
    startup, toolchain = startup_of(platform), platform.toolchain
    compilers = [toolchain.compiler_name, linker_name(toolchain)] if toolchain.prefix else []
    if not all(map(installed, compilers)):
        return False
    if startup.emulator_module:
        return find_spec(startup.emulator) is not None
    return installed(startup.emulator) is not None and _keeps_firmware_in(platform, find_program(startup.emulator))


def _keeps_firmware_in(platform: Platform, emulator: str) -> bool:
    """Return True if the emulator or this machine's kernel prevents firmware from running programs."""
    return bool(_own_sandbox(platform, emulator)) or has_filter()


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

    Raises MissingTool, and RunFailed if nothing on this machine can prevent the emulator from starting programs.
    """
    given, startup = extras or QemuExtras(), startup_of(platform)
    if startup.emulator_module:
        return _module_command(startup, elf, folder, words, given)
    emulator = find_program(startup.emulator)
    own = _own_sandbox(platform, emulator)
    if not _keeps_firmware_in(platform, emulator):
        raise RunFailed(
            f"{Path(emulator).name} has no -sandbox, and this machine has no filter of system calls, so "
            "nothing prevents firmware from running programs here. Install a QEMU with seccomp, or leave the board out "
            "with --verify host."
        )
    further = emulator_arguments(platform, str(elf.resolve()), words, shift=shift, extras=given.arguments)
    rights = _rights(elf, folder, given, reads=_program_folders(emulator), executes=True, demands_filter=not own)
    if startup.runs == "process":  # its system calls reach this machine's kernel
        rights = replace(rights, programs=(str(Path(emulator).resolve()), *_loaders()))
    return confined_command(rights, [emulator, *own, *further])


def _loaders() -> list[str]:
    """Return the loaders of shared libraries, which the kernel starts together with a program."""
    folders = [folder for folder in map(Path, ("/lib", "/lib64")) if folder.is_dir()]
    return [str(path.resolve()) for folder in folders for path in folder.glob("ld-*.so*")]


def _module_command(startup: Startup, elf: Path, folder: Path, words: Sequence[str], extras: QemuExtras) -> list[str]:
    """Return the command that lets a Python module run a program. Raises MissingTool without the package it needs."""
    if find_spec(startup.emulator) is None:
        raise MissingTool(
            f"{startup.emulator} is not installed, which runs the firmware: pip install {startup.emulator}."
        )
    rights = _rights(elf, folder, extras, reads=None)
    return confined_module(rights, startup.emulator_module, [str(elf.resolve()), *words])


def _rights(
    elf: Path,
    folder: Path,
    extras: QemuExtras,
    *,
    reads: Sequence[str] | None,
    executes: bool = False,
    demands_filter: bool = False,
) -> Rights:
    """Return the rights of an emulator, and create the files that it may write. reads: its own files, None for all."""
    writes = [folder / OUTPUTS, *extras.writes]
    for path in writes:
        path.touch()
    files_read = [elf, folder / INPUTS, *extras.reads, *writes]
    return Rights(
        reads=None if reads is None else (*reads, *(str(path.resolve()) for path in files_read)),
        writes=tuple(str(path.resolve()) for path in writes),
        executes=executes, file_bytes=_FILE_BYTES, demands_filter=demands_filter,
    )  # fmt: skip


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
    command = qemu_command(elf, platform, folder, shift=shift, words=words, extras=extras)
    done = run_program(command, folder, seconds=seconds)
    said = (done.stdout + done.stderr).strip()
    lines = [re.search(rf"^{re.escape(one)}instructions=.*$", said, re.MULTILINE) for one in prefixes]
    if done.problem or done.status or None in lines:
        tail = "\n".join([":", *(text[:1000] for text in said.splitlines()[-12:])])
        silent = " and printed nothing; look for an endless loop, or for a reason why it does not start."
        left = _FORBIDDEN if done.status == -signal.SIGSYS and not done.problem else done.left
        raise RunFailed(f"{elf.name} on {machine_name(platform)} {left}{tail if said else silent}")
    return [found[0] for found in lines if found]


_FORBIDDEN = "was stopped, because it made a forbidden request to QEMU, such as to run a command on this machine"


def _own_sandbox(platform: Platform, emulator: str) -> tuple[str, ...]:
    """Return the emulator's arguments that forbid it to start processes; a process of an emulator has none."""
    return () if platform.board is None or platform.board.is_process else _sandboxed(emulator)


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


def link_firmware(
    objects: Sequence[Path], elf: Path, platform: Platform, board: Path, *, flags: Sequence[str] = ()
) -> Path:
    """Link the firmware of a platform's board, dropping code that is not reached.

    board: folder of the board's files, with the linker script if there is one. Raises MissingTool, BuildFailed,
    DoesNotFit.
    """
    own = firmware_link_flags(platform, str((board / LINKER_SCRIPT).resolve()))
    toolchain = platform.toolchain_of(platform.processor)
    try:
        return link_program(objects, elf, toolchain, flags=[*flags, *own], libraries=firmware_libraries(platform))
    except BuildFailed:
        if absent := _absent_functions(objects, platform):
            raise BuildFailed(
                f"{elf.name}: the model calls {', '.join(absent)}. The toolchain of {platform.name} has no C library, "
                "and the firmware for the emulator does not define these functions. Copy the platform's file, remove "
                "its [board] table, and compile for the copy: the package is then verified on the host only."
            ) from None
        raise


def _absent_functions(objects: Sequence[Path], platform: Platform) -> list[str]:
    """Return the functions that the headers of the start-up code declare and no object defines."""
    startup = startup_of(platform)
    declared = " ".join(startup_text(name, startup) for name in startup.headers)
    names = undefined_symbols(objects, platform.toolchain) if declared else ()
    return sorted(name for name in names if re.search(rf"\b{re.escape(name)}\(", declared))


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
