"""Programs and libraries that measured results come from: with another compiler or C library, other instructions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from codegen_c.targets.registry import startup_of
from tvm_ext.core.errors import MissingTool, TvmExtError
from tvm_ext.core.platform import HOST_TOOLCHAIN, Platform, Toolchain
from tvm_ext.core.processes.process import run_program
from tvm_ext.core.toolchain import find_compiler, find_program, link_command

_TIME_LIMIT_S = 20
_LIBRARIES = ("libc.a", "libm.a", "libgcc.a")


def tool_versions(platform: Platform, *, host: bool = True, emulator: bool = True) -> list[str]:
    """First lines that the C compiler, the linker and the board's emulator say of themselves, hashes of the C library.

    Of what is not here, its absence. host: the compiler of this machine, by which packages are verified, too.
    emulator: whether one runs the board.
    """
    toolchain = platform.toolchain_of(platform.processor)
    asked: list[Callable[[], list[str]]] = [partial(find_compiler, toolchain)]
    if toolchain.crosses_with_clang:
        asked.append(lambda: [find_program(f"{toolchain.prefix}gcc")])
    if toolchain.prefix:
        asked.append(lambda: [find_program(f"{toolchain.prefix}ld")])
    if platform.board and emulator:
        asked.append(lambda: [find_program(startup_of(platform).emulator)])
    if host:
        asked.append(partial(find_compiler, HOST_TOOLCHAIN))
    return [*map(_version_of, asked), *_libraries(toolchain)]


def _version_of(command: Callable[[], list[str]]) -> str:
    try:
        return _version(tuple(command()))
    except MissingTool as error:
        return str(error)


def _libraries(toolchain: Toolchain) -> list[str]:
    """Name and hash of each library that the C library of a cross compiler consists of."""
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
    """The first line that a program prints."""
    try:
        done = run_program(command, Path("/"), seconds=_TIME_LIMIT_S)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return (done.stdout.splitlines() or [f"{command[0]} {done.left}"])[0]
