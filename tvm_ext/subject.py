"""A model on its way to a package: compiled, its samples, what they mean, and the judgement of what the C gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import moved_bytes
from codegen_c.kernels.figures import UNMEASURED
from codegen_c.program.program import drivers_of
from codegen_c.program.steps import DriverWait
from tvm_ext.calibration import Source
from tvm_ext.core.decisions.models import QuantizationMeasured
from tvm_ext.core.errors import NotReady, VerificationFailed
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.execution.board import QemuResult
from tvm_ext.execution.host_model import HostModel
from tvm_ext.execution.runner import Runner, RunnerResult
from tvm_ext.pipeline import compiler_of
from tvm_ext.report.report import moved_table
from tvm_ext.services.job import OpenServices
from tvm_ext.tuning.record import Tuning
from tvm_ext.tuning.tune import compile_tuned
from tvm_ext.verification.account import sources
from tvm_ext.verification.drawn_samples import DRAWN_PER_JUDGED, NUM_JUDGED, DrawnSamples, draw_samples, is_exact
from tvm_ext.verification.input_ranges import input_ranges, offset_inputs, random_inputs
from tvm_ext.verification.verify import BOARD_TOLERANCE, compare, tolerance_of
from tvm_ext.verification.verify_inputs import VerifyInputs, read_verify_inputs
from tvm_ext.verification.verify_steps import StepErrors, against_steps, check_steps
from tvm_ext.verification.windows import against_windows, inner_of, windows_of
from tvm_ext.verification.witnesses.ask import ask
from tvm_ext.verification.witnesses.testimony import Testimony

Progress = Callable[[str], None]
Sample = Mapping[str, np.ndarray]
RUNNER = "runner"
"""Target of a device that a command of the user's runs firmware on."""
NUM_SAMPLES = 3
NUM_STEPS = 100
"""Consecutive samples of a model with states."""
NUM_STEPS_STORED = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Expected:
    """Samples as a model takes them, and what a witness makes of them.

    asked: of a stream of hops, the window that ends with each sample, once it is full; else the samples.
    """

    asked: list[dict[str, np.ndarray]]
    testimony: Testimony


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A compiled model and its samples.

    mod: whose answers it gives. samples: what a reference runtime is asked about; drawn ones are the last of them where
    the model is float or has states. expected: None where nothing is verified. drawn: what the self-test draws on the
    device, None where it cannot. tuning: None where no kernel was measured.
    """

    mod: tvm.IRModule
    options: BuildOptions
    compiled: Compiled
    samples: list[dict[str, np.ndarray]]
    expected: Expected | None
    drawn: DrawnSamples | None = None
    tuning: Tuning | None = None

    @property
    def model(self) -> str:
        return self.compiled.interface.model

    @property
    def board_samples(self) -> list[dict[str, np.ndarray]]:
        """Samples that a board runs: of a model without states a few, as boards are slow."""
        return self.samples if self.compiled.program.states or self.drawn is None else self.samples[:NUM_SAMPLES]


def make_subject(
    mod: tvm.IRModule,
    platform: Platform,
    options: BuildOptions,
    *,
    calibration: Source | None,
    verify_inputs: VerifyInputs | None,
    verifies: bool,
    say: Progress,
    services: OpenServices | None = None,
    jobs: int | None = None,
    runner: Runner | None = None,
) -> Subject:
    """Compile a module, choose samples, ask a witness what it makes of them where that is to be verified.

    jobs: compilers and boards at once, where kernels are measured; runner: of the device that measures them.
    Raises as `build` does.
    """
    say("compiling the model to C" if options.quantize == "none" else "quantizing the model, compiling it to C")
    compiler, tuning = compiler_of(mod, platform, options, calibration, services), None
    if options.tune:
        mod, compiled, tuning = compile_tuned(compiler, platform, options, jobs, say, runner)
    else:
        mod, compiled = compiler(UNMEASURED)
    samples, drawn = _samples(mod, compiled, verify_inputs)
    expected = _expect(mod, compiled, samples, say) if verifies else None
    return Subject(
        mod=mod, options=options, compiled=compiled, samples=samples, expected=expected,
        drawn=drawn if expected else None, tuning=tuning,
    )  # fmt: skip


def _samples(
    mod: tvm.IRModule, compiled: Compiled, given: VerifyInputs | None
) -> tuple[list[dict[str, np.ndarray]], DrawnSamples | None]:
    """The user's samples, or a few random ones in ranges that the model's operators can take, and those to be drawn.

    Inputs that are normalised as they come have an offset in the last of the random ones. Drawn ones follow; of a
    quantized model without states a few, as its steps are judged on all samples here, and the other drawn ones are
    compared with the kernels' references where these are exact.
    """
    interface, program = compiled.interface, compiled.program
    specs = {port.source: (port.shape, port.dtype) for port in interface.inputs}
    if given is not None:
        return read_verify_inputs(given, specs), None
    ranges = input_ranges(mod)
    drawn = draw_samples(interface, ranges, program)
    if not program.states:
        samples = [random_inputs(specs, seed, ranges) for seed in range(NUM_SAMPLES - 1)]
        samples.append(random_inputs(specs, NUM_SAMPLES - 1, ranges, offset_inputs(mod)))
        if drawn is None or not compiled.is_quantized:
            return [*samples, *(drawn.samples if drawn else ())], drawn
        judged_ones = min(NUM_JUDGED, len(drawn.samples) // DRAWN_PER_JUDGED)
        return [*samples, *drawn.samples[:judged_ones]], drawn if is_exact(program) else None
    count = interface.warm_up_runs + NUM_STEPS
    plain = count if drawn is None else interface.warm_up_runs + NUM_STEPS_STORED
    samples = [random_inputs(specs, seed, ranges) for seed in range(plain)]
    samples += drawn.samples[: count - plain] if drawn else ()
    samples += [random_inputs(specs, seed, ranges) for seed in range(len(samples), count)]
    return samples, drawn


def _expect(mod: tvm.IRModule, compiled: Compiled, samples: list[dict[str, np.ndarray]], say: Progress) -> Expected:
    """Results of the first witness that takes the model, those inside the model too where it is quantized."""
    say("asking what the model means")
    quantized_here = QuantizationMeasured.read(mod).report is not None
    asked, hops = windows_of(mod, compiled.interface, samples), compiled.interface.warm_up_runs > 0
    inner = (inner_of(mod) if hops else sources(compiled.program)) if compiled.is_quantized else []
    testimony = ask(mod, asked, inner, quantized_here=quantized_here)
    return Expected(asked=asked, testimony=testimony)


def host_outputs(model: HostModel, samples: Sequence[Sample]) -> list[dict[str, np.ndarray]]:
    """Answers of a model to samples in order, without those of runs before a window over time is full.

    Of a pipeline, which is given them in succession, and again in the opposite order, or, where it keeps states, one by
    one: a sample's answer is the same, whichever others are under way. Raises VerificationFailed.
    """
    if model.interface.is_pipeline:
        if model.interface.state_bytes:
            answers = model.run_successive(samples)
            model.reset()
            again = _one_by_one(model, samples)
        else:
            both = model.run_successive([*samples, *reversed(samples)])
            answers, again = both[: len(samples)], both[::-1][: len(samples)]
        for number, (one, other) in enumerate(zip(answers, again, strict=True)):
            if any(one[name].tobytes() != other[name].tobytes() for name in one):
                raise VerificationFailed(
                    f"{model.interface.model}: sample {number} gives other bytes when other samples are under way "
                    "beside it in the pipeline. Choose objective = 'makespan', and report it."
                )
        return answers
    return _one_by_one(model, samples)


def _one_by_one(model: HostModel, samples: Sequence[Sample]) -> list[dict[str, np.ndarray]]:
    return [outputs for sample in samples if (outputs := answer(model, sample)) is not None]


def answer(model: HostModel, sample: Sample) -> dict[str, np.ndarray] | None:
    """Outputs of a run; None while a window over time is not full."""
    try:
        return model.run(sample)
    except NotReady:
        return None


def _driver_problems(compiled: Compiled, board: QemuResult) -> list[str]:
    """Sentences on calls of drivers that the board counted, where they are not those of the program."""
    steps = compiled.program.steps
    waits = sum(isinstance(step, DriverWait) for step in steps)
    starts = sum(call.implementation.driver is not None for call in compiled.program.kernel_calls())
    if (board.driver_calls or (0, 0)) == (starts, waits):
        return []
    return [f"board: (starts, waits) of accelerators are {board.driver_calls}, planned were {(starts, waits)}"]


def steps_of(subject: Subject, expected: Expected) -> StepErrors | None:
    """Errors of the steps of a quantized model; None where it is judged by its outputs, or by whole windows."""
    compiled = subject.compiled
    if not compiled.is_quantized or compiled.interface.warm_up_runs:
        return None
    return check_steps(compiled, subject.samples, expected.testimony)


def judged(
    subject: Subject, expected: Expected, steps: StepErrors | None, host: list[dict[str, np.ndarray]],
    board: QemuResult | None,
) -> tuple[dict[str, Any], list[str]]:  # fmt: skip
    """Results per target, None for the board where it was not run, and sentences on what is wrong.

    steps: as `steps_of` has them; host: outputs there; board: what it gave and counted.
    """
    compiled, said = subject.compiled, expected.testimony
    quantized, results = compiled.is_quantized, dict[str, Any](host=None, qemu=None)
    # A quantized model is judged by its steps, and by them what it gives end to end.
    limit = np.inf if quantized else tolerance_of(compiled.program)
    judged_host = compare(host, said.outputs, tolerance=limit, judge_integers=not quantized)
    problems = (
        [] if judged_host.passed else [f"host: outputs differ from {said.witness} by {judged_host.max_abs_error:g}"]
    )
    results["host"] = {**judged_host.to_json(), **said.to_json()}
    if quantized and compiled.interface.warm_up_runs:
        errors, results["host"]["tensors_compared"] = against_windows(subject.mod, host, expected.asked, said)
        problems += errors
    elif steps:
        problems += [*steps.against_reference, *against_steps(host, steps), *steps.against_witness]
        results["host"]["tensors_compared"] = steps.tensors_compared
    if board:
        answers = board.outputs[compiled.interface.warm_up_runs :]
        same = compare(answers, host[: len(answers)], tolerance=tolerance_of(compiled.program, BOARD_TOLERANCE))
        against = compare(answers, said.outputs[: len(answers)], tolerance=limit, judge_integers=not quantized)
        problems += [] if same.passed else [f"board: outputs differ from the host's by {same.max_abs_error:g}"]
        problems += (
            [] if against.passed else [f"board: outputs differ from {said.witness} by {against.max_abs_error:g}"]
        )
        problems += _driver_problems(compiled, board)
        planned = moved_bytes(compiled.program)
        problems += [] if board.moved_bytes == planned else [f"board: moved {board.moved_bytes}, planned was {planned}"]
        counted = None if drivers_of(compiled.program) else board.instructions  # a stand-in's are no measurement
        results["qemu"] = {**against.to_json(), **said.to_json(), "instructions": counted}
        results["qemu"]["moved"] = moved_table(board.moved_bytes)
    return results, problems


def judged_device(
    subject: Subject, expected: Expected, host: list[dict[str, np.ndarray]], device: RunnerResult, runner: Runner
) -> tuple[dict[str, Any], list[str]]:
    """Results of a device, for the report, and sentences on what is wrong: against the host, and against the witness.

    Nothing there counts instructions or moved bytes. The report names the runner's program, not the user's paths.
    """
    compiled, said = subject.compiled, expected.testimony
    answers = list(device.outputs[compiled.interface.warm_up_runs :])
    same = compare(answers, host[: len(answers)], tolerance=tolerance_of(compiled.program, BOARD_TOLERANCE))
    limit = np.inf if compiled.is_quantized else tolerance_of(compiled.program)
    against = compare(answers, said.outputs[: len(answers)], tolerance=limit, judge_integers=not compiled.is_quantized)
    problems = [] if same.passed else [f"runner: outputs differ from the host's by {same.max_abs_error:g}"]
    problems += [] if against.passed else [f"runner: outputs differ from {said.witness} by {against.max_abs_error:g}"]
    table = {**against.to_json(), **said.to_json(), "program": runner.program, "instructions": None}
    return {**table, "cycles": device.cycles, "stack_bytes": device.stack_bytes}, problems
