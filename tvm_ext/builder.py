"""Module + platform -> package: write, compile, run, compare, report; then, and only then, put it in place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from codegen_c.arena.profile import live_profile
from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import moved_bytes
from codegen_c.emit.build_files import emit_build_files
from codegen_c.emit.firmware import emit_firmware
from codegen_c.emit.memory_map import emit_memory_map
from codegen_c.emit.readme import emit_readme
from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors
from codegen_c.program import reference
from codegen_c.targets.registry import check_processors, startup_of
from tvm_ext.assurance.assurance import measured_assurance
from tvm_ext.calibration import Source
from tvm_ext.core.decisions.models import ModelOrigin, QuantizationMeasured
from tvm_ext.core.errors import BadOptions, NotReady, VerificationFailed
from tvm_ext.core.files.output_folder import replaced_folder
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, link_elf, section_sizes, static_library
from tvm_ext.execution.runner import HostModel, QemuResult, board_seconds, library_sources, run_qemu
from tvm_ext.package import PLATFORM_FILE, Package
from tvm_ext.pipeline import compile_model
from tvm_ext.report.report import make_report, moved_table
from tvm_ext.verification.account import sources
from tvm_ext.verification.input_ranges import input_ranges, random_inputs
from tvm_ext.verification.verify import BOARD_TOLERANCE, FLOAT_TOLERANCE, compare
from tvm_ext.verification.verify_inputs import VerifyInputs, read_verify_inputs
from tvm_ext.verification.verify_steps import check_steps
from tvm_ext.verification.windows import against_windows, inner_of, windows_of
from tvm_ext.verification.witnesses.ask import ask
from tvm_ext.verification.witnesses.testimony import Testimony

Progress = Callable[[str], None]
Sample = Mapping[str, np.ndarray]
NUM_SAMPLES = 3
NUM_STEPS = 100
"""Consecutive samples of a model with states."""
NUM_STEPS_STORED = 4
TRACE_FILE = "trace.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Expected:
    """Samples, and what a witness makes of them.

    asked: the samples as the model takes them: of a stream of hops, the window that ends with each, once it is full.
    """

    samples: list[dict[str, np.ndarray]]
    asked: list[dict[str, np.ndarray]]
    testimony: Testimony


@dataclass(frozen=True, kw_only=True)
class _Artifacts:
    library: Path
    elf: Path | None
    code_bytes: int


def build(
    mod: tvm.IRModule,
    platform: Platform | str,
    folder: str | Path,
    options: BuildOptions | None = None,
    *,
    calibration: Source | None = None,
    verify_inputs: VerifyInputs | None = None,
    progress: Progress | None = None,
) -> Package:
    """Compile a module into a package at `folder`, verified as the options ask.

    An existing package there is replaced whole, or, if anything fails, not at all. progress is told what begins.
    calibration: for `quantize = "int8"` and `"auto"`: samples of the inputs as `read_calibration` takes them.
    verify_inputs: samples to compare on, as `read_verify_inputs` takes them; by default a few random ones, in ranges
    that the model's operators can take.
    Raises UnsupportedModel, DoesNotFit, BadInput, BadOptions, BadPackage, MissingTool, BuildFailed, RunFailed,
    VerificationFailed.
    """
    options, folder = BuildOptions() if options is None else options, Path(folder)
    if not isinstance(options, BuildOptions):
        raise BadOptions(f"options is a {type(options).__name__}; a BuildOptions is needed.")
    platform = platform if isinstance(platform, Platform) else Platform.load(platform)
    say = progress or (lambda _: None)
    check_processors(platform)
    targets = _targets(platform, options)
    with replaced_folder(folder) as new:
        say("compiling the model to C" if options.quantize == "none" else "quantizing the model, compiling it to C")
        mod, compiled = compile_model(mod, platform, options, calibration)
        samples = _samples(mod, compiled, verify_inputs)
        expected = _expect(mod, compiled, samples, say) if targets else None
        _write_texts(new, compiled, options, _vectors(compiled, samples, expected))
        (new / TRACE_FILE).write_text(compiled.trace(ModelOrigin.read(mod).nodes), encoding="utf-8")
        say(f"compiling the C for {platform.name}")
        artifacts = _compile(new, compiled, options)
        verified, board = _verify(new, mod, compiled, expected, artifacts, targets, say)
        report = make_report(
            compiled, options, ModelOrigin.read(mod), QuantizationMeasured.read(mod).report,
            code_bytes=artifacts.code_bytes, stack_bytes=board.stack_bytes if board else None,
            artifacts={
                "library": artifacts.library.relative_to(new).as_posix(),
                "elf": artifacts.elf.relative_to(new).as_posix() if artifacts.elf else None,
            },
            verify=verified, assurance=measured_assurance(new, compiled, artifacts.elf, targets, say),
        )  # fmt: skip
        (new / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        live = live_profile(compiled.program, compiled.plan)
        picture = emit_memory_map(compiled.interface.model, compiled.program, compiled.plan, live)
        (new / "memory_map.html").write_text(picture, encoding="utf-8")
        (new / "README.md").write_text(emit_readme(compiled.interface, report), encoding="utf-8")
    return Package.load(folder)


def _targets(platform: Platform, options: BuildOptions) -> tuple[str, ...]:
    """Targets on which to verify. Raises BadOptions where a board is asked for that the platform does not have."""
    if options.verify is None:
        if platform.board is None:
            return ("host",)
        tools = (startup_of(platform).emulator, f"{platform.toolchain.prefix}gcc")
        return ("host", "qemu") if all(map(shutil.which, tools)) else ("host",)
    if "qemu" in options.verify and not platform.board:
        raise BadOptions(f"verify = qemu: {platform.name} has no board; choose host, or a platform that has one.")
    return options.verify


def _samples(mod: tvm.IRModule, compiled: Compiled, given: VerifyInputs | None) -> list[dict[str, np.ndarray]]:
    """The user's samples, or a few random ones in ranges that the model's operators can take."""
    specs = {port.source: (port.shape, port.dtype) for port in compiled.interface.inputs}
    if given is not None:
        return read_verify_inputs(given, specs)
    ranges = input_ranges(mod)
    count = compiled.interface.warm_up_runs + NUM_STEPS if compiled.program.states else NUM_SAMPLES
    return [random_inputs(specs, seed, ranges) for seed in range(count)]


def _expect(mod: tvm.IRModule, compiled: Compiled, samples: list[dict[str, np.ndarray]], say: Progress) -> _Expected:
    """Results of the first witness that takes the model, those inside the model too where it is quantized."""
    say("asking what the model means")
    quantized_here = QuantizationMeasured.read(mod).report is not None
    asked, hops = windows_of(mod, compiled.interface, samples), compiled.interface.warm_up_runs > 0
    inner = (inner_of(mod) if hops else sources(compiled.program)) if compiled.is_quantized else []
    testimony = ask(mod, asked, inner, quantized_here=quantized_here)
    return _Expected(samples=samples, asked=asked, testimony=testimony)


def _write_texts(folder: Path, compiled: Compiled, options: BuildOptions, vectors: Sequence[TestVector]) -> None:
    interface, platform = compiled.interface, compiled.platform
    moves, compares = bool(compiled.program.moves()), vectors[0].outputs is not None
    texts = compiled.sources()
    units = [name for name in texts if name.endswith(".c")]
    texts = {
        **texts,
        **emit_vectors(interface, vectors),
        **emit_selftest(interface, tolerance=FLOAT_TOLERANCE, compares=compares),
        **emit_build_files(interface.model, units, platform, options.optimize),
        **(emit_firmware(interface, platform, moves=moves, compares=compares) if platform.board else {}),
        PLATFORM_FILE: json.dumps(json.loads(platform.to_json()), indent=2) + "\n",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _vectors(compiled: Compiled, samples: Sequence[Sample], expected: _Expected | None) -> list[TestVector]:
    """A sample with what the self-test expects: the kernels' own bytes where the model is quantized.

    Of a model with states, the first samples in order. No outputs where nothing is verified: then nothing is run to
    know them.
    """
    warm_up = compiled.interface.warm_up_runs
    stored = samples[: warm_up + NUM_STEPS_STORED if compiled.program.states else 1]
    if expected is None:
        return [TestVector(inputs=sample, outputs=None) for sample in stored]
    if not compiled.is_quantized:
        nothing = {port.source: np.zeros(port.shape, port.dtype) for port in compiled.interface.outputs}
        outputs = [nothing] * warm_up + expected.testimony.outputs
        return [TestVector(inputs=sample, outputs=one) for sample, one in zip(stored, outputs, strict=False)]
    interface, program, vectors = compiled.interface, compiled.program, list[TestVector]()
    states = reference.first_states(program)
    for sample in stored:
        values = reference.run(program, {port.name: sample[port.source] for port in interface.inputs}, states)
        outputs = {port.source: values[port.name] for port in interface.outputs}
        vectors.append(TestVector(inputs=sample, outputs=outputs))
        states = reference.next_states(program, values)
    return vectors


def _compile(folder: Path, compiled: Compiled, options: BuildOptions) -> _Artifacts:
    """The static library, the ELF where there is a board, and the bytes of code in the library."""
    platform, model = compiled.platform, compiled.interface.model
    toolchain = platform.toolchain
    objects_dir = folder / "build"
    library_objects = compile_objects(
        library_sources(folder, model), objects_dir, toolchain, optimize=options.optimize, include_dirs=[folder]
    )
    sizes = section_sizes(library_objects, toolchain)
    code_bytes = sum(s.text + s.rodata + s.data for n, s in sizes.items() if n != f"{model}_weights.o")
    library = static_library(library_objects, folder / f"lib{model}.a", toolchain)
    elf = None
    if platform.board:
        tests = [folder / f"{model}_{part}.c" for part in ("selftest", "vectors")]
        firmware = compile_objects(
            [*tests, *sorted((folder / "board").glob("*.c"))], objects_dir, toolchain,
            optimize=options.optimize, include_dirs=[folder],
        )  # fmt: skip
        script = folder / "board" / "link.ld"
        elf = link_elf([*library_objects, *firmware], folder / f"{model}.elf", toolchain, script=script)
    shutil.rmtree(objects_dir)
    return _Artifacts(library=library, elf=elf, code_bytes=code_bytes)


def _answer(model: HostModel, sample: Sample) -> dict[str, np.ndarray] | None:
    """Outputs of a run; None while a window over time is not full."""
    try:
        return model.run(sample)
    except NotReady:
        return None


def _verify(
    folder: Path,
    mod: tvm.IRModule,
    compiled: Compiled,
    expected: _Expected | None,
    artifacts: _Artifacts,
    targets: Sequence[str],
    say: Progress,
) -> tuple[dict[str, Any], QemuResult | None]:
    """Results per target (None where not run) and the board's figures. Raises VerificationFailed."""
    results: dict[str, Any] = {"host": None, "qemu": None}
    if expected is None:
        return results, None
    say("running on the host")
    quantized, said = compiled.is_quantized, expected.testimony
    with HostModel(folder, compiled.interface) as model:
        host = [outputs for sample in expected.samples if (outputs := _answer(model, sample)) is not None]
    # A quantized model is judged by its steps, and by them what it gives end to end.
    limit = np.inf if quantized else FLOAT_TOLERANCE
    judged = compare(host, said.outputs, tolerance=limit, judge_integers=not quantized)
    problems = [] if judged.passed else [f"host: outputs differ from {said.witness} by {judged.max_abs_error:g}"]
    results["host"] = {**judged.to_json(), **said.to_json()}
    if quantized and compiled.interface.warm_up_runs:
        errors, results["host"]["tensors_compared"] = against_windows(mod, host, expected.asked, said)
        problems += errors
    elif quantized:
        steps = check_steps(compiled, expected.samples, said, host)
        problems += [*steps.against_reference, *steps.against_witness]
        results["host"]["tensors_compared"] = steps.tensors_compared
    board = None
    if "qemu" in targets and artifacts.elf:
        say("running on the board in QEMU")
        board = run_qemu(
            artifacts.elf, compiled.platform, compiled.interface, expected.samples,
            time_limit_s=board_seconds(compiled.modelled_instructions, len(expected.samples)),
        )  # fmt: skip
        answers = board.outputs[compiled.interface.warm_up_runs :]
        same = compare(answers, host, tolerance=BOARD_TOLERANCE)
        against = compare(answers, said.outputs, tolerance=limit, judge_integers=not quantized)
        problems += [] if same.passed else [f"board: outputs differ from the host's by {same.max_abs_error:g}"]
        problems += (
            [] if against.passed else [f"board: outputs differ from {said.witness} by {against.max_abs_error:g}"]
        )
        planned = moved_bytes(compiled.program)
        problems += [] if board.moved_bytes == planned else [f"board: moved {board.moved_bytes}, planned was {planned}"]
        results["qemu"] = {**against.to_json(), **said.to_json(), "instructions": board.instructions}
        results["qemu"]["moved"] = moved_table(board.moved_bytes)
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise VerificationFailed(
            f"{compiled.interface.model}: the C code does not compute the model: {'; '.join(problems[:5])}{more}. "
            "Nothing was written. --verify none builds the package anyway, marked as not verified."
        )
    return {target: result if target in targets else None for target, result in results.items()}, board
