"""BUNDLE.toml + platform -> one package of several models: compile each, share, write, build, verify all together."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from codegen_c.arena.overlay import overlay_faults
from codegen_c.arena.profile import live_profile
from codegen_c.emit.banner import Origin
from codegen_c.emit.build_files import emit_build_files
from codegen_c.emit.bundle import Bundle, bundle_of, emit_bundle, kernels_file
from codegen_c.emit.bundle_readme import emit_bundle_readme
from codegen_c.emit.bundle_tests import emit_bundle_firmware, emit_bundle_selftest
from codegen_c.emit.memory_map import emit_memory_map
from codegen_c.emit.selftest import emit_selftest, emit_vectors
from codegen_c.emit.sharing import Member
from codegen_c.targets.registry import check_processors
from tvm_ext.assurance.assurance import measured_assurance
from tvm_ext.assurance.coverage import selftest_coverage
from tvm_ext.builder import not_the_model, targets_of
from tvm_ext.bundle_links import faults_of_links, links_of, with_linked_inputs
from tvm_ext.bundle_package import BundlePackage
from tvm_ext.bundle_variants import passes_of, variants_of
from tvm_ext.core.bundle_file import BundledModel, BundleFile
from tvm_ext.core.decisions.models import ModelOrigin, QuantizationMeasured
from tvm_ext.core.errors import BadBundle, DoesNotFit, PlanRejected, TvmExtError
from tvm_ext.core.files.arrays import read_arrays
from tvm_ext.core.files.output_folder import replaced_folder
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import Optimize, Target
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, link_elf, section_sizes, static_library, symbol_sizes
from tvm_ext.execution.bundle_runner import HostBundle, run_bundle_on_board, selftest_on_board
from tvm_ext.execution.runner import QemuResult, board_seconds, library_sources
from tvm_ext.load import load
from tvm_ext.package import PLATFORM_FILE
from tvm_ext.report.bundle_report import make_bundle_report, used_bytes
from tvm_ext.report.report import make_report
from tvm_ext.subject import Progress, Subject, answer, judged, make_subject, vectors_of
from tvm_ext.verification.verify import FLOAT_TOLERANCE

Sample = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class _Built:
    """What compilers made. code_bytes: by model; of what is common under the bundle's name."""

    library: Path
    elf: Path | None
    code_bytes: Mapping[str, int]
    symbol_bytes: Mapping[str, int]


def bundle(
    source: str | Path | BundleFile,
    platform: Platform | str,
    folder: str | Path,
    *,
    verify: tuple[Target, ...] | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> BundlePackage:
    """Compile the models of a bundle's file into one package at `folder`, verified together.

    verify: as in `BuildOptions`. limits: as `load` takes them. An existing package there is replaced whole, or, if
    anything fails, not at all. Raises BadBundle, and what `load` and `build` raise, with the model's name.
    """
    file, folder = source if isinstance(source, BundleFile) else BundleFile.load(source), Path(folder)
    platform = platform if isinstance(platform, Platform) else Platform.load(platform)
    say = progress or (lambda _: None)
    check_processors(platform)
    targets = targets_of(platform, verify)
    with replaced_folder(folder) as new:
        subjects = [_subject(file, model, platform, limits, bool(targets), say) for model in file.models]
        common = bundle_of(file.name, [_member(subject) for subject in subjects], file.at_once)
        links, variants = (
            links_of(file, common.members, [s.mod for s in subjects]),
            variants_of(file, common.members, platform),
        )
        common = replace(common, links=tuple(links), variants=tuple(variants))
        _check(common, file, platform)
        subjects = [
            replace(one, compiled=replace(one.compiled, sharing=common.sharing(member)))
            for one, member in zip(subjects, common.members, strict=True)
        ]
        _write_texts(new, common, subjects, platform, compares=bool(targets))
        say(f"compiling the C for {platform.name}")
        built = _compile(new, common, platform)
        verified, boards = _verify(new, common, subjects, built, targets, say)
        reports = {
            one.model: _report_of(new, common, one, built, verified[one.model], boards.get(one.model), targets, say)
            for one in subjects
        }
        report = make_bundle_report(
            common, f"tvm_ext {version('tvm-ext')}", platform, reports, at_once=file.at_once,
            code_bytes=sum(built.code_bytes.values()), symbol_bytes=built.symbol_bytes,
            artifacts=_artifacts(new, built), coverage=_coverage(new, common, say) if "host" in targets else None,
        )  # fmt: skip
        (new / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        (new / "README.md").write_text(emit_bundle_readme(common, report), encoding="utf-8")
    return BundlePackage.load(folder)


def _subject(
    file: BundleFile, model: BundledModel, platform: Platform, limits: Limits | None, verifies: bool, say: Progress
) -> Subject:
    try:
        return _compiled(file, model, platform, limits, verifies, say)
    except BadBundle:
        raise
    except TvmExtError as error:
        error.args = (f"{model.name}: {error}", *error.args[1:])
        raise


def _compiled(
    file: BundleFile, model: BundledModel, platform: Platform, limits: Limits | None, verifies: bool, say: Progress
) -> Subject:
    initial, path = file.path_of(model, "initial"), file.path_of(model, "file")
    assert path is not None, "each model has a file"
    calibration, verify_inputs = file.path_of(model, "calibration"), file.path_of(model, "verify_inputs")
    module = load(
        path, shapes=model.shapes, limits=limits, states=model.states,
        initial=read_arrays(initial) if initial else None,
    )  # fmt: skip
    module = with_linked_inputs(module, file, model)
    return make_subject(
        module, platform, model.build_options(()), calibration=calibration, verify_inputs=verify_inputs,
        verifies=verifies, say=lambda stage: say(f"{model.name}: {stage}"),
    )  # fmt: skip


def _member(subject: Subject) -> Member:
    compiled = subject.compiled
    return Member(
        program=compiled.program, plan=compiled.plan, interface=compiled.interface, optimize=subject.options.optimize
    )


def _check(common: Bundle, file: BundleFile, platform: Platform) -> None:
    """Raises PlanRejected for arenas that meet, DoesNotFit for a memory that all models together do not fit into."""
    groups = [frozenset(group) for group in file.at_once]
    faults = [fault for overlay in common.overlays for fault in overlay_faults(overlay, groups)]
    if faults:
        raise PlanRejected(f"{common.name}: {'; '.join(faults)}. This is a defect of tvm-ext; please report it.")
    for name, needed in used_bytes(common, platform).items():
        capacity = platform.memory(name).capacity_bytes
        if needed > capacity:
            largest = max(common.members, key=lambda member: sum(member.overlaid.values()))
            raise DoesNotFit(
                f"{common.name}: its models need {needed} B of {name} together, arenas over each other, states and "
                f"weights; {platform.name} has {capacity} B, {needed - capacity} B less. Give {largest.model} a "
                "smaller `ram` in its options, leave a model out, or take groups out of at_once."
            )


def _write_texts(
    folder: Path, common: Bundle, subjects: Sequence[Subject], platform: Platform, *, compares: bool
) -> None:
    origins = {one.model: one.compiled.origin for one in subjects}
    origin = _origin(common, subjects, platform)
    texts = emit_bundle(common, origin, origins, platform)
    for one in subjects:
        texts |= one.compiled.sources()
    units = [name for name in texts if name.endswith(".c")]
    small = [name for name in units if _optimize(common, name) == "size"]
    names = [one.model for one in subjects]
    vectors = {one.model: vectors_of(one) for one in subjects}
    texts |= emit_bundle_selftest(common, vectors, tolerance=FLOAT_TOLERANCE, compares=compares)
    texts |= emit_build_files(common.name, units, platform, "speed", tested=names, otherwise=small)
    texts |= emit_bundle_firmware(common, platform, compares=compares) if platform.board else {}
    texts[PLATFORM_FILE] = json.dumps(json.loads(platform.to_json()), indent=2) + "\n"
    for one in subjects:
        interface, compiled = one.compiled.interface, one.compiled
        texts |= emit_vectors(interface, vectors[one.model])
        texts |= emit_selftest(interface, tolerance=FLOAT_TOLERANCE, compares=compares)
        del texts[f"{one.model}_selftest_main.c"]
        texts[f"{one.model}_trace.json"] = compiled.trace(ModelOrigin.read(one.mod).nodes)
        live = live_profile(compiled.program, compiled.plan)
        texts[f"{one.model}_memory_map.html"] = emit_memory_map(one.model, compiled.program, compiled.plan, live)
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _origin(common: Bundle, subjects: Sequence[Subject], platform: Platform) -> Origin:
    """What banners of common files say: the models' files, and a hash of their hashes."""
    digests = " ".join(one.compiled.origin.sha256 for one in subjects)
    return Origin(
        generator=subjects[0].compiled.origin.generator,
        model=", ".join(dict.fromkeys(one.compiled.origin.model for one in subjects)),
        sha256=hashlib.sha256(digests.encode()).hexdigest(), platform=platform.name,
        memories=tuple(used_bytes(common, platform).items()),
    )  # fmt: skip


def _optimize(common: Bundle, source: str) -> Optimize:
    """Aim that a file is compiled for: its model's, or that of the models that share its functions."""
    if source == kernels_file(common.name, "size"):
        return "size"
    stem = source.removesuffix(".c")
    owner = next((one for one in common.members if stem == one.model or stem.startswith(f"{one.model}_")), None)
    return owner.optimize if owner else "speed"


def _compile(folder: Path, common: Bundle, platform: Platform) -> _Built:
    """The static library, and the ELF where there is a board."""
    toolchain, objects_dir = platform.toolchain, folder / "build"
    names = [common.name, *(member.model for member in common.members)]
    sources = library_sources(folder, *names)
    objects: list[Path] = []
    for aim in ("speed", "size"):
        chosen = [source for source in sources if _optimize(common, source.name) == aim]
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
    return _Built(library=library, elf=elf, code_bytes=code_bytes, symbol_bytes=symbols)


def _verify(
    folder: Path, common: Bundle, subjects: Sequence[Subject], built: _Built, targets: Sequence[str], say: Progress
) -> tuple[dict[str, dict[str, Any]], dict[str, QemuResult]]:
    """Results of each model, which all take their turns, sample by sample, and the board's figures.

    Raises VerificationFailed, of all models together.
    """
    results: dict[str, dict[str, Any]] = {one.model: {"host": None, "qemu": None} for one in subjects}
    if not targets:
        return results, {}
    interfaces = {one.model: one.compiled.interface for one in subjects}
    samples = {one.model: one.samples for one in subjects}
    say("running all models on the host")
    given: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in samples}
    problems: list[str] = []
    with HostBundle(folder, common.name, list(interfaces.values())) as host:
        for together in passes_of(common):
            for name in together:
                host.models[name].reset()
            for index in range(max(len(samples[name]) for name in together)):
                for name in together:
                    own = samples[name]
                    if index < len(own) and (outputs := answer(host.models[name], own[index])) is not None:
                        given[name].append(outputs)
    if common.links:
        problems += faults_of_links(folder, common, samples)
    boards: dict[str, QemuResult] = {}
    if "qemu" in targets and built.elf:
        say("running all models on the board in QEMU")
        seconds = sum(board_seconds(one.compiled.modelled_instructions, len(one.samples)) for one in subjects)
        platform = subjects[0].compiled.platform
        for together in passes_of(common):
            own = {name: samples[name] for name in together}
            boards |= run_bundle_on_board(built.elf, platform, list(interfaces), interfaces, own, time_limit_s=seconds)
        complaint = selftest_on_board(built.elf, platform, time_limit_s=seconds)
        problems += [f"board: {complaint}"] if complaint else []
    for one in subjects:
        assert one.expected is not None, "targets ask for it"
        found, wrong = judged(one, one.expected, given[one.model], boards.get(one.model))
        results[one.model] = {target: result if target in targets else None for target, result in found.items()}
        problems += [f"{one.model}: {problem}" for problem in wrong]
    if problems:
        raise not_the_model(common.name, problems)
    return results, boards


def _report_of(
    folder: Path,
    common: Bundle,
    subject: Subject,
    built: _Built,
    verified: Mapping[str, Any],
    board: QemuResult | None,
    targets: Sequence[str],
    say: Progress,
) -> dict[str, Any]:
    """A model's report, as that of a package of its own, and the names of the bundle."""
    measured = QuantizationMeasured.read(subject.mod).report
    names = [member.model for member in common.members]
    report = make_report(
        subject.compiled, subject.options, ModelOrigin.read(subject.mod), measured,
        code_bytes=built.code_bytes[subject.model], stack_bytes=board.stack_bytes if board else None,
        artifacts=_artifacts(folder, built), verify=verified,
        assurance=measured_assurance(
            folder, subject.compiled, built.elf, targets, say, in_bundle=True
        ),
    )  # fmt: skip
    return {**report, "bundle": {"name": common.name, "models": names}}


def _coverage(folder: Path, common: Bundle, say: Progress) -> dict[str, Any]:
    """Statements that the self-test of all models covers; it runs each once, and once more where any has states."""
    say("counting what the self-test covers")
    macs = sum(call.implementation.macs for one in common.members for call in one.program.kernel_calls())
    names = [one.model for one in common.members]
    return selftest_coverage(folder, common.name, macs=macs, tested=names).to_json()


def _artifacts(folder: Path, built: _Built) -> dict[str, str | None]:
    return {
        "library": built.library.relative_to(folder).as_posix(),
        "elf": built.elf.relative_to(folder).as_posix() if built.elf else None,
    }
