"""Build a package: write its files, compile, run and verify them, and move the folder to its destination."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.emit.firmware import SECTIONS_FILE
from codegen_c.emit.image import check_image
from codegen_c.emit.readme import emit_readme
from codegen_c.emit.weights import is_weights_file
from codegen_c.program.makespan import SharedRun
from codegen_c.program.program import drivers_of
from codegen_c.program.share_steps import share_steps
from codegen_c.targets.registry import check_processors, machine_name, startup_of
from tvm_ext.assurance.assurance import measured_assurance
from tvm_ext.building.ahead import compile_ahead
from tvm_ext.building.artifacts import Artifacts, compile_package, write_texts
from tvm_ext.building.image import Image, make_image, run_image
from tvm_ext.building.selftest import SelfTest, drawn_faults, selftest_of
from tvm_ext.building.subject import RUNNER, Subject, host_outputs, make_subject
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.arguments import check_kind, chosen_options, path_of, takes_options
from tvm_ext.core.decisions.models import ModelOrigin, QuantizationMeasured
from tvm_ext.core.errors import BadOptions, DoesNotFit
from tvm_ext.core.files.output_folder import replaced_folder
from tvm_ext.core.files.staging import made_in_temporary_folder
from tvm_ext.core.model_nodes import ModelNode
from tvm_ext.core.options import BuildOptions, Target
from tvm_ext.core.platform import QUICK_TOOLCHAIN, Platform
from tvm_ext.core.printable import json_text
from tvm_ext.core.processes.at_once import at_once
from tvm_ext.core.processes.native_warnings import native_warnings_dropped
from tvm_ext.core.progress import Progress, stage, told
from tvm_ext.core.short_tracebacks import short_tracebacks
from tvm_ext.execution.board import board_seconds, run_qemu
from tvm_ext.execution.host_model import HostModel
from tvm_ext.execution.qemu_start import runs_board
from tvm_ext.execution.runner import Runner, check_device, run_by
from tvm_ext.execution.samples import RunResult
from tvm_ext.frontends.calibration import Examples, Source, calibration_by_examples, opened_model
from tvm_ext.frontends.load import ModelSource
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.packages.package import TRACE_FILE, Package, check_finished
from tvm_ext.profiling.layer_names import steps_of_package
from tvm_ext.report.flash import FlashByLayer, flash_by_layer
from tvm_ext.report.page.page import report_page
from tvm_ext.report.report import float_operations, make_report
from tvm_ext.services.executors import opened_services
from tvm_ext.verification.judgement import (
    Problem,
    failed_verification,
    judged_device,
    judged_runs,
    not_the_model,
    steps_of,
)
from tvm_ext.verification.verify_inputs import VerifyInputs

Sample = Mapping[str, np.ndarray]


@takes_options
@short_tracebacks
@native_warnings_dropped()
def build(
    source: ModelSource,
    platform: Platform | str,
    folder: str | PathLike[str] | None = None,
    options: BuildOptions | None = None,
    *,
    example_inputs: Examples | None = None,
    calibration: Source | None = None,
    verify_inputs: VerifyInputs | None = None,
    progress: Progress | bool | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    scheduler: str | None = None,
    runner: str | Runner | None = None,
    **choices: object,
) -> Package:
    """Compile a model into a package at `folder`, and verify the package as the options say.

    source: as `load` takes it. To pass other arguments to `load` than its defaults, call `load` and give its result.
    example_inputs: inputs of a torch.nn.Module, as `load` takes them. With `quantize` and without calibration they are
    the calibration data, too, and a ModelNotice says so.
    folder: a package that is already there is replaced as a whole, and stays unchanged if anything fails. None: a
    temporary folder, which is removed once nothing refers to the returned package; `Package.save` keeps a copy.
    choices: options by keyword, each as `BuildOptions` has it: quantize="int8", ram="64KiB". They override `options`.
    progress: a function that is called with each stage that begins. True shows the stages: as a bar in a notebook if
    tqdm or ipywidgets is installed, otherwise as lines on standard error.
    calibration: samples of the inputs for `quantize = "int8"` and `"auto"`, as `read_calibration` takes them.
    verify_inputs: samples to compare outputs on, as `read_verify_inputs` takes them. By default they are a few random
    samples in ranges that the model's operators accept.
    jobs: the number of tasks at the same time: processes that try methods to make the model fit, C compilers, and runs
    on the host, on the board and for coverage. None: compilers and runs on all processors, and one process for methods.
    executor: any executor of `concurrent.futures`, which tries methods in place of processes.
    scheduler: the address of a dask.distributed cluster, which tries methods in place of processes. The package is the
    same with any number of processes.
    runner: a command that runs firmware on a device, as `Package.run_device` takes it. The package is verified on the
    device, too, and with `tune` kernels are measured on the device instead of in QEMU.
    Raises UnsupportedModel, DoesNotFit, BadInput, BadOptions, UnknownOption, BadPackage, MissingTool, BuildFailed,
    RunFailed, VerificationFailed.
    """
    options = chosen_options(options, choices, function=build)
    platform = platform if isinstance(platform, Platform) else Platform.load(platform)
    check_kind(jobs, "jobs", int, "a number of processes, 1 or more")
    check_processors(platform)
    device = None if runner is None else Runner.parse(runner)
    targets = targets_of(platform, options.verify, device, options.tune)
    if options.relocatable_image:
        check_image(platform)
    with told(progress) as say:
        mod = opened_model(source, example_inputs)
        data = calibration_by_examples(mod, options, calibration, example_inputs)

        def built(destination: Path) -> Package:
            with replaced_folder(destination) as new, at_once(jobs) as threads:
                with opened_services(1 if jobs is None else jobs, executor, scheduler) as services:
                    subject = make_subject(
                        mod, platform, options, calibration=data, verify_inputs=verify_inputs, verifies=bool(targets),
                        progress=say, services=services, jobs=jobs, runner=device,
                        ahead=partial(compile_ahead, threads, options=options, verifies=bool(targets)),
                    )  # fmt: skip
                subject, used = without_small_machine(subject, targets, options.verify, device)
                _fill(new, destination, subject, options, used, say, device, threads)
            return Package.load(destination)

        return made_in_temporary_folder(built) if folder is None else built(path_of(folder, "folder"))


def _fill(
    new: Path, destination: Path, subject: Subject, options: BuildOptions, targets: Sequence[str],
    progress: Progress | None, device: Runner | None, threads: Executor,
) -> None:  # fmt: skip
    """Write, compile, run and verify the package of a compiled model in a new folder. Raises as `build` does."""
    mod, compiled = subject.mod, subject.compiled
    say_pipeline(compiled, options)
    say_weights(compiled, options)
    say_floats(compiled, ModelOrigin.read(mod).nodes)
    selftest = selftest_of(subject)
    write_texts(new, compiled, options, selftest.stored, selftest.drawn)
    (new / TRACE_FILE).write_text(compiled.trace(ModelOrigin.read(mod).nodes), encoding="utf-8")
    objects = new / "build"

    def compile_c() -> Artifacts:
        with stage(progress, f"compiling the C for {compiled.platform.name}"):
            return compile_package(new, compiled, options, objects)

    # Verification and the measurement of coverage wait for the compilers by the future `compiling`, so that the host's
    # library, the firmware and the reference runtime work at the same time.
    compiling = threads.submit(compile_c)
    verifying = _verifying(threads, new, subject, selftest, compiling, targets, progress, device)
    assuring = threads.submit(lambda: measured_assurance(new, compiled, compiling.result().elf, targets, progress))
    artifacts = compiling.result()
    image = make_image(new, compiled, options, objects) if options.relocatable_image else None
    verified, board = verifying()
    assurance = assuring.result() | {"selftest": selftest.to_json(compiled.interface)}
    shutil.rmtree(objects)
    runs = _run_image(image, subject, board, progress) if image and board else None
    report = make_report(
        compiled, options, ModelOrigin.read(mod), QuantizationMeasured.read(mod).report,
        code_bytes=artifacts.code_bytes, stack_bytes=board.stack_bytes if board else None,
        artifacts={
            "library": artifacts.library.relative_to(new).as_posix(),
            "elf": artifacts.elf.relative_to(new).as_posix() if artifacts.elf else None,
            "sections": SECTIONS_FILE if (new / SECTIONS_FILE).is_file() else None,
        },
        image=image.to_json(runs) if image else None,
        shared_run=_shared_run(subject, options, board, progress), verify=verified,
        comparisons=[form.to_json() for form in subject.forms],
        flash=_flash(new, compiled, artifacts), assurance=assurance,
        tuning=subject.tuning.to_json() if subject.tuning else None,
    )  # fmt: skip
    (new / "report.json").write_text(json_text(report) + "\n", encoding="utf-8")
    (new / "report.html").write_text(report_page(report), encoding="utf-8")
    readme = emit_readme(compiled.interface, report, compiled.own_flags, compiled.weights_files)
    (new / "README.md").write_text(readme, encoding="utf-8")
    check_finished(new, destination, {subject.model: compiled.interface}, lambda: {subject.model: Package.load(new)})


def _flash(folder: Path, compiled: Compiled, artifacts: Artifacts) -> FlashByLayer:
    """Return the flash bytes of each layer, counted by the functions that the package's trace names for it."""
    functions = steps_of_package(folder / TRACE_FILE).functions
    model = compiled.interface.model
    return flash_by_layer(
        compiled.program, artifacts.code, functions, is_weights=lambda name: is_weights_file(name, model)
    )


def targets_of(
    platform: Platform, verify: tuple[Target, ...] | None, runner: Runner | None = None, tune: bool = False
) -> tuple[str, ...]:
    """Return the targets to verify on. With a runner the device replaces QEMU unless `verify` asks for QEMU, too.

    Raises BadOptions if `verify` or `runner` needs a board and the platform has none, and for a runner without work.
    """
    if runner is not None:
        if platform.board is None:
            raise BadOptions(f"runner: {platform.name} has no board, so there is no firmware for a device.")
        check_device(platform)
        if verify == () and not tune:
            raise BadOptions(
                "runner: nothing is verified and no kernel is measured, so nothing runs on the device. Remove runner."
            )
        return () if verify == () else (*(verify or ("host",)), RUNNER)
    if verify is None:
        if platform.board is None:
            return ("host",)
        return ("host", "qemu") if runs_board(platform) else ("host",)
    if "qemu" in verify and not platform.board:
        raise BadOptions(
            f"verify = qemu: {platform.name} has no board. Choose verify = host, or a platform that has a board."
        )
    return verify


Verified = tuple[dict[str, Any], RunResult | None]
"""Results by target, None for a target without a run, and the result of the run on the board."""


def _verifying(
    threads: Executor, folder: Path, subject: Subject, selftest: SelfTest, compiling: Future[Artifacts],
    targets: Sequence[str], progress: Progress | None, runner: Runner | None = None,
) -> Callable[[], Verified]:  # fmt: skip
    """Start the runs on all targets, and return a function that waits for them and judges their outputs.

    The returned function raises VerificationFailed.
    """
    compiled, expected = subject.compiled, subject.expected
    if expected is None:
        return lambda: ({"host": None, "qemu": None}, None)

    def on_host() -> tuple[list[dict[str, np.ndarray]], list[str]]:
        is_host = not compiled.platform.toolchain_of(compiled.platform.processor).prefix
        objects = compiling.result().on_host if is_host else ()
        with (
            stage(progress, "running on the host"),
            HostModel(folder, compiled.interface, toolchain=QUICK_TOOLCHAIN, objects=objects) as model,
        ):
            host = host_outputs(model, subject.samples)
            wrong = drawn_faults(subject, model, selftest)
        return host, [*wrong, *(_drivers_at_once(folder, subject, host) if drivers_of(compiled.program) else [])]

    def on_board() -> RunResult | None:
        elf = compiling.result().elf
        if "qemu" not in targets or not elf:
            return None
        with stage(progress, f"running {startup_of(compiled.platform).place}"):
            return run_qemu(
                elf, compiled.platform, compiled.interface, subject.board_samples,
                time_limit_s=board_seconds(compiled.modelled_instructions, len(subject.board_samples)),
                parallel=compiled.parallel,
            )  # fmt: skip

    def on_device() -> RunResult | None:
        elf = compiling.result().elf
        if RUNNER not in targets or runner is None or elf is None:
            return None
        with stage(progress, "running on the device"):
            return run_by(runner, elf, compiled.platform, compiled.interface, subject.board_samples)

    hosts, boards, devices = threads.submit(on_host), threads.submit(on_board), threads.submit(on_device)
    steps = threads.submit(steps_of, subject, expected)

    def verified() -> Verified:
        host, run_problems = hosts.result()
        board = boards.result()
        device = devices.result()
        results, problems = judged_runs(subject, expected, steps.result(), host, board)
        if device is not None and runner is not None:
            results[RUNNER], wrong = judged_device(subject, expected, host, device, runner)
            problems += wrong
        if problems or run_problems:
            raise failed_verification(
                subject, expected, [*(Problem(text=text, cause="run") for text in run_problems), *problems]
            )
        say_doubts(subject.model, results["host"]["warnings"])
        return {target: result if target in targets else None for target, result in results.items()}, board

    return verified


def _drivers_at_once(folder: Path, subject: Subject, host: Sequence[Sample]) -> list[str]:
    """Return a sentence for each output that changes if accelerators compute at their start, not at their wait.

    host: outputs with computation at the wait. Equal bytes show that no step touches an operand while it is in use.
    """
    flags = ["-DTVM_EXT_OFFLOAD_EARLY=1"]
    with HostModel(folder, subject.compiled.interface, toolchain=QUICK_TOOLCHAIN, flags=flags) as model:
        early = host_outputs(model, subject.samples)
    differ = sorted(
        {name for one, other in zip(host, early, strict=True) for name in one if not _same(one[name], other[name])}
    )
    return [
        f"output {name}: it differs if accelerators compute at their start instead of at their wait" for name in differ
    ]


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return True if two arrays have the same bytes. NaN equals NaN of the same bits, and 0.0 differs from -0.0."""
    return one.tobytes() == other.tobytes()


def _shared_run(
    subject: Subject, options: BuildOptions, board: RunResult | None, progress: Progress | None
) -> SharedRun | None:
    """Return the instructions of a run on several processors and of a run on one processor.

    None if the board counted no shared run, or if the model uses accelerators: the C code that replaces an accelerator
    in QEMU does not take the accelerator's time.
    """
    if board is None or board.shared is None or drivers_of(subject.compiled.program):
        return None
    with stage(progress, "measuring one processor alone"):
        return replace(board.shared, single=instructions_alone(subject, options))


def _run_image(image: Image, subject: Subject, board: RunResult, progress: Progress | None) -> list[dict[str, Any]]:
    """Return measurements of the image's runs from two addresses.

    Raises VerificationFailed if the image's outputs differ from the library's.
    """
    with stage(progress, "running the image from two addresses"):
        runs, problems = run_image(image, subject.compiled, subject.board_samples, board.outputs)
    if problems:
        raise not_the_model(subject.model, problems)
    return runs


MOST_NAMES = 8
"""Number of operators that a warning names; it counts the others."""


def say_pipeline(compiled: Compiled, options: BuildOptions) -> None:
    """Warn if the options ask for a pipeline over several cores and the model could not become a pipeline."""
    cores = [core.name for core in options.cores_of(compiled.platform)]
    if options.placement_objective != "throughput" or len(cores) < 2 or compiled.interface.is_pipeline:
        return
    reason = "values or states would go from a stage back to an earlier stage"
    if compiled.placement is None:
        reason = f"two inputs at the same time do not fit {compiled.platform.activations} or the option ram"
    elif compiled.parallel is None:
        reason = f"{cores[0]} alone is predicted to be as fast"
    warnings.warn(
        f"placement_objective = 'throughput': {compiled.interface.model} cannot be a pipeline over "
        f"{' and '.join(cores)}: {reason}. The package has {compiled.interface.run}, which takes one input at a time, "
        f"and does not have {compiled.interface.put} and {compiled.interface.take}.",
        ModelNotice, stacklevel=3,
    )  # fmt: skip


def say_weights(compiled: Compiled, options: BuildOptions) -> None:
    """Warn if the options ask for weights of 4 bits and no layer has such weights."""
    if options.weights == "int8" or any(call.weight_bits == 4 for call in compiled.program.kernel_calls()):
        return
    reason = (
        "with 4-bit weights in any layer the outputs would fall below min_snr_db, or no kernel takes 4-bit weights of "
        "that layer"
    )
    if options.quantize != "int8":
        reason = (
            "no quantized layer has int8 weights from -8 to 7 and a kernel that takes such weights. For a float model, "
            "quantize = 'int8' with calibration data makes 4-bit weights"
        )
    warnings.warn(
        f"weights = {options.weights!r}: the weights of {compiled.interface.model} are not stored in 4 bits: {reason}.",
        ModelNotice, stacklevel=3,
    )  # fmt: skip


def say_floats(compiled: Compiled, nodes: Sequence[ModelNode]) -> None:
    """Warn if operators that have quantized integers in the model file compute in float32. nodes: model operators."""
    emulated = [operation for operation in float_operations(compiled, nodes) if operation["emulated"]]
    if not emulated:
        return
    names = list(dict.fromkeys(node for operation in emulated for node in operation["source_nodes"]))
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    warnings.warn(
        f"{compiled.interface.model} computes {listed} in float32, although their operands are quantized: no integer "
        "kernel takes these operators. They take longer, above all without an FPU, and their results may differ by 1 "
        "from the reference runtime's. float_operations in report.json gives the reasons.",
        ModelNotice, stacklevel=3,
    )  # fmt: skip


def say_doubts(model: str, doubts: Sequence[str]) -> None:
    """Warn about each output that the samples verify weakly."""
    for doubt in doubts:
        warnings.warn(f"{model}: {doubt}.", ModelNotice, stacklevel=3)


def without_small_machine(
    subject: Subject, targets: Sequence[str], verify: Sequence[Target] | None, runner: Runner | None
) -> tuple[Subject, tuple[str, ...]]:
    """Remove firmware from the subject, and QEMU from the targets, if the emulated machine has too little memory.

    A warning says so. verify: targets that the options ask for. Raises BadOptions if the options ask for firmware.
    """
    reason = too_small(subject.compiled)
    if not reason:
        return subject, tuple(targets)
    if runner is not None or "qemu" in (verify or ()):
        asked = "verify = qemu" if runner is None else "runner"
        raise BadOptions(f"{asked}: {reason}. Choose verify = host, which needs no firmware.")
    warnings.warn(f"{reason}. The package has no firmware and is verified on the host only.", ModelNotice, stacklevel=3)
    compiled = subject.compiled
    bare = replace(compiled, platform=replace(compiled.platform, board=None))
    return replace(subject, compiled=bare), tuple(target for target in targets if target != "qemu")


def too_small(compiled: Compiled) -> str:
    """Return which memory of the emulated machine is too small; empty if the model fits or there is no machine."""
    platform, used = compiled.platform, dict(compiled.origin.memories)
    if platform.board is None:
        return ""
    for memory in platform.on_machine.memories:
        if used.get(memory.name, 0) > memory.usable_bytes:
            return (
                f"{compiled.interface.model} needs {used[memory.name]} B of {memory.name}, but QEMU's "
                f"{machine_name(platform)}, which emulates {platform.name}, has {memory.usable_bytes} B for it"
            )
    return ""


def instructions_alone(subject: Subject, options: BuildOptions) -> int | None:
    """Return the executed instructions of a run on the single processor that is predicted to be the fastest.

    If another processor starts and calls that processor, the count includes their signals. None if the model does not
    fit the processor's memories.
    """
    platform, placement = subject.compiled.platform, subject.compiled.placement
    name = placement["single_processor"]["name"] if placement else platform.processor.name
    unquantized = replace(  # the subject's module is already quantized
        options, quantize="none", io_type="int8", activations="int8", verify=()
    )
    try:
        compiled = compiled_alone(subject, platform, unquantized, name)
    except DoesNotFit:
        return None
    with TemporaryDirectory(prefix="tvm_ext_") as folder:
        write_texts(Path(folder), compiled, options, selftest_of(subject).stored)
        artifacts = compile_package(Path(folder), compiled, options, Path(folder) / "build")
        assert artifacts.elf is not None, "the board has run the model before"
        ran = run_qemu(
            artifacts.elf, platform, compiled.interface, subject.samples[:1],
            time_limit_s=board_seconds(compiled.modelled_instructions, 1), parallel=compiled.parallel,
        )  # fmt: skip
    return ran.instructions


def compiled_alone(subject: Subject, platform: Platform, options: BuildOptions, name: str) -> Compiled:
    """Compile the model with all its steps on the processor `name`. Raises DoesNotFit."""
    processor, first = platform.processor_named(name), platform.processor
    others = [other for other in platform.processors if other != processor]
    chosen = replace(options, processors=(name,), name=subject.compiled.interface.model)
    compiled = compile_module(subject.mod, replace(platform, processors=(processor, *others)), chosen)
    if processor == first:
        return compiled
    # Firmware starts on the first processor, which has no steps here and only calls the other.
    lists = {first.name: [], name: [step.name for step in compiled.program.steps]}
    parallel = share_steps(compiled.program, lists, compiled.plan.places)
    interface = replace(compiled.interface, servers=(name,))
    return replace(compiled, program=parallel.program, parallel=parallel, platform=platform, interface=interface)
