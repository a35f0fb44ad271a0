"""One start of a board in QEMU, to its end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from codegen_c.emit.firmware import qemu_arguments
from codegen_c.targets.registry import startup_of
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.process import run_program
from tvm_ext.core.toolchain import find_program


def started(
    elf: Path,
    platform: Platform,
    shift: int | None,
    folder: Path,
    seconds: float,
    prefixes: Sequence[str],
    words: Sequence[str],
    more: Sequence[str],
) -> list[str]:
    """One start of the board with a command line of `words` in a folder: its report lines.

    shift: as `qemu_arguments` takes it. prefixes: of report lines, each before `instructions=`. more: arguments of
    QEMU's. Raises MissingTool, and RunFailed with what the board said.
    """
    assert platform.board is not None, "the caller has looked"
    emulator = startup_of(platform).emulator
    line = "".join(f",arg={word}" for word in words)
    command = [
        find_program(emulator), *qemu_arguments(platform, shift=shift),
        "-semihosting-config", f"enable=on,target=native{line}", "-kernel", str(elf.resolve()), *more,
    ]  # fmt: skip
    try:
        done = run_program(command, folder, seconds=seconds)
    except OSError as error:
        raise RunFailed(f"{emulator} could not be started: {error.strerror}.") from None
    said = (done.stdout + done.stderr).strip()
    lines = [re.search(rf"^{re.escape(one)}instructions=.*$", said, re.MULTILINE) for one in prefixes]
    if done.problem or done.status or None in lines:
        tail = "\n".join([":", *(text[:1000] for text in said.splitlines()[-12:])])
        silent = " and said nothing; look for an endless loop, or for what keeps it from starting."
        raise RunFailed(f"{elf.name} on {platform.board.qemu_machine} {done.left}{tail if said else silent}")
    return [found[0] for found in lines if found]
