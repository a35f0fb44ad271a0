"""Build a bundle: from BUNDLE.toml and a platform to one verified package of several models."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tvm

from codegen_c.arena.overlay import overlay_faults
from codegen_c.backend.build import Compiled
from codegen_c.emit.bundle import Bundle, bundle_of
from codegen_c.emit.layer_files import compiled_as
from codegen_c.emit.readme import emit_bundle_readme
from codegen_c.emit.sharing import Member
from codegen_c.program.validate_round import round_faults
from codegen_c.targets.registry import check_processors
from tvm_ext.assurance.assurance import measured_assurance
from tvm_ext.building.build import targets_of
from tvm_ext.building.selftest import SelfTest, selftest_of
from tvm_ext.building.subject import Subject, make_subject
from tvm_ext.bundles.compiled import Built, artifacts_of, compile_bundle, coverage_of, own_flags_of, write_texts
from tvm_ext.bundles.links import copy_cycles, links_of, variants_of, with_linked_inputs
from tvm_ext.bundles.package import BundlePackage
from tvm_ext.bundles.placement import BundlePlacement, options_for, place_models, platform_for
from tvm_ext.bundles.rounds import groups_at_once, placed_links, placed_round, processors_report
from tvm_ext.bundles.verify import verify_bundle
from tvm_ext.compilation.pipeline import compile_model
from tvm_ext.core.arguments import check_kind, path_of
from tvm_ext.core.bundle_file import BundledModel, BundleFile
from tvm_ext.core.decisions.models import ModelOrigin, QuantizationMeasured
from tvm_ext.core.errors import BadBundle, DoesNotFit, PlanRejected, TvmExtError
from tvm_ext.core.files.arrays import read_arrays
from tvm_ext.core.files.output_folder import replaced_folder
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import BuildOptions, Target
from tvm_ext.core.platform import Platform
from tvm_ext.core.printable import json_text
from tvm_ext.core.processes.at_once import at_once
from tvm_ext.core.progress import Progress, named, stage, told
from tvm_ext.core.short_tracebacks import short_tracebacks
from tvm_ext.execution.samples import RunResult
from tvm_ext.frontends.load import load
from tvm_ext.packages.package import check_finished
from tvm_ext.report.bundle_report import make_bundle_report, used_bytes
from tvm_ext.report.page.page import report_page
from tvm_ext.report.report import make_report
from tvm_ext.services.executors import check_services
from tvm_ext.verification.judgement import steps_of


@short_tracebacks
def bundle(
    source: str | Path | BundleFile,
    platform: Platform | str,
    folder: str | Path,
    *,
    verify: tuple[Target, ...] | None = None,
    limits: Limits | None = None,
    progress: Progress | bool | None = None,
    jobs: int | None = None,
) -> BundlePackage:
    """Compile the models of a bundle's file into one package at `folder`, and verify them together.

    folder: a package that is already there is replaced as a whole, and stays unchanged if anything fails.
    verify: as in `BuildOptions`.
    limits: as `load` takes them.
    progress: as `build` takes it.
    jobs: the number of C compilers and runs at the same time. None: as many as there are processors.
    Raises BadBundle, and all that `load` and `build` raise, with the model's name.
    """
    file = source if isinstance(source, BundleFile) else BundleFile.load(path_of(source, "source", BadBundle))
    folder = path_of(folder, "folder")
    platform = platform if isinstance(platform, Platform) else Platform.load(platform)
    check_processors(platform)
    targets = targets_of(platform, verify)
    check_kind(jobs, "jobs", int, "a number of processes, 1 or more")
    check_services(1 if jobs is None else jobs, None, None)
    with told(progress) as progress, replaced_folder(folder) as new, at_once(jobs) as threads:
        modules = {model.name: _loaded(file, model, limits) for model in file.models}
        with stage(progress, "choosing processors"):
            placement = place_models(file, platform, copy_cycles(file, modules), partial(_compiled, file, modules))
        subjects = [
            _subject(file, model, modules[model.name], platform, placement, bool(targets), progress)
            for model in file.models
        ]
        members = [_member(subject, platform) for subject in subjects]
        one = placed_round(file, members, placement, platform)
        common = bundle_of(file.name, members, groups_at_once(file, members, one))
        links = placed_links(links_of(file, common.members, [one.mod for one in subjects]), members, file, platform)
        variants = variants_of(file, common.members, platform)
        common = replace(common, links=tuple(links), variants=tuple(variants), round=one)
        _check(common, platform)
        subjects = [
            replace(one, compiled=replace(one.compiled, sharing=common.sharing(member)))
            for one, member in zip(subjects, common.members, strict=True)
        ]
        selftests = {one.model: selftest_of(one) for one in subjects}
        write_texts(new, common, subjects, selftests, platform, compares=bool(targets))

        def compile_c() -> Built:
            with stage(progress, f"compiling the C for {platform.name}"):
                return compile_bundle(new, common, platform, own_flags_of(common, subjects, platform))

        def covered() -> dict[str, Any] | None:
            if "host" not in targets:
                return None
            with stage(progress, "counting what the self-test covers"):
                return coverage_of(new, common)

        # The runs on this machine and the measurement of coverage do not wait for the platform's compiler.
        compiling, covering = threads.submit(compile_c), threads.submit(covered)
        steps = {one.model: threads.submit(steps_of, one, one.expected) for one in subjects if one.expected}
        verified, boards, measured = verify_bundle(
            new, common, subjects, selftests, compiling, steps, targets, platform, progress
        )
        built, coverage = compiling.result(), covering.result()
        reports = {
            one.model: _report_of(
                new,
                common,
                one,
                selftests[one.model],
                built,
                verified[one.model],
                boards.get(one.model),
                targets,
                progress,
            )
            for one in subjects
        }
        report = make_bundle_report(
            common, f"tvm_ext {version('tvm-ext')}", platform, reports, at_once=file.at_once,
            processors=processors_report(common, placement, platform, measured),
            code_bytes=sum(built.code_bytes.values()), symbol_bytes=built.symbol_bytes,
            artifacts=artifacts_of(new, built), coverage=coverage,
        )  # fmt: skip
        (new / "report.json").write_text(json_text(report) + "\n", encoding="utf-8")
        (new / "report.html").write_text(report_page(report), encoding="utf-8")
        (new / "README.md").write_text(emit_bundle_readme(common, report), encoding="utf-8")
        check_finished(
            new, folder, {one.model: one.interface for one in common.members}, lambda: BundlePackage.load(new).models
        )
    return BundlePackage.load(folder)


def _loaded(file: BundleFile, model: BundledModel, limits: Limits | None) -> tvm.IRModule:
    """Load one model of the bundle. Errors begin with the model's name."""
    with _named_in_errors(model.name):
        initial, path = file.path_of(model, "initial"), file.path_of(model, "file")
        assert path is not None, "each model has a file"
        module = load(
            path, shapes=model.shapes, limits=limits, states=model.states,
            initial=read_arrays(initial) if initial else None, bind=model.bind, signature=model.signature,
            rounding=model.build_options(()).rounding,
        )  # fmt: skip
        return with_linked_inputs(module, file, model)


def _compiled(
    file: BundleFile,
    modules: Mapping[str, tvm.IRModule],
    model: BundledModel,
    platform: Platform,
    options: BuildOptions,
) -> Compiled:
    """Compile one model of the bundle to predict its time."""
    with _named_in_errors(model.name):
        return compile_model(modules[model.name], platform, options, file.path_of(model, "calibration"))[1]


def _subject(
    file: BundleFile,
    model: BundledModel,
    module: tvm.IRModule,
    platform: Platform,
    placement: BundlePlacement,
    verifies: bool,
    progress: Progress | None,
) -> Subject:
    """Compile one model of the bundle for its processors. Errors begin with the model's name."""
    runs_on = placement.runs_on[model.name]
    with _named_in_errors(model.name):
        return make_subject(
            module, platform_for(platform, runs_on), options_for(model, runs_on),
            calibration=file.path_of(model, "calibration"), verify_inputs=file.path_of(model, "verify_inputs"),
            verifies=verifies, progress=named(progress, model.name),
        )  # fmt: skip


@contextmanager
def _named_in_errors(model: str) -> Generator[None]:
    """Put the model's name before the messages of errors, except for errors of BUNDLE.toml, which name their place."""
    try:
        yield
    except BadBundle:
        raise
    except TvmExtError as error:
        error.args = (f"{model}: {error}", *error.args[1:])
        raise


def _member(subject: Subject, platform: Platform) -> Member:
    compiled = subject.compiled
    runs_on = (compiled.platform.processor.name, *compiled.interface.servers)
    return Member(
        program=compiled.program, plan=compiled.plan, interface=compiled.interface,
        optimize=subject.options.compile_for, processors=() if runs_on == (platform.processor.name,) else runs_on,
        compiled_as=compiled_as(platform, runs_on[0]),
    )  # fmt: skip


def _check(common: Bundle, platform: Platform) -> None:
    """Check the overlaid arenas and the memories of a bundle.

    Raises PlanRejected if arenas of models that may run at the same time overlap, and DoesNotFit if all models together
    do not fit a memory.
    """
    faults = [fault for overlay in common.overlays for fault in overlay_faults(overlay, common.at_once)]
    if common.round:
        first = platform.processor.name
        runs_on = {one: common.member(one).processors or (first,) for one in common.round.models}
        faults += round_faults(common.round, runs_on)
    if faults:
        raise PlanRejected(f"{common.name}: {'; '.join(faults)}. This is a defect of tvm-ext; please report it.")
    for name, needed in used_bytes(common, platform).items():
        capacity = platform.memory(name).usable_bytes
        if needed > capacity:
            largest = max(common.members, key=lambda member: sum(member.overlaid.values()))
            raise DoesNotFit(
                f"{common.name}: its models need {needed} B of {name} together, for overlaid arenas, states and "
                f"weights; {platform.name} has {capacity} B, {needed - capacity} B less. Give {largest.model} a "
                "smaller `ram` in its options, or remove a model or groups of at_once."
            )


def _report_of(
    folder: Path,
    common: Bundle,
    subject: Subject,
    selftest: SelfTest,
    built: Built,
    verified: Mapping[str, Any],
    board: RunResult | None,
    targets: Sequence[str],
    progress: Progress | None,
) -> dict[str, Any]:
    """Return the report of a model as for a single package, with the names of the bundle and its models."""
    measured = QuantizationMeasured.read(subject.mod).report
    names = [member.model for member in common.members]
    report = make_report(
        subject.compiled, subject.options, ModelOrigin.read(subject.mod), measured,
        code_bytes=built.code_bytes[subject.model], stack_bytes=board.stack_bytes if board else None,
        artifacts=artifacts_of(folder, built), verify=verified,
        comparisons=[form.to_json() for form in subject.forms],
        assurance={
            **measured_assurance(folder, subject.compiled, built.elf, targets, progress, in_bundle=True),
            "selftest": selftest.to_json(subject.compiled.interface),
        },
    )  # fmt: skip
    return {**report, "bundle": {"name": common.name, "models": names, "processors": list(common.other_cores)}}
