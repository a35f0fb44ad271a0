"""`Makefile` and `CMakeLists.txt` of a package: the library, the self-test, and a board's firmware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from codegen_c.emit.firmware import (
    DMA_COUNT,
    counts_moves,
    emulator_arguments,
    firmware_libraries,
    firmware_link_flags,
    instruction_shift,
)
from codegen_c.emit.forms.form import PackageParts
from codegen_c.emit.forms.registry import cmake_of_forms, emit_forms
from codegen_c.emit.image import LINK_FLAGS, image_flags
from codegen_c.emit.module import module_file, module_link_flags, module_source
from codegen_c.emit.templates import render
from codegen_c.targets.registry import startup_of
from tvm_ext.core.compiler_flags import folder_of, specs_of
from tvm_ext.core.options import CompileFor
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import LANGUAGE_FLAGS, LLD_FLAGS, WARNING_FLAGS, linked_flags


def emit_build_files(
    model: str,
    sources: Sequence[str],
    platform: Platform,
    optimize: CompileFor,
    *,
    tested: Sequence[str] = (),
    otherwise: Sequence[str] = (),
    image: bool = False,
    own_flags: Mapping[str, Sequence[str]] = MappingProxyType({}),
    several: bool = False,
    module: bool = False,
    moves: bool = False,
    driver: str = "",
    parts: PackageParts | None = None,
) -> dict[str, str]:
    """Return the build files of a package by name; they work wherever the folder is copied.

    sources: C files of the library, as relative names; the self-test and `board/` are added here. tested: the models of
    a bundle, whose self-tests and firmware are built with the bundle's. otherwise: sources that are optimized for the
    other aim (size instead of speed, or the reverse). image: True if the package contains a relocatable image.
    own_flags: compiler flags of the sources that run on processors other than the first. several: True if several
    processors run the model. module: True if the package is also linked as a module. moves: True if the
    model copies between memories, as for `emit_firmware`. driver: source of the reference drivers of accelerators, if
    there are any. parts: description of the package for other build systems, whose files are added; None if some
    sources need flags of their own, which those systems cannot express.
    """
    toolchain, board = platform.toolchain, platform.board
    flags = {"speed": toolchain.speed_flags, "size": toolchain.size_flags}
    tests = [f"{model}_selftest.c", *(f"{one}_selftest.c" for one in tested)]
    tests += [f"{one}_vectors.c" for one in tested or (model,)]
    starts = ["board/processors.c"] if several else []
    copied = [*startup_of(platform).sources] if board else []
    copied += DMA_COUNT if board and moves and counts_moves(platform.on_machine) else ()
    further = [f"board/{name}" for name in copied if name.endswith(".c")]
    values = {
        "model": model,
        "platform": platform.name,
        "sources": sorted(sources),
        "prefix": toolchain.prefix,
        "compiler": toolchain.compiler_name,
        "gnu": [one for one in _in_project(linked_flags(toolchain))] if toolchain.crosses_with_clang else [],
        "language_flags": LANGUAGE_FLAGS,
        "warning_flags": WARNING_FLAGS,
        "platform_flags": _in_project(platform.flags_of(platform.processor), drop_specs=toolchain.crosses_with_clang),
        "has_folders": any(folder_of(one) for processor in platform.processors for one in platform.flags_of(processor)),
        "own_flags": {file: _in_project(flags) for file, flags in own_flags.items()},
        "threads": several,
        "driver": driver,
        "optimize_flags": flags[optimize],
        "other_flags": flags["size" if optimize == "speed" else "speed"],
        "otherwise": sorted(otherwise),
        "tests": tests,
        "firmware": [
            *(f"board/firmware_{one}.c" for one in tested),
            "board/firmware.c",
            "board/startup.c",
            *further,
            *starts,
        ],
        "board": board is not None,
        "archiver": toolchain.tool("ar"),
        "copier": toolchain.tool("objcopy"),
        "lld": LLD_FLAGS if toolchain.links_with_lld else (),
        "process": board is not None and board.is_process,
        "link": firmware_link_flags(platform, "board/link.ld") if board else [],
        "libraries": firmware_libraries(platform) if board else (),
        "module": module_source(model) if module else "",
        "module_file": module_file(model, platform) if module else "",
        "module_link": module_link_flags(platform) if module else [],
        "run": _run_command(platform, several) if board else [],
        "emulator": startup_of(platform).emulator_title if board else "",
        "run_place": startup_of(platform).run_place if board else "",
        "image_flags": image_flags(model, platform) if image else [],
        "link_flags": LINK_FLAGS,
        "head": cmake_of_forms(parts) if parts else "",
        "headers": sorted(parts.headers) if parts else (),
        "version": parts.version if parts else "",
    }
    own = {name: render(f"{name}.j2", **values) for name in ("CMakeLists.txt", "Makefile")}
    return own | (emit_forms(parts) if parts else {})


def _run_command(platform: Platform, several: bool) -> list[str]:
    """Return the command that runs the firmware PROGRAM, which the build files replace by its name."""
    startup, board = startup_of(platform), platform.board
    assert board is not None, "the caller checked the board"
    if startup.emulator_script:
        return [startup.emulator_runs, f"board/{startup.emulator_script}", "PROGRAM"]
    shift = None if several or board.is_process else instruction_shift(board)
    return [startup.emulator, *emulator_arguments(platform, "PROGRAM", shift=shift)]


def _in_project(flags: Sequence[str], *, drop_specs: bool = False) -> list[str]:
    """Return the flags with each folder in them relative to PROJECT, the variable of the build files.

    drop_specs: leave out the flags that name a specs file, which clang does not know.
    """
    kept = [flag for flag in flags if not (drop_specs and specs_of(flag))]
    return [flag.replace(folder, f"${{PROJECT}}/{folder}") if (folder := folder_of(flag)) else flag for flag in kept]
