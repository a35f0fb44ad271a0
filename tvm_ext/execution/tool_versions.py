"""Versions of the programs and libraries that affect measurements: other versions give other instruction counts."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from codegen_c.targets.registry import startup_of
from tvm_ext.core.errors import MissingTool, TvmExtError
from tvm_ext.core.platform import HOST_TOOLCHAIN, Platform, Toolchain
from tvm_ext.core.processes.process import run_program
from tvm_ext.core.toolchain import find_compiler, find_program, link_command, linker_name

_TIME_LIMIT_S = 20
_LIBRARIES = ("libc.a", "libm.a", "libgcc.a")


def tool_versions(platform: Platform, *, host: bool = True, emulator: bool = True) -> list[str]:
    """Return the version lines of the C compiler, the linker and the board's emulator, and hashes of the C library.

    A missing program gives the error message instead. host: True to include the compiler of this machine, with which
    packages are verified. emulator: True if an emulator runs the board.
    """
    toolchain = platform.toolchain_of(platform.processor)
    asked: list[Callable[[], list[str]]] = [partial(find_compiler, toolchain)]
    if toolchain.crosses_with_clang:
        asked.append(lambda: [find_program(f"{toolchain.prefix}gcc")])
    if toolchain.prefix:
        asked.append(
            lambda: [find_program(linker_name(toolchain) if toolchain.links_with_lld else f"{toolchain.prefix}ld")]
        )
    if platform.board and emulator:
        asked.append(partial(_emulator, platform))
    if host:
        asked.append(partial(find_compiler, HOST_TOOLCHAIN))
    return [*map(_version_of, asked), *_libraries(toolchain)]


def _emulator(platform: Platform) -> list[str]:
    startup = startup_of(platform)
    return (
        [sys.executable, "-m", startup.emulator_module] if startup.emulator_module else [find_program(startup.emulator)]
    )


def _version_of(command: Callable[[], list[str]]) -> str:
    try:
        return _version(tuple(command()))
    except MissingTool as error:
        return str(error)


def _libraries(toolchain: Toolchain) -> list[str]:
    """Return the name and hash of each part of a cross compiler's C library."""
    if not toolchain.prefix:
        return []
    try:
        linker = link_command(toolchain)
    except TvmExtError as error:
        return [str(error)]
    places = [Path(_said((*linker, f"-print-file-name={name}"))) for name in _LIBRARIES]
    return [f"{place.name} {_hash(place, place.stat().st_mtime_ns)}" for place in places if place.is_file()]


@cache
def _hash(file: Path, _written: int) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@cache
def _version(command: tuple[str, ...]) -> str:
    return _said((*command, "--version"))


def _said(command: tuple[str, ...]) -> str:
    """Return the first line that a program prints."""
    try:
        done = run_program(command, Path("/"), seconds=_TIME_LIMIT_S)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return (done.stdout.splitlines() or [f"{command[0]} {done.left}"])[0]
