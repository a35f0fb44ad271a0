"""Files of a package: generated texts, and the library and firmware that compilers build from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen_c.backend.build import Compiled
from codegen_c.emit.build_files import emit_build_files
from codegen_c.emit.drawn_vectors import DrawnVectors
from codegen_c.emit.firmware import emit_firmware, emit_headers, emit_linker_sections, firmware_libraries
from codegen_c.emit.forms.form import PackageParts
from codegen_c.emit.image import emit_image
from codegen_c.emit.module import emit_module, has_module, module_file, module_link_flags, module_source
from codegen_c.emit.offload import reference_file
from codegen_c.emit.selftest import TestVector, constants_check, emit_selftest, emit_vectors
from codegen_c.emit.weights import is_weights_file
from codegen_c.program.program import drivers_of
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.toolchain import ObjectCode, compile_objects, link_program, object_code, section_sizes, static_library
from tvm_ext.execution.host_model import library_sources
from tvm_ext.execution.qemu_start import link_firmware
from tvm_ext.packages.package import PLATFORM_FILE
from tvm_ext.verification.verify import tolerance_of


@dataclass(frozen=True, kw_only=True)
class Artifacts:
    """Files that compilers built from a package's sources.

    elf: firmware of the self-test; None for a platform without a board.
    code_bytes: bytes of the library without the weights.
    code: functions and tables in the library's objects.
    on_host: the library's objects if this machine can run them, else empty. Verification on the host reuses them.
    """

    library: Path
    elf: Path | None
    code_bytes: int
    code: ObjectCode
    on_host: tuple[Path, ...]


def write_texts(
    folder: Path, compiled: Compiled, options: BuildOptions, vectors: Sequence[TestVector],
    drawn: DrawnVectors | None = None,
) -> None:  # fmt: skip
    """Write all generated texts of a package except for its report and the files that show the report.

    vectors: stored vectors of the self-test. drawn: vectors that the self-test draws on the device.
    """
    interface, platform = compiled.interface, compiled.platform
    moves, compares = bool(compiled.program.moves()), vectors[0].outputs is not None
    texts = compiled.sources()
    # The self-test checks the constants except in two cases: if processors share a run, a processor may not reach the
    # memories of the others, and an image contains its own copy of the constants.
    checks = compares and not (options.relocatable_image or compiled.parallel)
    constants = constants_check(compiled.program, interface.model, compiled.sharing) if checks else None
    driver = reference_file(interface.model) if drivers_of(compiled.program) else ""
    units = [name for name in texts if name.endswith(".c") and name != driver]
    files = [name for name in texts if name != driver]
    parts = PackageParts.of(interface.model, platform.name, files, compiled.origin.generator)
    texts = {
        **texts,
        **emit_vectors(interface, vectors, drawn),
        **emit_selftest(
            interface,
            tolerance=tolerance_of(compiled.program),
            compares=compares,
            drawn=drawn,
            constants=constants,
        ),
        **emit_build_files(
            interface.model,
            units,
            platform,
            options.compile_for,
            image=options.relocatable_image,
            own_flags=compiled.own_flags,
            several=bool(interface.servers),
            module=has_module(interface, platform),
            moves=moves,
            driver=driver,
            parts=None if compiled.own_flags or interface.servers else parts,
        ),
        **(
            emit_firmware(
                interface,
                platform,
                moves=moves,
                compares=compares,
                image=options.relocatable_image,
                drives=bool(driver),
            )
            if platform.board
            else emit_headers(platform)
        ),
        **emit_module(interface, platform),
        **(emit_image(interface, platform) if options.relocatable_image else {}),
        **emit_linker_sections(platform, compiled.origin),
        PLATFORM_FILE: json.dumps(json.loads(platform.to_json()), indent=2) + "\n",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def library_objects(folder: Path, compiled: Compiled, options: BuildOptions, objects_dir: Path) -> list[Path]:
    """Compile the sources of a package's library, each for its processor. Raises MissingTool, BuildFailed."""
    platform, model = compiled.platform, compiled.interface.model
    # Objects for the host are linked into a shared library, too.
    flags = [] if platform.toolchain_of(platform.processor).prefix else ["-fPIC"]
    sources_of: dict[str, list[Path]] = {}
    for source in library_sources(folder, model):
        if source.name != reference_file(model):  # the library leaves the accelerator interface to the user
            sources_of.setdefault(compiled.processor_of_source.get(source.name, ""), []).append(source)
    return [
        built
        for processor, sources in sources_of.items()
        for built in compile_objects(
            sources, objects_dir, platform.toolchain_of(platform.processor_named(processor)),
            optimize=options.compile_for, flags=flags, include_dirs=[folder],
        )
    ]  # fmt: skip


def link_module(
    objects: Sequence[Path], folder: Path, compiled: Compiled, options: BuildOptions, objects_dir: Path
) -> Path:
    """Link a package's objects as a module that other programs load. Raises MissingTool, BuildFailed."""
    platform, model = compiled.platform, compiled.interface.model
    toolchain = platform.toolchain_of(platform.processor)
    entries = compile_objects(
        [folder / module_source(model)], objects_dir, toolchain, optimize=options.compile_for, include_dirs=[folder]
    )
    return link_program(
        [*objects, *entries], folder / module_file(model, platform), toolchain, flags=module_link_flags(platform),
        libraries=firmware_libraries(platform),
    )  # fmt: skip


def compile_package(folder: Path, compiled: Compiled, options: BuildOptions, objects_dir: Path) -> Artifacts:
    """Compile a package to a static library and, if the platform has a board, link the self-test firmware.

    objects_dir: folder for object files. Raises MissingTool, BuildFailed.
    """
    platform, model = compiled.platform, compiled.interface.model
    toolchain = platform.toolchain_of(platform.processor)
    stands_in = folder / reference_file(model)
    objects = library_objects(folder, compiled, options, objects_dir)
    sizes = section_sizes(objects, toolchain)
    code_bytes = sum(s.text + s.rodata + s.data for n, s in sizes.items() if not is_weights_file(n, model))
    library = static_library(objects, folder / f"lib{model}.a", toolchain)
    elf = None
    if platform.board:
        tests = [folder / f"{model}_{part}.c" for part in ("selftest", "vectors")]
        tests += [stands_in] if drivers_of(compiled.program) else []
        firmware = compile_objects(
            [*tests, *sorted((folder / "board").glob("*.c"))], objects_dir, toolchain,
            optimize=options.compile_for, include_dirs=[folder],
        )  # fmt: skip
        elf = link_firmware([*objects, *firmware], folder / f"{model}.elf", platform, folder / "board")
    if has_module(compiled.interface, platform):
        link_module(objects, folder, compiled, options, objects_dir)
    whole = not toolchain.prefix and not drivers_of(compiled.program)
    on_host = tuple(objects) if whole else ()
    code = object_code(objects, toolchain)
    return Artifacts(library=library, elf=elf, code_bytes=code_bytes, code=code, on_host=on_host)
