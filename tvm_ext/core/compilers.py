"""Commands that compile and link C for a platform: GCC or clang, with the flags that the platform's file may hold.

clang compiles for a processor of its own choice of target and brings neither C library nor linker for it: headers of
the C library, and the link, are those of the GCC of the toolchain's prefix.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from tvm_ext.core.compiler_flags import folder_of, specs_of
from tvm_ext.core.errors import BadOptions, BuildFailed, MissingTool
from tvm_ext.core.options import Optimize
from tvm_ext.core.platform import Toolchain
from tvm_ext.core.tools import find_program, run_tool

# Multiplications are fused with additions where the code says so, and nowhere else: clang would, and change bits.
LANGUAGE_FLAGS = ("-std=c11", "-fno-strict-aliasing", "-ffp-contract=off", "-ffunction-sections", "-fdata-sections")
WARNING_FLAGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wcast-qual")
"""Warnings that build files of packages ask for. They stay warnings there: other compilers know other ones."""

STRICT_FLAGS = (*WARNING_FLAGS, "-Werror")
"""Warnings as errors, for the tests of this project and for a package's target `strict`."""

_STRICT = "TVM_EXT_STRICT_WARNINGS"
"""Environment variable by which the tests ask for `STRICT_FLAGS` in every compilation; `1` asks."""

SYSROOT = "TVM_EXT_SYSROOT"
"""Environment variable: the folder of headers and libraries of a cross compiler that has none of its own."""

_LINKED = ("-mcpu=", "-march=", "-mthumb", "-marm", "-mabi=", "-mfloat-abi=", "-mfpu=", "-mcmodel=", "-mcmse")
"""Beginnings of flags for clang that say which library GCC links, too."""


def find_compiler(toolchain: Toolchain) -> list[str]:
    """The C compiler as the head of an argument list: by its name, else `<prefix>gcc`, or for the host $CC, gcc, clang.

    Raises MissingTool.
    """
    if toolchain.prefix or toolchain.compiler:
        return [find_program(toolchain.compiler_name)]
    text = os.environ.get("CC", "")
    try:
        chosen = shlex.split(text)
    except ValueError as error:
        raise MissingTool(f"CC = {text!r}: is no command: {error}. Quote it as for a shell, or unset CC.") from None
    if chosen:
        return [find_program(chosen[0]), *chosen[1:]]
    return [find_program("gcc" if shutil.which("gcc") or not shutil.which("clang") else "clang")]


def compile_flags(toolchain: Toolchain, optimize: Optimize) -> list[str]:
    """Flags every source of a package is compiled with, warnings and folders of headers left out."""
    chosen = toolchain.speed_flags if optimize == "speed" else toolchain.size_flags
    return [*LANGUAGE_FLAGS, *toolchain.flags, *chosen]


def warning_flags() -> tuple[str, ...]:
    """Flags about warnings for C that is compiled here: none is reported, so that no result depends on the compiler's
    version, also where $CC asks for errors. The tests of this project take warnings for errors instead.
    """
    return STRICT_FLAGS if os.environ.get(_STRICT) == "1" else ("-w",)


def compile_command(toolchain: Toolchain, optimize: Optimize) -> list[str]:
    """The compiler and its flags, to which sources are added. Raises MissingTool, BuildFailed, BadOptions."""
    chosen = compile_flags(toolchain, optimize)
    compiler = find_compiler(toolchain)
    if not toolchain.crosses_with_clang:
        _check_specs(compiler, toolchain)
        return [*compiler, *_arguments(chosen, toolchain)]
    library = ["-idirafter", str(_library_headers(toolchain))]
    return [*compiler, *_arguments([one for one in chosen if not specs_of(one)], toolchain), *library]


def link_command(toolchain: Toolchain) -> list[str]:
    """The compiler that links, and its flags, to which objects are added. Raises as `compile_command` does."""
    if not toolchain.crosses_with_clang:
        compiler = find_compiler(toolchain)
        _check_specs(compiler, toolchain)
        return [*compiler, *_arguments(toolchain.flags, toolchain)]
    compiler = [find_program(f"{toolchain.prefix}gcc")]
    _check_specs(compiler, toolchain)
    return [*compiler, *_of_gcc(toolchain)]


def _arguments(flags: Sequence[str], toolchain: Toolchain) -> list[str]:
    """Flags without those that name folders beside the platform's file; the user's own sysroot, where there is one."""
    return [*(flag for flag in flags if folder_of(flag) is None), *_sysroot(toolchain)]


def _sysroot(toolchain: Toolchain) -> list[str]:
    """The flag for the folder that the user's environment names. Raises BadOptions for what is no folder."""
    folder = os.environ.get(SYSROOT, "")
    if not folder or not toolchain.prefix:
        return []
    if not os.path.isabs(folder) or not os.path.isdir(folder):
        raise BadOptions(
            f"{SYSROOT} = {folder!r}: is no folder by an absolute path; name the toolchain's, or unset it."
        )
    return [f"--sysroot={folder}"]


def linked_flags(toolchain: Toolchain) -> list[str]:
    """Flags for clang that the GCC which links takes, too, as the platform's file has them."""
    return [one for one in toolchain.flags if one.startswith((*_LINKED, "--sysroot=")) or specs_of(one)]


def _of_gcc(toolchain: Toolchain) -> list[str]:
    return _arguments(linked_flags(toolchain), toolchain)


def _library_headers(toolchain: Toolchain) -> Path:
    """Folder of the C library's headers that the toolchain's GCC takes. Raises MissingTool, BuildFailed."""
    compiler = find_program(f"{toolchain.prefix}gcc")
    probe = [compiler, *_of_gcc(toolchain), "-E", "-Wp,-v", "-x", "c", os.devnull]
    _check_specs([compiler], toolchain)
    said = run_tool(probe, Path.cwd(), reads=(), and_stderr=True)
    folders = [Path(line.strip()) for line in said.splitlines() if line.startswith(" ")]
    found = next((folder.resolve() for folder in folders if (folder / "string.h").is_file()), None)
    if found is None:
        raise BuildFailed(
            f"{Path(compiler).name} has no string.h: clang takes headers of the C library from it. Install the C "
            "library of that toolchain, or name its specs, such as -specs=picolibc.specs."
        )
    return found


def _check_specs(compiler: list[str], toolchain: Toolchain) -> None:
    """Raises BuildFailed where specs are not the compiler's own: else it would read a file of that name elsewhere."""
    for name in filter(None, map(specs_of, toolchain.flags)):
        given = linked_flags(toolchain) if toolchain.uses_clang else toolchain.flags
        others = [flag for flag in given if not specs_of(flag)]
        command = [*compiler, *_arguments(others, toolchain), f"-print-file-name={name}"]
        found = Path(run_tool(command, Path.cwd(), reads=()).strip())
        if not found.is_absolute():
            raise BuildFailed(
                f"-specs={name}: {Path(compiler[0]).name} has no specs of that name, and others are not read, for they "
                "say which programs run. Install the C library that brings them, or leave the flag out."
            )
