"""Judge the outputs of a package: on the host, on the board and on a device, and step by step inside the model.

Two rules hold for each step of a quantized model:
(a) The C code's result has the same bytes as that of the kernel's reference for the same operands, and the package's
    outputs are the results of its last steps.
(b) The kernel's reference, applied to operands that the reference runtime computed, gives the runtime's result
    (`tvm_ext.verification.account`).
By (a) the C code computes the same as the kernels' references in a chain, and by (b) every link of the chain computes
the same as the reference runtime. Outputs at the end of the chain can therefore differ only by what the tolerances of
its links add up to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import moved_bytes
from codegen_c.program import reference
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import drivers_of
from codegen_c.program.steps import DriverWait, KernelCall, Step, calls, reads, writes
from codegen_c.program.tensors import Tensor
from tvm_ext.building.subject import Expected, Subject
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.execution.instrumented import InstrumentedModel
from tvm_ext.execution.runner import Runner
from tvm_ext.execution.samples import RunResult
from tvm_ext.report.report import moved_table
from tvm_ext.verification.account import account_for, laid_out, source_of
from tvm_ext.verification.branches import unverified_runs
from tvm_ext.verification.judge_floats import (
    Evaluation,
    KnownTensor,
    Verdict,
    gaps,
    judged,
    judged_unevaluated,
    known_outputs,
    tolerances,
    weak_outputs,
)
from tvm_ext.verification.reference_runtimes.ask import LITERT_DEFAULT, ask_modes, evaluate
from tvm_ext.verification.reference_runtimes.reference_result import ReferenceResult
from tvm_ext.verification.verify import (
    BOARD_TOLERANCE,
    Array,
    Sample,
    compare,
    difference,
    is_float,
    largest,
    tolerance_of,
)
from tvm_ext.verification.windows import against_kernels, against_windows


@dataclass(frozen=True, kw_only=True)
class StepErrors:
    """Sentences about wrong steps and outputs of a quantized model.

    against_reference: differences from the kernels' references. against_runtime: differences from the reference
    runtime.
    outputs: for each sample, the results of the last steps by the model's names of outputs.
    tensors_compared: number of tensors of the program that the reference runtime has, too.
    """

    against_reference: tuple[str, ...]
    against_runtime: tuple[str, ...]
    outputs: tuple[Sample, ...]
    tensors_compared: int

    @property
    def passed(self) -> bool:
        return not self.against_reference and not self.against_runtime


def check_steps(
    compiled: Compiled, samples: Sequence[Sample], reference_result: ReferenceResult | None = None
) -> StepErrors:
    """Check rules (a) and (b) for every step of a quantized model; without `reference_result` only (a)."""
    with InstrumentedModel(compiled) as model:
        kernels, outputs = list[str](), list[Sample]()
        states = reference.first_states(compiled.program)
        for sample in samples:
            found, made, states = _steps_against_reference(model, sample, states)
            kernels += found
            outputs.append(made)
        account = account_for(model.compiled, samples, reference_result) if reference_result else None
    return StepErrors(
        against_reference=tuple(dict.fromkeys(kernels)),
        against_runtime=account.errors if account else (),
        outputs=tuple(outputs),
        tensors_compared=account.tensors_compared if account else 0,
    )


def _steps_against_reference(
    model: InstrumentedModel, sample: Sample, states: Mapping[str, Array]
) -> tuple[list[str], Sample, dict[str, Array]]:
    """Check rule (a) in a run of the C code for one sample; return sentences, the outputs and the next states.

    New rows in a ring buffer are not compared themselves, but the results of the steps that read them are.
    """
    program, interface = model.compiled.program, model.compiled.interface
    values = {port.name: sample[port.source] for port in interface.inputs}
    values |= {**states, **model.trace(sample)}
    errors = []
    for step in program.steps:
        for name, wanted in reference.run_step(program, step, values).items():
            if name in program.kept or program.has_moving_offset(name):
                values[name] = wanted
            if name not in values or values[name] is wanted:  # a ring buffer still has its last rows only
                continue
            absolute, relative = difference(values[name], wanted)
            terms = max((values[read].size for read in reads(step) if read in values), default=1) / max(wanted.size, 1)
            limit = 0.0 if _is_exact(step) else 1.0 if wanted.dtype.kind in "iu" else float_limit(terms)
            if (relative if wanted.dtype.kind == "f" else absolute) > limit:
                errors.append(f"{step.name}: {name} differs from its kernel's reference by {absolute:g}")
    outputs = {port.source: values[port.name].reshape(port.shape) for port in interface.outputs}
    return errors, outputs, reference.next_states(program, values)


def float_limit(terms: float) -> float:
    """Return the allowed difference of a float step from its kernel's reference, relative to its largest result.

    terms: elements that it reads for each result. C adds them one after the other, numpy in pairs, so a mean over an
    image of 192 x 192 differs by more than the tolerance of other steps.
    """
    return max(BOARD_TOLERANCE, 8 * float(np.finfo(np.float32).epsneg) * math.sqrt(terms))


def against_steps(given: Sequence[Sample], steps: StepErrors) -> list[str]:
    """Return a sentence for each output of the package that differs from the result of its last step."""
    return [
        f"output {name}: differs by {difference(outputs[name], wanted)[0]:g} from the result of its last step"
        for outputs, made in zip(given, steps.outputs, strict=True)
        for name, wanted in made.items()
        if max(difference(outputs[name], wanted)) > 0
    ]


def _is_exact(step: Step) -> bool:
    return all(call.implementation.exact for call in calls(step) if isinstance(call, KernelCall))


NUM_JUDGED_STEPS = 5
"""Number of first samples of a float model whose inner tensors are judged."""


@dataclass(frozen=True, kw_only=True)
class FloatSteps:
    """Result of the comparison of a float model's inner tensors.

    errors: a sentence for each wrong tensor. causes: the cause of each error. tensors_compared: number of tensors.
    """

    errors: tuple[str, ...]
    causes: tuple[str, ...]
    tensors_compared: int


def check_float_steps(
    compiled: Compiled,
    samples: Sequence[Sample],
    reported: ReferenceResult,
    evaluation: Evaluation,
    stressed: Sequence[bool],
) -> FloatSteps:
    """Compare every inner float tensor of the program that the float64 evaluation has, sample by sample."""
    worst: dict[str, tuple[Verdict, str]] = {}
    if not _has_known_tensors_inside(compiled, evaluation):
        return FloatSteps(errors=(), causes=(), tensors_compared=0)
    with InstrumentedModel(compiled) as model:
        program = model.compiled.program
        outputs = {port.name for port in model.compiled.interface.outputs}
        for index, sample in enumerate(samples[:NUM_JUDGED_STEPS]):
            for name, array in model.trace(sample).items():
                tensor = program.tensors.get(name)
                if tensor is None or name in outputs or not is_float(array):
                    continue
                known = _known(tensor, index, reported, evaluation, is_stressed=stressed[index])
                if known is None:
                    continue
                verdict = judged(array, known)
                if name not in worst or verdict.of_tolerance > worst[name][0].of_tolerance:
                    who = reported.runtime if known.reported is not None else "a float64 evaluation"
                    what = f"inner tensor {source_of(tensor)}, sample {index},"
                    worst[name] = verdict, verdict.sentence(what, who)
    failed = [(text, verdict.cause) for verdict, text in worst.values() if not verdict.passed]
    return FloatSteps(
        errors=tuple(text for text, _ in failed), causes=tuple(cause for _, cause in failed),
        tensors_compared=len(worst),
    )  # fmt: skip


def _has_known_tensors_inside(compiled: Compiled, evaluation: Evaluation) -> bool:
    """Return True if a step writes an inner tensor that the float64 evaluation has."""
    tensors, outputs = compiled.program.tensors, {port.source for port in compiled.interface.outputs}
    written = {source_of(tensors[name]) for step in compiled.program.steps for name in writes(step)}
    return any(name not in outputs for name in written & evaluation.inner[0].keys())


def _known(
    tensor: Tensor, index: int, reported: ReferenceResult, evaluation: Evaluation, *, is_stressed: bool
) -> KnownTensor | None:
    """Return the known values of a tensor in the program's layout; None if the float64 evaluation does not have it."""
    source = source_of(tensor)
    exact = laid_out(_of(evaluation.outputs, evaluation.inner, index, source), tensor)
    noise = laid_out(_of(evaluation.noise_outputs, evaluation.noise_inner, index, source), tensor)
    others = laid_out(_of(evaluation.others_noise_outputs, evaluation.others_noise_inner, index, source), tensor)
    if exact is None or noise is None or others is None:
        return None
    found = laid_out(_of(reported.outputs, reported.inner, index, source), tensor)
    if found is not None and str(found.dtype) != tensor.dtype:
        found = None
    return KnownTensor(
        reported=found, exact=exact, limits=tolerances(exact, noise, tensor.dtype),
        reported_limits=tolerances(exact, others, tensor.dtype),
        scale=largest(found) if found is not None else 0.0, is_stressed=is_stressed,
    )  # fmt: skip


def _of(
    outputs: Sequence[Mapping[str, Array]], inner: Sequence[Mapping[str, Array]], index: int, name: str
) -> np.ndarray | None:
    return inner[index].get(name, outputs[index].get(name))


Outputs = Sequence[Sample]
Steps = StepErrors | FloatSteps


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A sentence about a wrong result.

    cause: `c` if the C code is wrong; `reading` if tvm_ext reads the file differently from the runtime; `run` for a
    defect that does not depend on the samples, such as different results on host and board.
    """

    text: str
    cause: str = "c"


def steps_of(subject: Subject, expected: Expected) -> Steps | None:
    """Check the steps of a model; None if the model is judged by its outputs or by whole windows instead."""
    compiled = subject.compiled
    if compiled.is_stream:
        return None
    if compiled.is_quantized:
        return check_steps(compiled, subject.samples, expected.reference_result)
    if expected.evaluation is None:
        return None
    return check_float_steps(
        compiled, subject.samples, expected.reference_result, expected.evaluation, stressed=expected.stressed
    )


def judged_runs(
    subject: Subject, expected: Expected, steps: Steps | None, host: Outputs, board: RunResult | None
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the results by target, None for a board without a run, and the problems.

    steps: the result of `steps_of`. host: outputs on the host. board: outputs and counters of the board.
    """
    compiled = subject.compiled
    results = dict[str, Any](host=None, qemu=None)
    results["host"], problems = _against_reference(subject, expected, host, "host")
    weak = results["host"].get("float64", {}).get("weak", {})
    ordinary = [sample for sample, is_hard in zip(host, expected.stressed, strict=True) if not is_hard]
    results["host"]["warnings"] = [
        *([_without_evaluation(expected.no_evaluation)] if expected.no_evaluation else []),
        *unverified_runs(compiled, subject.samples),
        *empty_outputs(ordinary, compiled.interface),
        *map(_weakness, weak.items()),
    ]
    if compiled.is_quantized and compiled.is_stream:
        reported, windows = expected.reference_result, expected.asked
        first = host[: len(windows)]
        errors, results["host"]["tensors_compared"] = against_windows(subject.mod, first, windows, reported)
        if compiled.goes_on:
            errors += against_kernels(compiled, host, subject.samples)
        problems += [Problem(text=error) for error in errors]
    elif isinstance(steps, FloatSteps):
        results["host"]["tensors_compared"] = steps.tensors_compared
        problems += [Problem(text=a, cause=b) for a, b in zip(steps.errors, steps.causes, strict=True)]
    elif steps:
        errors = [*steps.against_reference, *against_steps(host, steps), *steps.against_runtime]
        problems += [Problem(text=error) for error in errors]
        results["host"]["tensors_compared"] = steps.tensors_compared
    if board:
        answers = board.outputs[compiled.interface.warm_up_runs :]
        problems += _against_host(compiled, expected, answers, host, "board")
        results["qemu"], wrong = _against_reference(subject, expected, answers, "board")
        problems += [*wrong, *_driver_problems(compiled, board)]
        planned = moved_bytes(compiled.program)
        if board.moved_bytes is not None and board.moved_bytes != planned:
            text = f"board: moved {board.moved_bytes} bytes between memories, but {planned} were planned"
            problems.append(Problem(text=text, cause="run"))
        # C code replaces an accelerator in QEMU, so that the instructions counted are not those of the device.
        counted = None if drivers_of(compiled.program) else board.instructions
        moved = None if board.moved_bytes is None else moved_table(board.moved_bytes)
        results["qemu"] |= {"instructions": counted, "moved": moved}
    return results, problems


def judged_device(
    subject: Subject, expected: Expected, host: Outputs, device: RunResult, runner: Runner
) -> tuple[dict[str, Any], list[Problem]]:
    """Compare a device's outputs with the host's and the reference runtime's; return the report's entry and problems.

    A device counts no instructions and no bytes moved. The report names the runner's program without the user's paths.
    """
    compiled = subject.compiled
    answers = list(device.outputs[compiled.interface.warm_up_runs :])
    problems = _against_host(compiled, expected, answers, host, "runner")
    table, wrong = _against_reference(subject, expected, answers, "runner")
    run = {"program": runner.program, "instructions": None}
    return {**table, **run, "cycles": device.cycles, "stack_bytes": device.stack_bytes}, [*problems, *wrong]


def _without_evaluation(reason: str) -> str:
    return (
        "outputs are compared with a fixed tolerance, and no tensor inside the model is compared, because the float64 "
        f"evaluation of the model {reason}"
    )


def _weakness(output: tuple[str, float]) -> str:
    name, share = output
    part = "as much as" if share == 1 else f"{share:.0%} of"
    return (
        f"output {name} is hardly verified: in every sample rounding may change it by {part} its largest value. "
        "Give samples that are typical for the model (--verify-inputs)"
    )


def _against_reference(
    subject: Subject, expected: Expected, outputs: Outputs, where: str
) -> tuple[dict[str, Any], list[Problem]]:
    """Compare outputs with the reference runtime's; return the report's entry and the problems.

    Values of a quantized model are not judged here, because its steps are judged.
    """
    compiled, reported = subject.compiled, expected.reference_result
    wanted_outputs = reported.outputs[: len(outputs)]
    if compiled.is_quantized:
        found = compare(outputs, wanted_outputs, tolerance=np.inf, judge_integers=False)
        problems = [] if found.passed else [Problem(text=f"{where}: outputs differ from {reported.runtime} in shape")]
        if not problems and found.differing and _needs_equal_bytes(subject, reported):
            text = (
                f"{where}: {found.differing} elements of outputs differ from {reported.runtime}, which has every byte"
            )
            problems = [Problem(text=f"{text} the same for the operators of this model")]
        return {**found.to_json(), **reported.to_json()}, problems
    if expected.evaluation is None:
        found = compare(outputs, wanted_outputs, tolerance=tolerance_of(compiled.program))
        text = f"{where}: outputs differ from {reported.runtime} by {found.max_abs_error:g}"
        return {**found.to_json(), **reported.to_json()}, [] if found.passed else [Problem(text=text)]
    known = known_outputs(reported.outputs, expected.evaluation, expected.stressed)[: len(outputs)]
    verdicts: dict[str, tuple[Verdict, int]] = {}
    problems: list[Problem] = []
    for index, (sample, reported_sample) in enumerate(zip(outputs, wanted_outputs, strict=True)):
        for name, wanted in reported_sample.items():
            if name in known[0]:
                if index >= len(known) and not verdicts[name][0].passed:
                    continue  # the failure in an evaluated sample has a better explanation
                verdict = _judged_output(known, index, name, sample[name], wanted, tolerance_of(compiled.program))
                if index >= len(known) and not verdict.passed and (own := _known_now(subject, expected, index)):
                    verdict = judged(sample[name], replace(own[name], scale=known[0][name].scale))
                if name not in verdicts or verdict.of_tolerance > verdicts[name][0].of_tolerance:
                    verdicts[name] = verdict, index
            elif not expected.stressed[index] and (text := _other_than(sample[name], wanted, compiled)):
                text = f"{where}: output {name}, sample {index}: differs from {reported.runtime} {text}"
                problems.append(Problem(text=text))
    problems += [
        Problem(
            text=f"{where}: {verdict.sentence(f'output {name}, sample {index},', reported.runtime)}",
            cause=verdict.cause,
        )
        for name, (verdict, index) in verdicts.items()
        if not verdict.passed
    ]
    found = compare(outputs, wanted_outputs, tolerance=np.inf, judge_integers=False).to_json()
    table = _float64_table([verdict for verdict, _ in verdicts.values()], known)
    return {**found, "passed": not problems, **reported.to_json(), "float64": table}, problems


_EXACT_IN_LITERT = frozenset(
    "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED TRANSPOSE_CONV ADD SUB MUL MEAN SUM AVERAGE_POOL_2D MAX_POOL_2D SOFTMAX "
    "LOGISTIC TANH LEAKY_RELU RELU RELU6 QUANTIZE DEQUANTIZE RESHAPE PAD TRANSPOSE SPLIT SLICE STRIDED_SLICE SQUEEZE "
    "EXPAND_DIMS CONCATENATION RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR HARD_SWISH PACK UNPACK MAXIMUM MINIMUM".split()
)
"""Operators on int8 and uint8 whose bytes in the rounding `litert` are those of LiteRT's default kernels."""


def _needs_equal_bytes(subject: Subject, reported: ReferenceResult) -> bool:
    """Return True if LiteRT's default kernels ran, and every operator of the model has the same bytes as theirs."""
    if reported.runtime != LITERT_DEFAULT.name:
        return False
    interface = subject.compiled.interface
    types = {port.dtype for port in (*interface.inputs, *interface.outputs)}
    nodes = ModelOrigin.read(subject.mod).nodes
    ends = ("QUANTIZE", "DEQUANTIZE")
    return types <= {"int8", "uint8", "float32"} and all(
        node.operator in _EXACT_IN_LITERT and (node.on_integers or node.operator in ends) for node in nodes
    )


def _judged_output(
    known: Sequence[Mapping[str, KnownTensor]],
    index: int,
    name: str,
    got: np.ndarray,
    reported: np.ndarray,
    tolerance: float,
) -> Verdict:
    """Judge an output of one sample. known: known values of the evaluated samples, which are the first samples."""
    if index < len(known):
        return judged(got, known[index][name])
    return judged_unevaluated(got, reported, [one[name] for one in known], tolerance)


def _known_now(subject: Subject, expected: Expected, index: int) -> dict[str, KnownTensor] | None:
    """Evaluate a sample behind the evaluated ones, and return the known values of its outputs.

    Its values may lie closer to a step of rounding than theirs. None if the sample depends on those before it.
    """
    if subject.compiled.program.states or subject.compiled.is_stream:
        return None
    evaluation = evaluate(subject.mod, [expected.asked[index]], [])
    if isinstance(evaluation, str):
        return None
    return known_outputs([expected.reference_result.outputs[index]], evaluation, [expected.stressed[index]])[0]


def _other_than(got: np.ndarray, wanted: np.ndarray, compiled: Compiled) -> str:
    """Return how an output without a float64 value differs from the runtime's; empty if it is within tolerance."""
    found = compare([{"": got}], [{"": wanted}], tolerance=tolerance_of(compiled.program))
    return "" if found.passed else f"by {found.max_abs_error:g} in {found.differing} elements"


def _float64_table(worst: Sequence[Verdict], known: Sequence[dict[str, KnownTensor]]) -> dict[str, Any]:
    """Return the report's table of errors against float64, with None for values that are not finite."""
    errors: dict[str, float] = {
        "error": max((verdict.from_exact for verdict in worst), default=0.0),
        "reference_error": max((verdict.reference_error for verdict in worst), default=0.0),
        "of_tolerance": max((verdict.of_tolerance for verdict in worst), default=0.0),
    }
    table: dict[str, Any] = {key: float(error) if np.isfinite(error) else None for key, error in errors.items()}
    return table | {"weak": weak_outputs(known)}


def _against_host(compiled: Compiled, expected: Expected, answers: Outputs, host: Outputs, where: str) -> list[Problem]:
    """Return the problem if firmware differs from the host in integers, or in floats by more than 1e-5 and rounding."""
    host = host[: len(answers)]
    same = compare(answers, host, tolerance=tolerance_of(compiled.program, BOARD_TOLERANCE))
    if same.passed or (expected.evaluation is not None and _within_rounding(compiled, expected, answers, host)):
        return []
    return [Problem(text=f"{where}: outputs differ from the host's by {same.max_abs_error:g}", cause="run")]


def _within_rounding(compiled: Compiled, expected: Expected, answers: Outputs, host: Outputs) -> bool:
    """Return True if the integers of firmware and host are equal and each float of firmware is within its tolerance."""
    assert expected.evaluation is not None, "asked by the caller"
    known = known_outputs(expected.reference_result.outputs, expected.evaluation, expected.stressed)
    tolerance = tolerance_of(compiled.program)
    return all(
        _judged_output(known, index, name, sample[name], array, tolerance).passed
        if name in known[0]
        else not is_float(array) and np.array_equal(sample[name], array)
        for index, (sample, beside) in enumerate(zip(answers, host, strict=True))
        for name, array in beside.items()
    )


def _driver_problems(compiled: Compiled, board: RunResult) -> list[Problem]:
    """Return the problem if the board counted other calls of accelerators than the program has."""
    steps = compiled.program.steps
    waits = sum(isinstance(step, DriverWait) for step in steps)
    starts = sum(call.implementation.driver is not None for call in compiled.program.kernel_calls())
    if (board.driver_calls or (0, 0)) == (starts, waits):
        return []
    text = f"board: accelerators had (starts, waits) of {board.driver_calls}, but {(starts, waits)} were planned"
    return [Problem(text=text, cause="run")]


def not_the_model(name: str, problems: Sequence[str]) -> VerificationFailed:
    """Return the error for C code that does not compute the model."""
    return _failed(f"{name}: the C code does not compute the model", problems, "")


def failed_verification(subject: Subject, expected: Expected, problems: Sequence[Problem]) -> VerificationFailed:
    """Return the error for a failed verification: the comparison, its problems, and advice.

    If the reference runtime itself gives no usable results on the samples, the error says so.
    """
    name, texts, who = subject.model, [problem.text for problem in problems], expected.reference_result.runtime
    remark = "" if any(problem.cause == "run" for problem in problems) else _remark_on_file(subject, expected)
    if remark:
        head = f"{name}: these samples cannot tell whether the C code computes the model: {remark}. Compared on them"
        return _failed(head, texts, "Give samples that are typical for the model (--verify-inputs). ")
    if all(problem.cause == "reading" for problem in problems):
        head = f"{name}: tvm_ext and {who} read the file differently, and the C code computes what tvm_ext reads"
        return _failed(head, texts, "Please report it with the file. ")
    return _failed(f"{name}: the C code does not compute the model", texts, "")


def _failed(head: str, problems: Sequence[str], way_out: str) -> VerificationFailed:
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return VerificationFailed(
        f"{head}: {'; '.join(problems[:5])}{more}. Nothing was written. {way_out}"
        "--verify none builds the package anyway, marked as not verified."
    )


def _remark_on_file(subject: Subject, expected: Expected) -> str:
    """Return why the samples cannot tell correct C code from wrong C code; empty if they can.

    They cannot if the reference runtime's outputs are not numbers, or if its two modes differ by more than rounding.
    """
    reported = expected.reference_result
    if reported.own_reading or subject.compiled.is_quantized or expected.evaluation is None:
        return ""
    known = known_outputs(reported.outputs, expected.evaluation, expected.stressed)
    ordinary = [sample for sample, hard in zip(reported.outputs, expected.stressed, strict=True) if not hard]
    broken = [name for sample in ordinary for name, array in sample.items() if not _is_finite(array)]
    if broken:
        return f"{reported.runtime} itself gives NaN or infinity in output {broken[0]}"
    modes = ask_modes(subject.mod, expected.asked[: len(ordinary)])
    if modes is None:
        return ""
    furthest = (0.0, "")
    for (one, other), wanted in zip(modes.outputs, known, strict=False):
        for name in wanted.keys() & one.keys():
            error = gaps(other[name].astype(np.float64), one[name].astype(np.float64))
            beyond = error[error > wanted[name].reported_limits.reshape(error.shape)]
            if beyond.size:
                furthest = max(furthest, (float(beyond.max()), name))
    error, name = furthest
    return f"{modes.modes[1]} differs from {modes.modes[0]} by {error:.3g} in output {name}" if name else ""


def _is_finite(array: np.ndarray) -> bool:
    return not is_float(array) or bool(np.isfinite(array.astype(np.float64)).all())


_ADVICE = "these samples hardly verify the output. Give other samples (--verify-inputs), or inspect the model"


def empty_outputs(outputs: Sequence[Sample], interface: Interface) -> list[str]:
    """Return a sentence for each output of real numbers that is NaN, zero, constant or saturated in all samples.

    Real numbers are floats or integers with a scale. Other integers, such as an index, may well be 0 each time.
    """
    sentences: list[str] = []
    for port in interface.outputs:
        arrays = [sample[port.source] for sample in outputs if port.source in sample]
        if not arrays or arrays[0].size == 0 or not interface.inputs:
            continue
        if not is_float(arrays[0]) and port.quantization is None:
            continue
        what = _emptiness(np.stack([array.astype(np.float64) for array in arrays]), port)
        sentences += [f"output {port.source} {what} in all {len(arrays)} samples; {_ADVICE}"] if what else []
    return sentences


def _emptiness(values: Array, port: Port) -> str:
    """Return why the values of an output carry no information; empty if they do. values: samples along axis 0."""
    if np.isnan(values).all():
        return "is NaN"
    if not np.isfinite(values).any():
        return "is NaN or infinite"
    zero = port.quantization.zero_point if port.quantization else 0
    if (values == zero).all():
        return "is 0"
    if len(values) > 1 and (values == values[0]).all():
        return "is the same"
    ends = _ends(values, port)
    if ends and np.isin(values, ends).all():
        return f"is saturated, {ends[0]:g} or {ends[1]:g},"
    return ""


def _ends(values: Array, port: Port) -> tuple[float, ...]:
    """Return the smallest and largest possible value of an output, as far as known.

    They are the range of its integers; for floats whose largest value is 1 they are 0 or -1 and 1, as after a sigmoid
    or tanh.
    """
    if port.quantization is not None and port.dtype.startswith(("int", "uint")):
        info = np.iinfo(port.dtype)
        return float(info.min), float(info.max)
    least = 0.0 if values.min() >= 0 else -1.0
    return (least, 1.0) if values.max() == 1 else ()
