"""Call C compilers and binary tools: command lines, objects, libraries, ELF files, and their sections.

No shell is involved anywhere. Tools run in the folder of the source with relative names, so equal
sources give equal objects wherever they lie.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_ext.core.compiler_flags import folder_of, specs_of
from tvm_ext.core.errors import BadOptions, BuildFailed, DoesNotFit, MissingTool, OutOfMemory
from tvm_ext.core.kept_objects import compile_kept
from tvm_ext.core.memory_exhausted import check_memory, message, says_memory
from tvm_ext.core.options import CompileFor
from tvm_ext.core.processes.at_once import turns
from tvm_ext.core.processes.process import allowed_seconds, run_program
from tvm_ext.core.section_table import FILE_HEADING, DataSegment, has_segments, parsed_section, segments_of

if TYPE_CHECKING:
    from tvm_ext.core.platform import Toolchain  # imports pydantic, for which --help does not wait

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
    "link_program",
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
    """Bytes of an object file: instructions, constants, initialized variables, zeroed variables."""

    text: int = 0
    rodata: int = 0
    data: int = 0
    bss: int = 0


def compile_objects(
    sources: Sequence[Path],
    out_dir: Path,
    toolchain: Toolchain,
    *,
    optimize: CompileFor = "speed",
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
    folders = tuple(folder.resolve() for folder in include_dirs)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(partial(_compile, out_dir.resolve(), tuple(head), folders, turns()), sources))


def _compile(
    out_dir: Path,
    head: tuple[str, ...],
    folders: tuple[Path, ...],
    turn: AbstractContextManager[object],
    source: Path,
) -> Path:
    """Compile a source, or take its object from the cache. head: compiler and flags. folders: of headers."""
    source = source.parent.resolve() / source.name
    target = out_dir / f"{source.stem}.o"
    command = [*head]
    for folder in folders:
        command += ["-I", str(folder), f"-ffile-prefix-map={folder}={folder.name}"]
    command.append(f"-ffile-prefix-map={source.parent}=.")

    def run(*arguments: str) -> None:
        with turn:
            run_tool([*command, *arguments], source.parent, reads=[source])

    compile_kept(head, source, folders, target, lambda: run("-c", source.name, "-o", str(target)))
    return made_by(target, head[0])


def static_library(objects: Sequence[Path], library: Path, toolchain: Toolchain) -> Path:
    """Create an archive of objects without times, owners or paths. An existing file is replaced."""
    library.unlink(missing_ok=True)
    archiver = find_program(toolchain.tool("ar"))
    run_tool([archiver, "rcsD", str(library.resolve()), *_absolute(objects)], library.parent, reads=objects)
    return made_by(library, archiver)


def shared_library(objects: Sequence[Path], library: Path, toolchain: Toolchain, *, flags: Sequence[str] = ()) -> Path:
    """Create a shared library of objects that were compiled with -fPIC, for ctypes on the host."""
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
    """Link firmware by a linker script, dropping what the vector table does not reach.

    Raises BuildFailed, and DoesNotFit where memories are too small.
    """
    fixed = ["-nostartfiles", "-Wl,--gc-sections", "-T", str(script.resolve())]
    return link_program(objects, elf, toolchain, flags=[*flags, *fixed], libraries=["-lm"])


def link_program(
    objects: Sequence[Path], elf: Path, toolchain: Toolchain, *, flags: Sequence[str], libraries: Sequence[str]
) -> Path:
    """Link firmware by `flags`, which name a linker script if there is one. Raises like `link_elf`."""
    tail = ["-o", str(elf.resolve()), *_absolute(objects), *libraries]
    linker = link_command(toolchain)
    try:
        run_tool([*linker, *flags, *tail], elf.parent, reads=objects)
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
    """Return the instructions of an ELF file as objdump prints them, without bytes. Raises MissingTool, BuildFailed.

    machine: name of the architecture. objdump needs it where the ELF file does not tell, because vector instructions
    would otherwise look like a coprocessor's. objdump does not know the names of all other architectures.
    """
    chosen = ["-m", machine] if machine in _UNTOLD else []
    command = [find_program(toolchain.tool("objdump")), "-d", "--no-show-raw-insn", *chosen, str(elf.resolve())]
    return run_tool(command, elf.parent, reads=[elf])


def section_sizes(objects: Sequence[Path], toolchain: Toolchain) -> dict[str, SectionSizes]:
    """Return the sizes of each object file by its name.

    Sections are classified by their flags, which also covers a platform's own section names.
    """
    if not objects:
        return {}
    folder = objects[0].parent
    text = run_tool([find_program(toolchain.tool("objdump")), "-h", "-w", *_absolute(objects)], folder, reads=objects)
    found: dict[str, dict[str, int]] = {}
    current: dict[str, int] = {}
    for line in text.splitlines():
        if head := FILE_HEADING.fullmatch(line):
            current = found.setdefault(Path(head[1]).name, {})
        section = parsed_section(line)
        if section and section.kind:
            current[section.kind] = current.get(section.kind, 0) + section.num_bytes
    for name, segments in _segments(text, objects, toolchain).items():
        zeros = sum(one.num_bytes for one in segments if one.is_zero)
        found[name]["data"] -= zeros
        found[name]["bss"] = found[name].get("bss", 0) + zeros
    return {name: SectionSizes(**sizes) for name, sizes in found.items()}


def _segments(table: str, objects: Sequence[Path], toolchain: Toolchain) -> dict[str, list[DataSegment]]:
    """Return the segments of each object's data section by its name; none for other objects. table: objdump's."""
    if not any(has_segments(line) for line in table.splitlines()):
        return {}
    command = [find_program(toolchain.tool("readobj")), "--sections", *_absolute(objects)]
    return segments_of(run_tool(command, objects[0].parent, reads=objects))


def section_ranges(elf: Path, toolchain: Toolchain) -> list[tuple[int, int]]:
    """Return the addresses [begin, end) of an ELF file's sections, where they run and where they are loaded."""
    command = [find_program(toolchain.tool("objdump")), "-h", "-w", str(elf.resolve())]
    found: list[tuple[int, int]] = []
    for line in run_tool(command, elf.parent, reads=[elf]).splitlines():
        section = parsed_section(line)
        if section and section.kind:
            begins = sorted({section.address, section.load_address})
            found += [(begin, begin + section.num_bytes) for begin in begins]
    return found


def raw_binary(elf: Path, target: Path, toolchain: Toolchain, *, section: str) -> Path:
    """Write the bytes of an ELF file's section to a file."""
    copier = find_program(toolchain.tool("objcopy"))
    wanted = ["-O", "binary", "-j", section, str(elf.resolve()), str(target.resolve())]
    run_tool([copier, *wanted], elf.parent, reads=[elf])
    return made_by(target, copier)


def undefined_symbols(objects: Sequence[Path], toolchain: Toolchain) -> set[str]:
    """Return the names that objects use and none of them defines."""
    program = find_program(toolchain.tool("nm"))
    wanted = run_tool([program, "-u", *_absolute(objects)], objects[0].parent, reads=objects)
    defined = run_tool([program, "--defined-only", *_absolute(objects)], objects[0].parent, reads=objects)
    names = set(re.findall(r"^\S+ \S (\S+)$", defined, re.MULTILINE))
    return set(re.findall(r"^\s+U (\S+)$", wanted, re.MULTILINE)) - names


def function_ranges(elf: Path, toolchain: Toolchain) -> list[tuple[str, int, int]]:
    """Return name and addresses [begin, end) of each function of an ELF file, including static functions."""
    text = run_tool([find_program(toolchain.tool("nm")), "-S", str(elf.resolve())], elf.parent, reads=[elf])
    found = re.findall(r"^([0-9a-f]+) ([0-9a-f]+) [tTwW] (\S+)$", text, re.MULTILINE)
    return [(name, begin, begin + int(size, 16)) for at, size, name in found for begin in (int(at, 16) & ~1,)]


def symbol_sizes(objects: Sequence[Path], toolchain: Toolchain) -> dict[str, int]:
    """Return the bytes of each function and variable that objects export, by name."""
    if not objects:
        return {}
    command = [find_program(toolchain.tool("nm")), "-S", "--defined-only", "--extern-only", *_absolute(objects)]
    text = run_tool(command, objects[0].parent, reads=objects)
    return {name: int(size, 16) for size, name in re.findall(r"^[0-9a-f]+ ([0-9a-f]+) \S (\S+)$", text, re.MULTILINE)}


def _absolute(paths: Iterable[Path]) -> list[str]:
    return [str(path.resolve()) for path in paths]


# Only code that asks for it fuses multiplications with additions. clang would fuse others too, and change bits.
LANGUAGE_FLAGS = ("-std=c11", "-ffp-contract=off", "-ffunction-sections", "-fdata-sections")
WARNING_FLAGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wcast-qual")
"""Warnings that build files of packages enable. They stay warnings, because other compilers have other warnings."""

LLD_FLAGS = ("-fuse-ld=lld",)
"""Flags with which clang links by LLVM's linker."""

STRICT_FLAGS = (*WARNING_FLAGS, "-Werror")
"""Warnings as errors, for the tests of this project and for a package's target `strict`."""

_STRICT = "TVM_EXT_STRICT_WARNINGS"
"""Environment variable with which the tests enable `STRICT_FLAGS` in every compilation, by the value `1`."""

SYSROOT = "TVM_EXT_SYSROOT"
"""Environment variable for the folder of headers and libraries of a cross compiler without its own."""

_LINKED = ("-mcpu=", "-march=", "-mthumb", "-marm", "-mabi=", "-mfloat-abi=", "-mfpu=", "-mcmodel=", "-mcmse")
"""Prefixes of clang flags that also decide which library GCC links."""


def find_compiler(toolchain: Toolchain) -> list[str]:
    """Return the C compiler as the start of an argument list.

    It is the named compiler, else `<prefix>gcc`, or on the host $CC, gcc or clang. Raises MissingTool.
    """
    if toolchain.prefix or toolchain.compiler:
        return [find_program(toolchain.compiler_name)]
    text = os.environ.get("CC", "")
    try:
        chosen = shlex.split(text)
    except ValueError as error:
        raise MissingTool(f"CC = {text!r}: is not a command: {error}. Quote it as for a shell, or unset CC.") from None
    if chosen:
        return [find_program(chosen[0]), *chosen[1:]]
    return [find_program("gcc" if installed("gcc") or not installed("clang") else "clang")]


def compile_flags(toolchain: Toolchain, optimize: CompileFor) -> list[str]:
    """Return the flags for every source of a package, without warnings and header folders."""
    chosen = toolchain.speed_flags if optimize == "speed" else toolchain.size_flags
    return [*LANGUAGE_FLAGS, *toolchain.flags, *chosen]


def warning_flags() -> tuple[str, ...]:
    """Return flags that silence all warnings of C that is compiled here.

    So no result depends on the compiler's version, even where $CC asks for errors. The tests of this project treat
    warnings as errors instead.
    """
    return STRICT_FLAGS if os.environ.get(_STRICT) == "1" else ("-w",)


def compile_command(toolchain: Toolchain, optimize: CompileFor) -> list[str]:
    """Return the compiler and its flags, to which sources are appended. Raises MissingTool, BuildFailed, BadOptions."""
    chosen = compile_flags(toolchain, optimize)
    compiler = find_compiler(toolchain)
    if not toolchain.crosses_with_clang:
        _check_specs(compiler, toolchain)
        return [*compiler, *_arguments(chosen, toolchain)]
    library = ["-idirafter", str(_library_headers(toolchain))]
    return [*compiler, *_arguments([one for one in chosen if not specs_of(one)], toolchain), *library]


def link_command(toolchain: Toolchain) -> list[str]:
    """Return the linking compiler and its flags, to which objects are appended. Raises like `compile_command`."""
    if not toolchain.crosses_with_clang:
        compiler = find_compiler(toolchain)
        _check_specs(compiler, toolchain)
        if toolchain.links_with_lld:
            find_program(linker_name(toolchain))
            compiler = [*compiler, *LLD_FLAGS]
        return [*compiler, *_arguments(toolchain.flags, toolchain)]
    compiler = [find_program(f"{toolchain.prefix}gcc")]
    _check_specs(compiler, toolchain)
    return [*compiler, *_of_gcc(toolchain)]


def linker_name(toolchain: Toolchain) -> str:
    """Return the program that links for a cross toolchain: the GCC of its prefix, or LLVM's linker."""
    if not toolchain.links_with_lld:
        return f"{toolchain.prefix}gcc"
    version = toolchain.compiler.partition("-")[2]
    linker = "wasm-ld" if any(flag.startswith("--target=wasm") for flag in toolchain.flags) else "ld.lld"
    return f"{linker}-{version}" if version else linker


def _arguments(flags: Sequence[str], toolchain: Toolchain) -> list[str]:
    """Return flags without project folders, and with the user's own sysroot, if any."""
    return [*(flag for flag in flags if folder_of(flag) is None), *_sysroot(toolchain)]


def _sysroot(toolchain: Toolchain) -> list[str]:
    """Return the flag for the folder in the user's environment. Raises BadOptions for anything but a folder."""
    folder = os.environ.get(SYSROOT, "")
    if not folder or not toolchain.prefix:
        return []
    if not os.path.isabs(folder) or not os.path.isdir(folder):
        raise BadOptions(
            f"{SYSROOT} = {folder!r}: is no folder by an absolute path; name the toolchain's, or unset it."
        )
    return [f"--sysroot={folder}"]


def linked_flags(toolchain: Toolchain) -> list[str]:
    """Return the flags of clang in the platform file that the linking GCC also takes.

    Vector extensions of RISC-V are left out of -march=, because GCC has no library for them and takes any other one.
    """
    taken = [one for one in toolchain.flags if one.startswith((*_LINKED, "--sysroot=")) or specs_of(one)]
    return [re.sub(r"_zv[a-z0-9]+", "", one) if one.startswith("-march=rv") else one for one in taken]


def _of_gcc(toolchain: Toolchain) -> list[str]:
    return _arguments(linked_flags(toolchain), toolchain)


def _library_headers(toolchain: Toolchain) -> Path:
    """Return the folder of the C library's headers of the toolchain's GCC. Raises MissingTool, BuildFailed."""
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
    """Raise BuildFailed for specs that are not the compiler's own.

    The compiler would otherwise read a file of that name elsewhere.
    """
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


_LEAST_SECONDS = 120.0
_SECONDS_PER_MIB = 60.0  # per MiB that a tool reads: about twenty times what GCC takes for generated sources
_ERROR_LINES = 12
_LINE_CHARACTERS = 1000
_PACKAGES = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi and libnewlib-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
    "qemu-aarch64": "qemu-user",
    "qemu-hexagon": "qemu-user",
    "qemu-riscv64": "qemu-user",
    "qemu-system-riscv32": "qemu-system-misc",
    "qemu-system-xtensa": "qemu-system-misc",
    "xtensa-lx106-elf-gcc": "gcc-xtensa-lx106",
    "node": "nodejs",
    "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf and picolibc-riscv64-unknown-elf",
    "riscv64-linux-gnu-gcc": "gcc-riscv64-linux-gnu and libc6-dev-riscv64-cross",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu and libc6-dev-arm64-cross",
    "gcc": "gcc",
    "clang": "clang",
}


def installed(name: str) -> str | None:
    """Return the path of a program on PATH, or None.

    Relative entries of PATH are ignored: platforms name tools too, and a file of the working folder must not become
    one.
    """
    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
    return shutil.which(name, path=os.pathsep.join(folders))


def find_program(name: str) -> str:
    """Return the path of a program like `installed`. Raises MissingTool with its Debian package."""
    path = installed(name)
    if path:
        return path
    command = install_hint(name)
    hint = f"install it (Debian, Ubuntu: {command})" if command else "install it"
    raise MissingTool(f"{name} is not on PATH; {hint} or add its folder to PATH.")


def install_hint(name: str) -> str:
    """Return the command that installs a program on Debian and Ubuntu, or an empty string."""
    known = re.sub(r"(ar|size|objdump|objcopy|nm)$", "gcc", name)
    llvm = re.fullmatch(r"(clang|ld\.lld|wasm-ld|llvm)(?:-[a-z]+)?(-[0-9]+)?", name)
    linkers = {"ld.lld": "lld", "wasm-ld": "lld"}
    package = f"{linkers.get(llvm[1], llvm[1])}{llvm[2] or ''}" if llvm else _PACKAGES.get(known)
    return f"apt install {package.replace(' and ', ' ')}" if package else ""


def made_by(target: Path, tool: str) -> Path:
    """Return a tool's output file. Raises BuildFailed where the tool succeeded without writing it."""
    if not target.is_file():
        raise BuildFailed(f"{Path(tool).name} made no {target.name}, and did not say why. Is it what PATH and CC mean?")
    return target


def run_tool(command: Sequence[str], folder: Path, *, reads: Iterable[Path], and_stderr: bool = False) -> str:
    """Return the standard output of a tool, and on request its standard error.

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


Place = tuple[str, str]
"""An object file's name, and one of its sections."""
_SYMBOL = re.compile(r"([0-9a-f]+) (.{7}) (\S+)\t([0-9a-f]+) +(?:\.hidden )?(\S+)$")
_RELOCATION = re.compile(r"([0-9a-f]+) +\S+ +(\S+?)(?:[+-](?:0x)?[0-9a-f]+)?$")


@dataclass(frozen=True, kw_only=True)
class ObjectCode:
    """Bytes of each section in an image, the sections that each refers to, and the sections of functions, by name."""

    num_bytes: Mapping[Place, int]
    references: Mapping[Place, frozenset[Place]]
    functions: Mapping[str, Place]

    def reached(self, function: str) -> frozenset[Place]:
        """Return the sections of a function and of everything that it refers to, directly or not; none if unknown."""
        pending = [self.functions[function]] if function in self.functions else []
        seen: set[Place] = set()
        while pending:
            place = pending.pop()
            if place not in seen:
                seen.add(place)
                pending += self.references.get(place, ())
        return frozenset(place for place in seen if place in self.num_bytes)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Bytes [begin, end) of a section that holds all functions or all variables, and the place that they count as."""

    begin: int
    end: int
    place: Place


def _parts_of_data(file: str, segments: Sequence[DataSegment]) -> list[_Part]:
    """Return the variables of an object's data section, each as a place of its own."""
    return [_Part(begin=one.place, end=one.place + one.num_bytes, place=(file, one.name)) for one in segments]


def _named(place: Place, name: str, address: int, segments: Sequence[DataSegment]) -> Place:
    """Return the place of a symbol in a section of all functions or all variables."""
    file, section = place
    if section == "CODE":
        return file, f".text.{name}"
    inside = (one.name for one in segments if one.address <= address < one.address + max(one.num_bytes, 1))
    return file, next(inside, section)


def object_code(objects: Sequence[Path], toolchain: Toolchain) -> ObjectCode:
    """Read objects with different file names. Raises MissingTool, BuildFailed.

    Functions and variables of an object of WebAssembly count as sections, as those of other objects are.
    """
    program = find_program(toolchain.tool("objdump"))
    command = [program, "-h", "-t", "-r", "-w", *(str(path.resolve()) for path in objects)]
    text = run_tool(command, objects[0].parent, reads=objects)
    num_bytes: dict[Place, int] = {}
    raw: dict[Place, list[str]] = {}
    known: dict[str, dict[str, Place]] = {}
    everywhere: dict[str, Place] = {}
    segments = _segments(text, objects, toolchain)
    parts: dict[Place, list[_Part]] = {}
    file, section, is_divided = "", "", False
    for line in text.splitlines():
        if head := FILE_HEADING.fullmatch(line):
            file, is_divided = Path(head[1]).name, has_segments(line)
            known[file] = {}
            if is_divided:
                parts[file, "DATA"] = _parts_of_data(file, segments.get(file, ()))
        elif head := re.fullmatch(r"RELOCATION RECORDS FOR \[(\S+)\]:", line):
            section = head[1]
        elif part := parsed_section(line):
            place = (file, part.name)
            known[file][part.name] = place
            if part.kind not in (None, "bss"):
                num_bytes[place] = num_bytes.get(place, 0) + part.num_bytes
        elif found := _SYMBOL.fullmatch(line):
            address, flags, home, size, symbol = found.groups()
            place, begin = (file, home), int(address, 16)
            if is_divided and home != "*UND*":
                place = _named(place, symbol, begin, segments.get(file, ()))
                if home == "CODE":
                    part = _Part(begin=begin, end=begin + int(size, 16), place=place)
                    parts.setdefault((file, home), []).append(part)
            known[file].setdefault(symbol, place)
            if home != "*UND*" and flags[0] in "gu!w":
                everywhere[symbol] = place
        elif found := _RELOCATION.fullmatch(line):
            at = int(found[1], 16)
            inside = (one.place for one in parts.get((file, section), ()) if one.begin <= at < one.end)
            raw.setdefault(next(inside, (file, section)), []).append(found[2])

    for whole, members in parts.items():
        for one in members:
            num_bytes[whole] -= one.end - one.begin
            if not one.place[1].startswith(".bss"):
                num_bytes[one.place] = num_bytes.get(one.place, 0) + one.end - one.begin

    def defined(place: Place, symbol: str) -> Place | None:
        own = known[place[0]].get(symbol)
        return own if own and own[1] != "*UND*" else everywhere.get(symbol)

    references = {
        place: frozenset(target for symbol in symbols if (target := defined(place, symbol)))
        for place, symbols in raw.items()
    }
    functions = {symbol: place for symbols in known.values() for symbol, place in symbols.items() if place in num_bytes}
    return ObjectCode(num_bytes=num_bytes, references=references, functions=functions)
