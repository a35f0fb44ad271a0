"""Generated files of a bundle, its compiled library and firmware, and the bytes of code."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codegen_c.emit.banner import Origin
from codegen_c.emit.build_files import emit_build_files
from codegen_c.emit.bundle import Bundle, common_pieces, emit_bundle, kernels_file
from codegen_c.emit.bundle_tests import emit_bundle_firmware, emit_bundle_selftest, run_of
from codegen_c.emit.firmware import SECTIONS_FILE, emit_linker_sections
from codegen_c.emit.forms.form import PackageParts
from codegen_c.emit.layer_files import compiled_as
from codegen_c.emit.selftest import emit_selftest, emit_vectors
from codegen_c.emit.weights import is_weights_file
from tvm_ext.assurance.coverage import selftest_coverage
from tvm_ext.building.selftest import SelfTest
from tvm_ext.building.subject import Subject
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import BadBundle
from tvm_ext.core.options import CompileFor
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, section_sizes, static_library, symbol_sizes
from tvm_ext.execution.host_model import library_sources
from tvm_ext.execution.qemu_start import link_firmware
from tvm_ext.packages.package import PLATFORM_FILE
from tvm_ext.report.bundle_report import used_bytes
from tvm_ext.verification.verify import FLOAT_TOLERANCE, tolerance_of


@dataclass(frozen=True, kw_only=True)
class Built:
    """Compiled files of a bundle.

    elf: firmware of the self-test; None for a platform without a board.
    code_bytes: bytes of code by model; shared files are counted under the bundle's name.
    symbol_bytes: bytes of code of each shared function.
    """

    library: Path
    elf: Path | None
    code_bytes: Mapping[str, int]
    symbol_bytes: Mapping[str, int]


def own_flags_of(common: Bundle, subjects: Sequence[Subject], platform: Platform) -> dict[str, tuple[str, ...]]:
    """Return the compiler flags of each source that runs on another kind of processor than the platform's first.

    A model's memory and weights have functions that the first processor calls, too, so they are compiled for the first.
    """
    kinds: dict[str, str] = {}
    for member, subject in zip(common.members, subjects, strict=True):
        if member.compiled_as:
            kinds[f"{member.model}.c"] = member.compiled_as
        kinds |= subject.compiled.processor_of_source
    for optimize in ("speed", "size"):
        for name in {one.compiled_as for one in common.functions} - {""}:
            kinds[kernels_file(common.name, optimize, name)] = name
    for name in {compiled_as(platform, core) for core in common.other_cores} - {""}:
        kinds |= {f"{common.name}_links_{name}.c": name, f"{common.name}_round_{name}.c": name}
    return {file: platform.flags_of(platform.processor_named(name)) for file, name in kinds.items()}


def compile_bundle(folder: Path, common: Bundle, platform: Platform, own_flags: Mapping[str, tuple[str, ...]]) -> Built:
    """Compile the bundle's sources to a static library and, for a platform with a board, to an ELF.

    own_flags: flags of the sources that are not compiled with those of the toolchain.
    """
    toolchain, objects_dir = platform.toolchain, folder / "build"
    names = [common.name, *(member.model for member in common.members)]
    groups: dict[tuple[CompileFor, tuple[str, ...]], list[Path]] = {}
    for source in library_sources(folder, *names):
        flags = own_flags.get(source.name, toolchain.flags)
        groups.setdefault((optimize_of(common, source.name), flags), []).append(source)
    objects: list[Path] = []
    for (aim, flags), chosen in groups.items():
        compiler = replace(toolchain, flags=flags)
        objects += compile_objects(chosen, objects_dir, compiler, optimize=aim, include_dirs=[folder])
    objects.sort()
    sizes = section_sizes(objects, toolchain)
    code_bytes = dict.fromkeys(names, 0)
    for name, size in sizes.items():
        stem = name.removesuffix(".o")
        owner = next((one for one in names[1:] if stem == one or stem.startswith(f"{one}_")), common.name)
        if not any(is_weights_file(name, one) for one in names):
            code_bytes[owner] += size.text + size.rodata + size.data
    files = {kernels_file(common.name, one.optimize, one.compiled_as) for one in common.functions}
    kernels = [path for path in objects if f"{path.stem}.c" in files]
    symbols = symbol_sizes(kernels, toolchain)
    library = static_library(objects, folder / f"lib{common.name}.a", toolchain)
    elf = None
    if platform.board:
        tests = [folder / f"{one}_selftest.c" for one in names]
        tests += [folder / f"{one}_vectors.c" for one in names[1:]]
        firmware = compile_objects(
            [*tests, *sorted((folder / "board").glob("*.c"))], objects_dir, toolchain, include_dirs=[folder]
        )
        elf = link_firmware([*objects, *firmware], folder / f"{common.name}.elf", platform, folder / "board")
    shutil.rmtree(objects_dir)
    return Built(library=library, elf=elf, code_bytes=code_bytes, symbol_bytes=symbols)


def coverage_of(folder: Path, common: Bundle) -> dict[str, Any]:
    """Measure the statements that the self-test of all models covers.

    The self-test runs each model once, and a second time if any model has states.
    """
    macs = sum(call.implementation.macs for one in common.members for call in one.program.kernel_calls())
    names = [one.model for one in common.members]
    return selftest_coverage(folder, common.name, macs=macs, tested=names).to_json()


def artifacts_of(folder: Path, built: Built) -> dict[str, str | None]:
    return {
        "library": built.library.relative_to(folder).as_posix(),
        "elf": built.elf.relative_to(folder).as_posix() if built.elf else None,
        "sections": SECTIONS_FILE if (folder / SECTIONS_FILE).is_file() else None,
    }


def write_texts(
    folder: Path,
    common: Bundle,
    subjects: Sequence[Subject],
    selftests: Mapping[str, SelfTest],
    platform: Platform,
    *,
    compares: bool,
) -> None:
    """Write all C files, build files and firmware of a bundle.

    selftests: self-test of each model. compares: True if the self-tests have expected outputs.
    """
    origins = {one.model: one.compiled.origin for one in subjects}
    origin = _origin(common, subjects, platform)
    texts, pieces = emit_bundle(common, origin, origins, platform), common_pieces(common, origin, origins, platform)
    for one in subjects:
        for name, text in one.compiled.sources().items():
            if texts.setdefault(name, text) != text:
                raise BadBundle(
                    f"{common.name}: {one.model} needs another {name} than the models before it, because they run on "
                    "processors with different vectors. Give these models processors with the same vectors."
                )
    own_flags = {file: flags for file, flags in own_flags_of(common, subjects, platform).items() if file in texts}
    units = [name for name in texts if name.endswith(".c")]
    parts = PackageParts.of(common.name, platform.name, [*texts], origin.generator)
    small = [name for name in units if optimize_of(common, name) == "size"]
    names = [one.model for one in subjects]
    vectors = {name: test.stored for name, test in selftests.items()}
    texts |= emit_bundle_selftest(common, vectors, tolerance=FLOAT_TOLERANCE, compares=compares)
    texts |= emit_build_files(
        common.name, units, platform, "speed", tested=names, otherwise=small, own_flags=own_flags,
        several=bool(common.other_cores), moves=any(member.program.moves() for member in common.members),
        parts=None if common.other_cores else parts,
    )  # fmt: skip
    texts |= emit_bundle_firmware(common, platform, compares=compares) if platform.board else {}
    texts |= emit_linker_sections(platform, origin)
    texts[PLATFORM_FILE] = json.dumps(json.loads(platform.to_json()), indent=2) + "\n"
    for one in subjects:
        interface, compiled = one.compiled.interface, one.compiled
        drawn = selftests[one.model].drawn
        texts |= emit_vectors(interface, vectors[one.model], drawn)
        texts |= emit_selftest(
            interface, tolerance=tolerance_of(compiled.program), compares=compares, drawn=drawn,
            run=run_of(common, one.model),
        )  # fmt: skip
        del texts[f"{one.model}_selftest_main.c"]
        common_to = {file: [piece.of(one.model) for piece in found] for file, found in pieces.items()}
        texts[f"{one.model}_trace.json"] = compiled.trace(ModelOrigin.read(one.mod).nodes, common_to)
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def optimize_of(common: Bundle, source: str) -> CompileFor:
    """Return the optimization of a file, speed or size: its model's, or that of the models that share its functions."""
    if source in {kernels_file(common.name, "size", one.compiled_as) for one in common.functions}:
        return "size"
    stem = source.removesuffix(".c")
    owner = next((one for one in common.members if stem == one.model or stem.startswith(f"{one.model}_")), None)
    return owner.optimize if owner else "speed"


def _origin(common: Bundle, subjects: Sequence[Subject], platform: Platform) -> Origin:
    """Return the origin in the banners of shared files: the models' files, and a hash of their hashes."""
    digests = " ".join(one.compiled.origin.sha256 for one in subjects)
    return Origin(
        generator=subjects[0].compiled.origin.generator,
        model=", ".join(dict.fromkeys(one.compiled.origin.model for one in subjects)),
        sha256=hashlib.sha256(digests.encode()).hexdigest(), platform=platform.name,
        memories=tuple(used_bytes(common, platform).items()),
    )  # fmt: skip
