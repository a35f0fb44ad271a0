"""The C of a bundle, compiled: the library, the board's ELF, bytes of code, what self-tests cover."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codegen_c.emit.bundle import Bundle
from codegen_c.emit.linker_sections import SECTIONS_FILE
from tvm_ext.assurance.coverage import selftest_coverage
from tvm_ext.bundles.texts import optimize_of
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, link_elf, section_sizes, static_library, symbol_sizes
from tvm_ext.execution.host_model import library_sources


@dataclass(frozen=True, kw_only=True)
class Built:
    """The library and the ELF. code_bytes: by model; those of common files under the bundle's name."""

    library: Path
    elf: Path | None
    code_bytes: Mapping[str, int]
    symbol_bytes: Mapping[str, int]


def compile_bundle(folder: Path, common: Bundle, platform: Platform) -> Built:
    """The static library, and the ELF where there is a board."""
    toolchain, objects_dir = platform.toolchain, folder / "build"
    names = [common.name, *(member.model for member in common.members)]
    sources = library_sources(folder, *names)
    objects: list[Path] = []
    for aim in ("speed", "size"):
        chosen = [source for source in sources if optimize_of(common, source.name) == aim]
        objects += compile_objects(chosen, objects_dir, toolchain, optimize=aim, include_dirs=[folder])
    objects.sort()
    sizes = section_sizes(objects, toolchain)
    code_bytes = dict.fromkeys(names, 0)
    for name, size in sizes.items():
        stem = name.removesuffix(".o")
        owner = next((one for one in names[1:] if stem == one or stem.startswith(f"{one}_")), common.name)
        if stem not in {f"{one}_weights" for one in names}:
            code_bytes[owner] += size.text + size.rodata + size.data
    kernels = [path for path in objects if path.name.startswith(f"{common.name}_kernels_")]
    symbols = symbol_sizes(kernels, toolchain)
    library = static_library(objects, folder / f"lib{common.name}.a", toolchain)
    elf = None
    if platform.board:
        tests = [folder / f"{one}_selftest.c" for one in names]
        tests += [folder / f"{one}_vectors.c" for one in names[1:]]
        firmware = compile_objects(
            [*tests, *sorted((folder / "board").glob("*.c"))], objects_dir, toolchain, include_dirs=[folder]
        )
        script = folder / "board" / "link.ld"
        elf = link_elf([*objects, *firmware], folder / f"{common.name}.elf", toolchain, script=script)
    shutil.rmtree(objects_dir)
    return Built(library=library, elf=elf, code_bytes=code_bytes, symbol_bytes=symbols)


def coverage_of(folder: Path, common: Bundle) -> dict[str, Any]:
    """Statements that the self-test of all models covers; it runs each once, and once more where any has states."""
    macs = sum(call.implementation.macs for one in common.members for call in one.program.kernel_calls())
    names = [one.model for one in common.members]
    return selftest_coverage(folder, common.name, macs=macs, tested=names).to_json()


def artifacts_of(folder: Path, built: Built) -> dict[str, str | None]:
    return {
        "library": built.library.relative_to(folder).as_posix(),
        "elf": built.elf.relative_to(folder).as_posix() if built.elf else None,
        "sections": SECTIONS_FILE if (folder / SECTIONS_FILE).is_file() else None,
    }
