"""Find and run the programs of a toolchain. No shell is involved anywhere."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from tvm_ext.core.errors import BuildFailed, MissingTool, OutOfMemory
from tvm_ext.core.memory_exhausted import check_memory, message, says_memory
from tvm_ext.core.processes.process import allowed_seconds, run_program

_LEAST_SECONDS = 120.0
_SECONDS_PER_MIB = 60.0  # of what a tool reads: some twenty times what GCC takes for generated sources
_ERROR_LINES = 12
_LINE_CHARACTERS = 1000
_PACKAGES = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi and libnewlib-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
    "qemu-system-riscv32": "qemu-system-misc",
    "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf and picolibc-riscv64-unknown-elf",
    "gcc": "gcc",
    "clang": "clang",
}


def installed(name: str) -> str | None:
    """Path of a program on PATH; None where it is not there.

    Relative entries of PATH are left out: platforms name tools, too, and a file of the working folder is none.
    """
    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
    return shutil.which(name, path=os.pathsep.join(folders))


def find_program(name: str) -> str:
    """Path of a program as `installed` finds it. Raises MissingTool with the Debian package that holds it."""
    path = installed(name)
    if path:
        return path
    command = install_hint(name)
    hint = f"install it (Debian, Ubuntu: {command})" if command else "install it"
    raise MissingTool(f"{name} is not on PATH; {hint} or add its folder to PATH.")


def install_hint(name: str) -> str:
    """The command that installs a program on Debian and Ubuntu; empty for unknown ones."""
    known = re.sub(r"(ar|size|objdump|objcopy|nm)$", "gcc", name)
    package = name if re.fullmatch(r"clang-[0-9]+", name) else _PACKAGES.get(known)
    return f"apt install {package.replace(' and ', ' ')}" if package else ""


def made_by(target: Path, tool: str) -> Path:
    """The file that a tool said it made. Raises BuildFailed where it did not."""
    if not target.is_file():
        raise BuildFailed(f"{Path(tool).name} made no {target.name}, and did not say why. Is it what PATH and CC mean?")
    return target


def run_tool(command: Sequence[str], folder: Path, *, reads: Iterable[Path], and_stderr: bool = False) -> str:
    """Standard output of a tool, and what it says beside if that is asked for.

    Raises BuildFailed with the first lines of its complaints.
    """
    name = Path(command[0]).name
    read_bytes = sum(path.stat().st_size for path in reads if path.is_file())
    seconds = allowed_seconds(_LEAST_SECONDS + _SECONDS_PER_MIB * read_bytes / (1 << 20))
    try:
        done = run_program(command, folder, seconds=seconds, environment={**os.environ, "LC_ALL": "C"})
    except OSError as error:
        check_memory(error)
        raise BuildFailed(f"{name} could not be started: {error.strerror}.") from None
    if done.status and says_memory(done.stderr):
        raise OutOfMemory(message(f"{name}: {' '.join(done.stderr.split())[-200:]}"))
    if done.problem or done.status:
        lines = (done.stderr or done.stdout).strip().splitlines()
        more = [f"... {len(lines) - _ERROR_LINES} more lines"] if len(lines) > _ERROR_LINES else []
        said = "\n".join(["", *(line[:_LINE_CHARACTERS] for line in lines[:_ERROR_LINES]), *more])
        raise BuildFailed(f"{name} {done.left} in {folder}{':' if lines else '.'}{said if lines else ''}")
    return done.stderr + done.stdout if and_stderr else done.stdout
