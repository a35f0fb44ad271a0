"""Versions of the programs that figures of a full build come from: another compiler, other instructions."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from codegen_c.targets.registry import startup_of
from tvm_ext.core.errors import MissingTool
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.process import run_program
from tvm_ext.core.toolchain import find_compiler, find_program

_TIME_LIMIT_S = 20


def tool_versions(platform: Platform) -> list[str]:
    """First lines that the C compiler and the board's emulator say of themselves; of what is not here, its absence."""
    try:
        commands = [find_compiler(platform.toolchain)]
        commands += [[find_program(startup_of(platform).emulator)]] if platform.board else []
    except MissingTool as error:
        return [str(error)]
    return [_version(tuple(command)) for command in commands]


@cache
def _version(command: tuple[str, ...]) -> str:
    try:
        done = run_program([*command, "--version"], Path.cwd(), seconds=_TIME_LIMIT_S)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return (done.stdout.splitlines() or [f"{command[0]} {done.left}"])[0]
