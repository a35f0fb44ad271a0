"""A model on its way to a package: compiled, its samples, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import PathLike

import numpy as np
import tvm

from codegen_c.backend.build import Compiled
from codegen_c.kernels.figures import UNMEASURED
from tvm_ext.compilation.model_forms import calibration_of
from tvm_ext.compilation.pipeline import compiler_of
from tvm_ext.core.decisions.models import ModelOrigin, QuantizationMeasured
from tvm_ext.core.errors import NotReady, VerificationFailed
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.progress import Progress, stage
from tvm_ext.execution.host_model import HostModel
from tvm_ext.execution.runner import Runner
from tvm_ext.frontends.calibration import Source
from tvm_ext.frontends.load import load
from tvm_ext.services.job import OpenServices
from tvm_ext.tuning.record import Tuning
from tvm_ext.tuning.tune import compile_tuned
from tvm_ext.verification.account import sources
from tvm_ext.verification.drawn_samples import DRAWN_PER_JUDGED, NUM_JUDGED, DrawnSamples, draw_samples, is_exact
from tvm_ext.verification.input_ranges import Range, input_ranges, random_inputs
from tvm_ext.verification.judge_floats import Evaluation
from tvm_ext.verification.reading import CheckedReading, FormComparison, beside_float, check_reading, samples_to_read
from tvm_ext.verification.reference_runtimes.ask import QUANTIZED_HERE, ask, evaluate
from tvm_ext.verification.reference_runtimes.reference_result import ReferenceResult
from tvm_ext.verification.verify_inputs import VerifyInputs, read_verify_inputs
from tvm_ext.verification.windows import inner_of, windows_of

Sample = Mapping[str, np.ndarray]
Samples = list[dict[str, np.ndarray]]
RUNNER = "runner"
"""Target of a device that a command of the user's runs firmware on."""
NUM_SAMPLES = 3
LARGE_MEAN = 1000.0
"""Mean of float inputs in the sample that is hard."""
NUM_STEPS = 100
"""Consecutive samples of a model with states."""
NUM_STEPS_STORED = 4
NUM_EVALUATED = 5
"""Samples of a float model, the first ones, that are evaluated in float64, which takes several times a run."""
NUM_STEPS_EVALUATED = 20
"""The same of a model with states."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Expected:
    """Samples as a model takes them, and what a reference runtime makes of them.

    asked: of a stream of hops, the window that ends with each sample, once it is full; else the samples.
    evaluation: of a float model in float64, of its first samples; None where there is none, and `no_evaluation` says
    why. stressed: by sample, True where it was drawn to be hard.
    """

    asked: list[dict[str, np.ndarray]]
    reference_result: ReferenceResult
    evaluation: Evaluation | None = None
    no_evaluation: str = ""
    stressed: tuple[bool, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """Samples of a model, in the order in which they are run.

    plain: stored by the self-test, and run on boards; stressed: drawn to be hard; asked: of `drawn`, those that the
    reference runtime is asked about; later: more of a model with states. drawn: what the self-test draws on the device,
    None where it cannot.
    """

    plain: Samples
    stressed: Samples = field(default_factory=list[dict[str, np.ndarray]])
    asked: Samples = field(default_factory=list[dict[str, np.ndarray]])
    later: Samples = field(default_factory=list[dict[str, np.ndarray]])
    drawn: DrawnSamples | None = None

    @property
    def samples(self) -> Samples:
        return [*self.plain, *self.stressed, *self.asked, *self.later]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A compiled model and its samples.

    mod: whose answers it gives. expected: None where nothing is verified. tuning: None where no kernel was measured.
    forms: comparisons of the forms that it was derived from, the file's own first; none where it is the file's own.
    """

    mod: tvm.IRModule
    options: BuildOptions
    compiled: Compiled
    chosen: Chosen
    expected: Expected | None
    tuning: Tuning | None = None
    forms: tuple[FormComparison, ...] = ()

    @property
    def model(self) -> str:
        return self.compiled.interface.model

    @property
    def samples(self) -> Samples:
        """What a reference runtime is asked about."""
        return self.chosen.samples

    @property
    def drawn(self) -> DrawnSamples | None:
        """What the self-test draws on the device; None where nothing is verified, or it cannot."""
        return self.chosen.drawn if self.expected else None

    @property
    def board_samples(self) -> Samples:
        """Samples that a board runs: of a model without states a few, as boards are slow."""
        return self.samples if self.compiled.program.states or self.drawn is None else self.chosen.plain


def make_subject(
    mod: tvm.IRModule,
    platform: Platform,
    options: BuildOptions,
    *,
    calibration: Source | None,
    verify_inputs: VerifyInputs | None,
    verifies: bool,
    progress: Progress | None,
    services: OpenServices | None = None,
    jobs: int | None = None,
    runner: Runner | None = None,
) -> Subject:
    """Compile a module, choose samples, ask a reference runtime what it makes of them where that is to be verified.

    jobs: compilers and boards at once, where kernels are measured; runner: of the device that measures them.
    Raises as `build` does.
    """
    reading = None
    if options.quantize != "none" and verifies:
        if calibration is not None and not isinstance(calibration, str | PathLike | Mapping):
            calibration = list(calibration)  # it is read twice
        loaded = load(mod)
        data = calibration_of(loaded, platform, options, calibration)
        assert data is not None, "the options ask for it"
        with stage(progress, "comparing the float model with its own runtime"):
            reading = check_reading(loaded, samples_to_read(data), options.name or ModelOrigin.read(loaded).name)
    compiling = "compiling the model to C" if options.quantize == "none" else "quantizing the model, compiling it to C"
    compiler, tuning = compiler_of(mod, platform, options, calibration, services), None
    with stage(progress, compiling):
        mod, compiled = compiler(UNMEASURED)
    if options.tune:
        mod, compiled, tuning = compile_tuned(compiler, (mod, compiled), platform, options, jobs, progress, runner)
    chosen, expected = _samples(mod, compiled, verify_inputs), None
    if verifies:
        with stage(progress, "asking what the model means"):
            chosen, expected = _expect(mod, compiled, chosen, reading)
    return Subject(
        mod=mod, options=options, compiled=compiled, chosen=chosen, expected=expected, tuning=tuning,
        forms=_forms(mod, compiled, options, expected, reading),
    )  # fmt: skip


def _forms(
    mod: tvm.IRModule,
    compiled: Compiled,
    options: BuildOptions,
    expected: Expected | None,
    reading: CheckedReading | None,
) -> tuple[FormComparison, ...]:
    """Comparisons that lead from the C back to the file, where the model was quantized or its windows streamed."""
    if expected is None:
        return ()
    said, found, is_quantized_here = expected.reference_result, list[FormComparison](), is_quantized(mod)
    if reading is not None and is_quantized_here:
        bits = "16" if options.activations == "int16" else "8"
        weights = "4 or 8" if options.weights != "int8" or options.flash else "8"
        form = f"the quantized model, activations of {bits} bits, weights of {weights}"
        found += [reading.comparison, beside_float(mod, compiled.interface, reading, form)]
    if found or options.new_frames:
        windows = "".join(f", {hop} new rows of {name} a run" for name, hop in (options.new_frames or {}).items())
        what = "the quantized model" if found else "the model"
        against = f"whole windows of {what} in {said.runtime}" if windows else f"{what} in {said.runtime}"
        found.append(FormComparison(form=f"the C code{windows}", against=against, samples=len(expected.asked)))
    return tuple(found)


def is_quantized(mod: tvm.IRModule) -> bool:
    """True for a module that was quantized here."""
    return QuantizationMeasured.read(mod).report is not None


def _samples(mod: tvm.IRModule, compiled: Compiled, given: VerifyInputs | None) -> Chosen:
    """The user's samples, or a few random ones in ranges that the model's operators can take, and those to be drawn.

    Of a quantized model without states the reference runtime is asked about a few drawn ones, as its steps are judged
    on all of these; the other drawn ones are compared with the kernels' references where these are exact.
    """
    interface, program = compiled.interface, compiled.program
    specs = {port.source: (port.shape, port.dtype) for port in interface.inputs}
    if given is not None:
        return Chosen(plain=read_verify_inputs(given, specs))
    ranges = input_ranges(mod)
    drawn = draw_samples(interface, ranges, program)
    if program.states:
        count = interface.warm_up_runs + NUM_STEPS
        num_plain = count if drawn is None else interface.warm_up_runs + NUM_STEPS_STORED
        plain = [random_inputs(specs, seed, ranges) for seed in range(num_plain)]
        asked = list(drawn.samples[: count - num_plain]) if drawn else []
        later = [random_inputs(specs, seed, ranges) for seed in range(num_plain + len(asked), count)]
        return Chosen(plain=plain, asked=asked, later=later, drawn=drawn)
    plain = [random_inputs(specs, seed, ranges) for seed in range(NUM_SAMPLES)]
    if not compiled.is_quantized:
        stressed = _stressed(specs, ranges)
        return Chosen(plain=plain, stressed=stressed, asked=list(drawn.samples) if drawn else [], drawn=drawn)
    judged = list(drawn.samples[: min(NUM_JUDGED, len(drawn.samples) // DRAWN_PER_JUDGED)]) if drawn else []
    return Chosen(plain=plain, asked=judged, drawn=drawn if is_exact(program) else None)


def _stressed(specs: Mapping[str, tuple[tuple[int, ...], str]], ranges: Mapping[str, Range]) -> Samples:
    """One sample with a large mean, which statistics in one pass lose; none where no input is free to have it."""
    free = [name for name, (_, dtype) in specs.items() if dtype == "float32" and name not in ranges]
    values = random_inputs(specs, NUM_SAMPLES, ranges)
    return [{**values, **{name: values[name] + np.float32(LARGE_MEAN) for name in free}}] if free else []


def _expect(
    mod: tvm.IRModule, compiled: Compiled, chosen: Chosen, reading: CheckedReading | None
) -> tuple[Chosen, Expected]:
    """Results of the first reference runtime that takes the model, inner ones too, and its evaluation in float64.

    Stressed samples are left out, and the choice is returned without them, where the model's own runtime fails on them.
    """
    quantized_here = is_quantized(mod)
    hops = compiled.interface.warm_up_runs > 0
    inner = inner_of(mod) if hops and compiled.is_quantized else [] if hops else sources(compiled.program)
    asked = windows_of(mod, compiled.interface, chosen.samples)
    reference_result = None
    if chosen.stressed:
        with suppress(VerificationFailed):
            reference_result = ask(mod, asked, inner, quantized_here=quantized_here)
        if reference_result is None or reference_result.refusals:
            chosen, reference_result = replace(chosen, stressed=[]), None
            asked = windows_of(mod, compiled.interface, chosen.samples)
    if reference_result is None:
        reference_result = ask(mod, asked, inner, quantized_here=quantized_here)
    if quantized_here and reading is not None and reference_result.own_reading == QUANTIZED_HERE:
        why = reading.comparison.own_reading
        reference_result = replace(
            reference_result, own_reading=f"{QUANTIZED_HERE}, and of the float model {why}" if why else ""
        )
    num_evaluated = NUM_STEPS_EVALUATED if compiled.program.states else NUM_EVALUATED
    evaluation = None if compiled.is_quantized else evaluate(mod, asked[:num_evaluated], inner)
    stressed = range(len(chosen.plain), len(chosen.plain) + len(chosen.stressed))
    return chosen, Expected(
        asked=asked, reference_result=reference_result,
        evaluation=evaluation if isinstance(evaluation, Evaluation) else None,
        no_evaluation=evaluation if isinstance(evaluation, str) else "",
        stressed=tuple(index in stressed for index in range(len(asked))),
    )  # fmt: skip


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
                    "beside it in the pipeline. Choose placement_objective = 'makespan', and report it."
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
