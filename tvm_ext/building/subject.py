"""Subject of a build: the compiled model, its samples, and the reference runtime's results for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import PathLike

import numpy as np
import tvm

from codegen_c.backend.build import Compiled
from codegen_c.kernels.measurements import UNMEASURED
from tvm_ext.compilation.model_forms import calibration_of
from tvm_ext.compilation.pipeline import compiler_of
from tvm_ext.compilation.stages import ahead_of_quantizing, streaming
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
from tvm_ext.verification.reading import (
    CheckedReading,
    FormComparison,
    beside_float,
    check_reading,
    check_rewritten,
    samples_to_read,
)
from tvm_ext.verification.reference_runtimes.ask import QUANTIZED_HERE, ask, evaluate
from tvm_ext.verification.reference_runtimes.reference_result import ReferenceResult
from tvm_ext.verification.verify_inputs import VerifyInputs, read_verify_inputs
from tvm_ext.verification.windows import inner_of, windows_of, with_ongoing_runs

Sample = Mapping[str, np.ndarray]
Samples = list[dict[str, np.ndarray]]
RUNNER = "runner"
"""Name of the target that is a device, on which a command of the user runs firmware."""
NUM_SAMPLES = 3
"""Random samples of a model without states."""
LARGE_MEAN = 1000.0
"""Mean of float inputs in the hard sample."""
NUM_STEPS = 100
"""Consecutive samples of a model with states, after its warm-up."""
NUM_STEPS_STORED = 4
"""Consecutive samples, after the warm-up, that the self-test of a model with states stores."""
NUM_EVALUATED = 5
"""Number of first samples of a float model that are evaluated in float64, which takes several times as long."""
NUM_STEPS_EVALUATED = 20
"""Number of first samples of a float model with states that are evaluated in float64."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Expected:
    """Results of a reference runtime for the samples of a model.

    asked: inputs of the reference runtime. They are the samples; for a stream of new frames they are the windows that
    end with each sample, from the first full window on; for a stream whose recurrent layers go on, the first window.
    evaluation: results of a float model in float64 for its first samples; None if there are none.
    no_evaluation: the reason why there is no evaluation.
    stressed: for each sample, True if it was drawn to be hard.
    """

    asked: list[dict[str, np.ndarray]]
    reference_result: ReferenceResult
    evaluation: Evaluation | None = None
    no_evaluation: str = ""
    stressed: tuple[bool, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """Samples of a model, in the order in which they are run.

    plain: samples that the self-test stores and boards run.
    stressed: samples that were drawn to be hard.
    asked: the samples of `drawn` that the reference runtime computes, too.
    later: further samples of a model with states.
    drawn: samples that the self-test draws on the device; None if it cannot draw the model's inputs.
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

    mod: the module that the C computes.
    expected: results of a reference runtime; None if nothing is verified.
    tuning: measurements of kernels; None if no kernel was measured.
    forms: comparisons that lead from the form in the file to the C code; empty if the C computes the file's own form.
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
        """The samples that the reference runtime and the C code compute."""
        return self.chosen.samples

    @property
    def drawn(self) -> DrawnSamples | None:
        """The samples that the self-test draws on the device; None if nothing is verified or it cannot draw inputs."""
        return self.chosen.drawn if self.expected else None

    @property
    def board_samples(self) -> Samples:
        """The samples that a board runs: for a model without states only the plain samples, because boards are slow."""
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
    ahead: Callable[[Compiled], None] | None = None,
) -> Subject:
    """Compile a module, choose samples, and run a reference runtime on them if the package is to be verified.

    jobs: number of compilers and boards at the same time while kernels are measured.
    runner: runs firmware on the device that measures kernels.
    ahead: called with the compiled model before the reference runtime runs.
    Raises as `build` does.
    """
    reading = None
    if options.quantize != "none" and verifies:
        if calibration is not None and not isinstance(calibration, str | PathLike | Mapping):
            calibration = list(calibration)  # an iterator could be read only once, but it is read here and to quantize
        loaded = load(mod, rounding=options.rounding)
        data = calibration_of(loaded, platform, options, calibration)
        assert data is not None, "the options ask for it"
        with stage(progress, "comparing the float model with its own runtime"):
            name = options.name or ModelOrigin.read(loaded).name
            reading = check_reading(loaded, samples_to_read(data), name)
            check_rewritten(tvm.transform.Sequential(ahead_of_quantizing())(loaded), reading, name)
    compiling = "compiling the model to C" if options.quantize == "none" else "quantizing the model, compiling it to C"
    compiler, tuning = compiler_of(mod, platform, options, calibration, services), None
    with stage(progress, compiling):
        mod, compiled = compiler(UNMEASURED)
    if options.tune:
        mod, compiled, tuning = compile_tuned(compiler, (mod, compiled), platform, options, jobs, progress, runner)
    if ahead is not None:
        ahead(compiled)
    chosen, expected = _samples(mod, compiled, verify_inputs), None
    if verifies:
        with stage(progress, "running the reference runtime"):
            stream = _as_stream(mod, options) if compiled.goes_on else None
            chosen, expected = _expect(mod, compiled, chosen, reading, stream)
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
    """Return the comparisons between the file's form of a model and the C code, if they are different forms.

    A model has another form in C if it was quantized here or if its window became a stream of new frames.
    """
    if expected is None:
        return ()
    result, comparisons, is_quantized_here = expected.reference_result, list[FormComparison](), is_quantized(mod)
    if reading is not None and is_quantized_here:
        bits = "16" if options.activations == "int16" else "8"
        weights = "4 or 8" if options.weights != "int8" or options.flash else "8"
        form = f"the quantized model, activations of {bits} bits, weights of {weights}"
        comparisons += [reading.comparison, beside_float(mod, compiled.interface, reading, form)]
    if comparisons or options.new_frames:
        windows = "".join(f", {hop} new rows of {name} per run" for name, hop in (options.new_frames or {}).items())
        model = "the quantized model" if comparisons else "the model"
        against = f"whole windows of {model} in {result.runtime}" if windows else f"{model} in {result.runtime}"
        comparisons.append(FormComparison(form=f"the C code{windows}", against=against, samples=len(expected.asked)))
    return tuple(comparisons)


def is_quantized(mod: tvm.IRModule) -> bool:
    """Return True if a module was quantized in this compilation."""
    return QuantizationMeasured.read(mod).report is not None


def _samples(mod: tvm.IRModule, compiled: Compiled, given: VerifyInputs | None) -> Chosen:
    """Choose the samples of a model: the user's, or random samples in ranges that the model's operators accept.

    The reference runtime computes only a few drawn samples of a quantized model without states, because every step is
    judged on each of them. The other drawn samples are compared with the kernels' references, if those are exact.
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
    """Return one sample with a large mean, or none if no float input may have a large mean.

    A variance computed in one pass, as the mean of squares less the square of the mean, loses its digits on it.
    """
    free = [name for name, (_, dtype) in specs.items() if dtype == "float32" and name not in ranges]
    values = random_inputs(specs, NUM_SAMPLES, ranges)
    return [{**values, **{name: values[name] + np.float32(LARGE_MEAN) for name in free}}] if free else []


def _as_stream(mod: tvm.IRModule, options: BuildOptions) -> tvm.IRModule:
    """Return a model over a window of time as a stream of new frames."""
    ((name, hop),) = (options.new_frames or {}).items()
    return tvm.transform.Sequential(streaming(name, hop, (options.time_axis or {}).get(name)))(mod)


def _expect(
    mod: tvm.IRModule,
    compiled: Compiled,
    chosen: Chosen,
    reading: CheckedReading | None,
    stream: tvm.IRModule | None,
) -> tuple[Chosen, Expected]:
    """Return the results of the first reference runtime that takes the model, and its evaluation in float64.

    stream: the model as a stream whose recurrent layers go on; None for other models.

    The results include inner tensors. If the model's own runtime fails on stressed samples, these are removed from the
    results and from the returned samples.
    """
    quantized_here = is_quantized(mod)
    hops = compiled.is_stream
    inner = inner_of(mod) if hops and compiled.is_quantized else [] if hops else sources(compiled.program)
    asked = windows_of(mod, compiled.interface, chosen.samples)
    asked = asked[:1] if compiled.goes_on else asked
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
    if stream is not None:
        reference_result = with_ongoing_runs(reference_result, stream, chosen.samples)
    num_evaluated = NUM_STEPS_EVALUATED if compiled.program.states else NUM_EVALUATED
    evaluation = None if compiled.is_quantized else evaluate(mod, asked[:num_evaluated], inner)
    stressed = range(len(chosen.plain), len(chosen.plain) + len(chosen.stressed))
    return chosen, Expected(
        asked=asked, reference_result=reference_result,
        evaluation=evaluation if isinstance(evaluation, Evaluation) else None,
        no_evaluation=evaluation if isinstance(evaluation, str) else "",
        stressed=tuple(index in stressed for index in range(len(reference_result.outputs))),
    )  # fmt: skip


def host_outputs(model: HostModel, samples: Sequence[Sample]) -> list[dict[str, np.ndarray]]:
    """Return the outputs of a model for samples in order, from the run on in which a window over time is full.

    A pipeline runs the samples twice: in succession, and then in the opposite order, or one at a time if it keeps
    states. Raises VerificationFailed if a sample's outputs depend on the other samples in flight.
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
                    f"{model.interface.model}: the outputs of sample {number} depend on the other samples in the "
                    "pipeline. This is a defect of tvm_ext: please report it, and choose placement_objective = "
                    "'makespan'."
                )
        return answers
    return _one_by_one(model, samples)


def _one_by_one(model: HostModel, samples: Sequence[Sample]) -> list[dict[str, np.ndarray]]:
    return [outputs for sample in samples if (outputs := answer(model, sample)) is not None]


def answer(model: HostModel, sample: Sample) -> dict[str, np.ndarray] | None:
    """Return the outputs of one run; None as long as the window over time is not full."""
    try:
        return model.run(sample)
    except NotReady:
        return None
