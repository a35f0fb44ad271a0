"""Call C compilers and binary tools: objects, libraries, ELF files, section sizes.

No shell is involved anywhere. Tools run in the folder of the source with relative names, so equal
sources give equal objects wherever they lie.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tvm_ext.core.compilers import (
    LANGUAGE_FLAGS,
    STRICT_FLAGS,
    WARNING_FLAGS,
    compile_command,
    compile_flags,
    find_compiler,
    link_command,
    warning_flags,
)
from tvm_ext.core.errors import BuildFailed, DoesNotFit
from tvm_ext.core.options import Optimize
from tvm_ext.core.platform import Toolchain
from tvm_ext.core.processes.at_once import turns
from tvm_ext.core.tools import find_program, made_by, run_tool

__all__ = [
    "LANGUAGE_FLAGS",
    "STRICT_FLAGS",
    "WARNING_FLAGS",
    "SectionSizes",
    "compile_flags",
    "compile_objects",
    "disassembly",
    "find_compiler",
    "find_program",
    "function_ranges",
    "host_program",
    "link_elf",
    "raw_binary",
    "section_ranges",
    "section_sizes",
    "shared_library",
    "static_library",
    "symbol_sizes",
    "undefined_symbols",
]

_UNTOLD = ("armv8.1-m.main",)


@dataclass(frozen=True, kw_only=True)
class SectionSizes:
    """Bytes an object file takes: instructions, constants, initialised variables, zeroed variables."""

    text: int = 0
    rodata: int = 0
    data: int = 0
    bss: int = 0


def compile_objects(
    sources: Sequence[Path],
    out_dir: Path,
    toolchain: Toolchain,
    *,
    optimize: Optimize = "speed",
    flags: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
) -> list[Path]:
    """Compile each source to `out_dir/<stem>.o`, in the order given; stems must differ.

    Raises MissingTool, and BuildFailed with the compiler's first lines. Warnings are neither reported nor errors.
    """
    stems = [source.stem for source in sources]
    if len(set(stems)) < len(stems):
        raise BuildFailed(f"two sources would share an object file: {', '.join(sorted(stems))}; rename one.")
    out_dir.mkdir(parents=True, exist_ok=True)
    head = [*compile_command(toolchain, optimize), *warning_flags(), *flags]
    for folder in include_dirs:
        head += ["-I", str(folder.resolve()), f"-ffile-prefix-map={folder.resolve()}={folder.name}"]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(partial(_compile, out_dir.resolve(), head, turns()), sources))


def _compile(out_dir: Path, head: Sequence[str], turn: AbstractContextManager[object], source: Path) -> Path:
    folder = source.parent.resolve()
    target = out_dir / f"{source.stem}.o"
    with turn:
        run_tool([*head, f"-ffile-prefix-map={folder}=.", "-c", source.name, "-o", str(target)], folder, reads=[source])
    return made_by(target, head[0])


def static_library(objects: Sequence[Path], library: Path, toolchain: Toolchain) -> Path:
    """Archive of objects without times, owners or paths; an existing file is replaced."""
    library.unlink(missing_ok=True)
    archiver = find_program(f"{toolchain.prefix}ar")
    run_tool([archiver, "rcsD", str(library.resolve()), *_absolute(objects)], library.parent, reads=objects)
    return made_by(library, archiver)


def shared_library(objects: Sequence[Path], library: Path, toolchain: Toolchain, *, flags: Sequence[str] = ()) -> Path:
    """Shared library of objects that were compiled with -fPIC, for ctypes on the host."""
    linker = link_command(toolchain)
    output = str(library.resolve())
    command = [*linker, *flags, "-shared", "-o", output, *_absolute(objects), "-lm"]
    run_tool(command, library.parent, reads=objects)
    return made_by(library, linker[0])


def host_program(objects: Sequence[Path], program: Path, toolchain: Toolchain, *, flags: Sequence[str] = ()) -> Path:
    """Link a program for this machine. Raises MissingTool, BuildFailed."""
    command = [*link_command(toolchain), *flags, "-o", str(program.resolve()), *_absolute(objects)]
    run_tool([*command, "-lm"], program.parent, reads=objects)
    return made_by(program, command[0])


def link_elf(
    objects: Sequence[Path], elf: Path, toolchain: Toolchain, *, script: Path, flags: Sequence[str] = ()
) -> Path:
    """Link firmware by a linker script; what is not reached from the vector table is dropped.

    Raises BuildFailed, and DoesNotFit where memories are too small.
    """
    fixed = ["-nostartfiles", "-Wl,--gc-sections", "-T", str(script.resolve())]
    tail = ["-o", str(elf.resolve()), *_absolute(objects), "-lm"]
    linker = link_command(toolchain)
    try:
        run_tool([*linker, *flags, *fixed, *tail], elf.parent, reads=objects)
    except BuildFailed as error:
        missing = re.findall(r"region `(\w+)' overflowed by (\d+) bytes?", str(error))
        if not missing:
            raise
        said = ", ".join(f"{memory} is {num_bytes} B too small" for memory, num_bytes in missing)
        raise DoesNotFit(
            f"{elf.name}: {said} for the firmware: code, constants, variables and stack, self-test and its vectors "
            "included. Try a larger memory, an int8 model, or --optimize size."
        ) from None
    return made_by(elf, linker[0])


def disassembly(elf: Path, toolchain: Toolchain, *, machine: str = "") -> str:
    """Instructions of an ELF as objdump prints them, without their bytes. Raises MissingTool, BuildFailed.

    machine: name of the architecture. It is told to objdump where an ELF does not tell: else vector instructions look
    like a coprocessor's. Of others objdump does not know all names.
    """
    chosen = ["-m", machine] if machine in _UNTOLD else []
    command = [find_program(f"{toolchain.prefix}objdump"), "-d", "--no-show-raw-insn", *chosen, str(elf.resolve())]
    return run_tool(command, elf.parent, reads=[elf])


def section_sizes(objects: Sequence[Path], toolchain: Toolchain) -> dict[str, SectionSizes]:
    """Sizes per object file (by file name), sorted into kinds by section flags, so own section names count too."""
    if not objects:
        return {}
    folder = objects[0].parent
    text = run_tool(
        [find_program(f"{toolchain.prefix}objdump"), "-h", "-w", *_absolute(objects)], folder, reads=objects
    )
    found: dict[str, dict[str, int]] = {}
    current: dict[str, int] = {}
    for line in text.splitlines():
        if ":     file format" in line:
            current = found.setdefault(Path(line.split(":     file format")[0]).name, {})
        match = re.match(r"\s*\d+\s+\S+\s+([0-9a-f]+)\s+[0-9a-f]+\s+[0-9a-f]+\s+[0-9a-f]+\s+\S+\s+(.*)", line)
        kind = section_kind(match[2]) if match else None
        if match and kind:
            current[kind] = current.get(kind, 0) + int(match[1], 16)
    return {name: SectionSizes(**sizes) for name, sizes in found.items()}


def section_ranges(elf: Path, toolchain: Toolchain) -> list[tuple[int, int]]:
    """Addresses [begin, end) that an ELF's sections take, where they run and where they are loaded."""
    command = [find_program(f"{toolchain.prefix}objdump"), "-h", "-w", str(elf.resolve())]
    found: list[tuple[int, int]] = []
    for line in run_tool(command, elf.parent, reads=[elf]).splitlines():
        match = re.match(r"\s*\d+\s+\S+\s+([0-9a-f]+)\s+([0-9a-f]+)\s+([0-9a-f]+)\s+\S+\s+\S+\s+(.*)", line)
        if match and "ALLOC" in match[4]:
            size = int(match[1], 16)
            found += [(begin, begin + size) for begin in sorted({int(match[2], 16), int(match[3], 16)})]
    return found


def raw_binary(elf: Path, target: Path, toolchain: Toolchain, *, section: str) -> Path:
    """A file of the bytes of an ELF's section."""
    copier = find_program(f"{toolchain.prefix}objcopy")
    wanted = ["-O", "binary", "-j", section, str(elf.resolve()), str(target.resolve())]
    run_tool([copier, *wanted], elf.parent, reads=[elf])
    return made_by(target, copier)


def undefined_symbols(objects: Sequence[Path], toolchain: Toolchain) -> set[str]:
    """Names that objects use and none of them defines."""
    program = find_program(f"{toolchain.prefix}nm")
    wanted = run_tool([program, "-u", *_absolute(objects)], objects[0].parent, reads=objects)
    defined = run_tool([program, "--defined-only", *_absolute(objects)], objects[0].parent, reads=objects)
    names = set(re.findall(r"^\S+ \S (\S+)$", defined, re.MULTILINE))
    return set(re.findall(r"^\s+U (\S+)$", wanted, re.MULTILINE)) - names


def function_ranges(elf: Path, toolchain: Toolchain) -> list[tuple[str, int, int]]:
    """Name and addresses [begin, end) of each function of an ELF, also of those that only one file knows."""
    text = run_tool([find_program(f"{toolchain.prefix}nm"), "-S", str(elf.resolve())], elf.parent, reads=[elf])
    found = re.findall(r"^([0-9a-f]+) ([0-9a-f]+) [tTwW] (\S+)$", text, re.MULTILINE)
    return [(name, begin, begin + int(size, 16)) for at, size, name in found for begin in (int(at, 16) & ~1,)]


def symbol_sizes(objects: Sequence[Path], toolchain: Toolchain) -> dict[str, int]:
    """Bytes of each function and variable that objects define for others, by name."""
    if not objects:
        return {}
    command = [find_program(f"{toolchain.prefix}nm"), "-S", "--defined-only", "--extern-only", *_absolute(objects)]
    text = run_tool(command, objects[0].parent, reads=objects)
    return {name: int(size, 16) for size, name in re.findall(r"^[0-9a-f]+ ([0-9a-f]+) \S (\S+)$", text, re.MULTILINE)}


def section_kind(section_flags: str) -> str | None:
    """Size that a section counts towards; None for a section that is not in the target's memory."""
    flags = set(re.split(r",\s*", section_flags.strip()))
    if "ALLOC" not in flags:
        return None
    if "CODE" in flags:
        return "text"
    if "CONTENTS" not in flags:
        return "bss"
    return "rodata" if "READONLY" in flags else "data"


def _absolute(paths: Iterable[Path]) -> list[str]:
    return [str(path.resolve()) for path in paths]
