"""Judge the outputs of a package: on the host, on the board and on a device, and step by step inside the model.

(a) Each step of the C gives the very bytes of its kernel's reference, fed what the C gave that step, and the package's
    outputs are those of its last steps. (b) Each step's reference, fed what the reference runtime computed, gives what
    the reference runtime computed (`tvm_ext.verification.account`). By (a) the C is the chain of the references, by (b)
    every link of that chain is the reference runtime's; what both differ by at the end is what the links allow, and
    nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import moved_bytes
from codegen_c.program import reference
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import drivers_of
from codegen_c.program.steps import DriverWait, KernelCall, Step, calls, writes
from codegen_c.program.tensors import Tensor
from tvm_ext.building.subject import Expected, Subject
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.execution.instrumented import InstrumentedModel
from tvm_ext.execution.runner import Runner
from tvm_ext.execution.samples import RunResult
from tvm_ext.report.report import moved_table
from tvm_ext.verification.account import account_for, laid_out, source_of
from tvm_ext.verification.branches import untaken_branches
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
from tvm_ext.verification.reference_runtimes.ask import ask_modes
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
from tvm_ext.verification.windows import against_windows


@dataclass(frozen=True, kw_only=True)
class StepErrors:
    """Steps and outputs off the reference or the reference runtime, as sentences; empty is good.

    outputs: by sample, outputs as the last steps made them, by the model's names. tensors_compared: tensors that both a
    step made and the reference runtime has.
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
    """Rules (a) and (b) for every step of a quantized model; without a reference_result only (a)."""
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
    """(a): each step of the C run against its reference, given what the C run gave that step; outputs, next states.

    New rows of a ring that turns are not looked at by themselves: what reads them is.
    """
    program, interface = model.compiled.program, model.compiled.interface
    values = {port.name: sample[port.source] for port in interface.inputs}
    values |= {**states, **model.trace(sample)}
    errors = []
    for step in program.steps:
        for name, wanted in reference.run_step(program, step, values).items():
            if name in program.kept or program.turns(name):
                values[name] = wanted
            if name not in values or values[name] is wanted:  # of a ring only the last rows are left
                continue
            absolute, relative = difference(values[name], wanted)
            limit = 0.0 if _is_exact(step) else 1.0 if wanted.dtype.kind in "iu" else BOARD_TOLERANCE
            if (relative if wanted.dtype.kind == "f" else absolute) > limit:
                errors.append(f"{step.name}: {name} differs from its kernel's reference by {absolute:g}")
    outputs = {port.source: values[port.name].reshape(port.shape) for port in interface.outputs}
    return errors, outputs, reference.next_states(program, values)


def against_steps(given: Sequence[Sample], steps: StepErrors) -> list[str]:
    """Sentences on outputs of the package, by sample and name, that are not those of its last steps."""
    return [
        f"output {name}: differs by {difference(outputs[name], wanted)[0]:g} from what its last step made"
        for outputs, made in zip(given, steps.outputs, strict=True)
        for name, wanted in made.items()
        if max(difference(outputs[name], wanted)) > 0
    ]


def _is_exact(step: Step) -> bool:
    return all(call.implementation.exact for call in calls(step) if isinstance(call, KernelCall))


NUM_JUDGED_STEPS = 5
"""Samples, from the first on, of which the tensors inside are judged."""


@dataclass(frozen=True, kw_only=True)
class FloatSteps:
    """Tensors that steps of the C got wrong, as sentences, with the causes of each; and how many were compared."""

    errors: tuple[str, ...]
    causes: tuple[str, ...]
    tensors_compared: int


def check_float_steps(
    compiled: Compiled,
    samples: Sequence[Sample],
    said: ReferenceResult,
    evaluation: Evaluation,
    stressed: Sequence[bool],
) -> FloatSteps:
    """Compare every float tensor of the program that the runtime or the evaluation has, sample by sample."""
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
                known = _known(tensor, index, said, evaluation, is_stressed=stressed[index])
                if known is None:
                    continue
                verdict = judged(array, known)
                if name not in worst or verdict.of_tolerance > worst[name][0].of_tolerance:
                    who = said.runtime if known.said is not None else "a float64 evaluation"
                    what = f"{source_of(tensor)}, which the model has inside, sample {index},"
                    worst[name] = verdict, verdict.sentence(what, who)
    failed = [(text, verdict.cause) for verdict, text in worst.values() if not verdict.passed]
    return FloatSteps(
        errors=tuple(text for text, _ in failed), causes=tuple(cause for _, cause in failed),
        tensors_compared=len(worst),
    )  # fmt: skip


def _has_known_tensors_inside(compiled: Compiled, evaluation: Evaluation) -> bool:
    """True where a step writes a tensor that the evaluation has, and that is no output."""
    tensors, outputs = compiled.program.tensors, {port.source for port in compiled.interface.outputs}
    written = {source_of(tensors[name]) for step in compiled.program.steps for name in writes(step)}
    return any(name not in outputs for name in written & evaluation.inner[0].keys())


def _known(
    tensor: Tensor, index: int, said: ReferenceResult, evaluation: Evaluation, *, is_stressed: bool
) -> KnownTensor | None:
    """What is known of a tensor of the program, as it is stored; None where nothing is."""
    source = source_of(tensor)
    exact = laid_out(_of(evaluation.outputs, evaluation.inner, index, source), tensor)
    noise = laid_out(_of(evaluation.noise_outputs, evaluation.noise_inner, index, source), tensor)
    others = laid_out(_of(evaluation.others_noise_outputs, evaluation.others_noise_inner, index, source), tensor)
    if exact is None or noise is None or others is None:
        return None
    found = laid_out(_of(said.outputs, said.inner, index, source), tensor)
    if found is not None and str(found.dtype) != tensor.dtype:
        found = None
    return KnownTensor(
        said=found, exact=exact, limits=tolerances(exact, noise, tensor.dtype),
        said_limits=tolerances(exact, others, tensor.dtype),
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
    """A sentence on what is wrong.

    cause: `c`; `reading` where our reading of the file is not the runtime's; `run` where no samples would excuse it.
    """

    text: str
    cause: str = "c"


def steps_of(subject: Subject, expected: Expected) -> Steps | None:
    """Errors of the steps; None where a model is judged by its outputs, or by whole windows."""
    compiled = subject.compiled
    if compiled.interface.warm_up_runs:
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
    """Results per target, None for the board where it was not run, and what is wrong.

    steps: as `steps_of` has them; host: outputs there; board: what it gave and counted.
    """
    compiled = subject.compiled
    results = dict[str, Any](host=None, qemu=None)
    results["host"], problems = _against_reference(compiled, expected, host, "host")
    weak = results["host"].get("float64", {}).get("weak", {})
    ordinary = [sample for sample, is_hard in zip(host, expected.stressed, strict=True) if not is_hard]
    results["host"]["warnings"] = [
        *([_without_evaluation(expected.no_evaluation)] if expected.no_evaluation else []),
        *untaken_branches(compiled, subject.samples),
        *empty_outputs(ordinary, compiled.interface),
        *map(_weakness, weak.items()),
    ]
    if compiled.is_quantized and compiled.interface.warm_up_runs:
        said = expected.reference_result
        errors, results["host"]["tensors_compared"] = against_windows(subject.mod, host, expected.asked, said)
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
        results["qemu"], wrong = _against_reference(compiled, expected, answers, "board")
        problems += [*wrong, *_driver_problems(compiled, board)]
        planned = moved_bytes(compiled.program)
        if board.moved_bytes != planned:
            text = f"board: moved {board.moved_bytes}, planned was {planned}"
            problems.append(Problem(text=text, cause="run"))
        counted = None if drivers_of(compiled.program) else board.instructions  # a stand-in's are no measurement
        results["qemu"] |= {"instructions": counted, "moved": moved_table(board.moved_bytes)}
    return results, problems


def judged_device(
    subject: Subject, expected: Expected, host: Outputs, device: RunResult, runner: Runner
) -> tuple[dict[str, Any], list[Problem]]:
    """Results of a device, for the report, and what is wrong: against the host, and against the reference runtime.

    Nothing there counts instructions or moved bytes. The report names the runner's program, not the user's paths.
    """
    compiled = subject.compiled
    answers = list(device.outputs[compiled.interface.warm_up_runs :])
    problems = _against_host(compiled, expected, answers, host, "runner")
    table, wrong = _against_reference(compiled, expected, answers, "runner")
    figures = {"program": runner.program, "instructions": None}
    return {**table, **figures, "cycles": device.cycles, "stack_bytes": device.stack_bytes}, [*problems, *wrong]


def _without_evaluation(reason: str) -> str:
    return (
        "outputs are compared with a fixed tolerance, and no tensor inside the model is compared, because the float64 "
        f"evaluation of the model {reason}"
    )


def _weakness(output: tuple[str, float]) -> str:
    name, share = output
    part = "as much as" if share == 1 else f"{share:.0%} of"
    return (
        f"output {name} is hardly verified: in every sample rounding may move it by {part} its largest value. "
        "Give samples that the model is made for (--verify-inputs)"
    )


def _against_reference(
    compiled: Compiled, expected: Expected, outputs: Outputs, where: str
) -> tuple[dict[str, Any], list[Problem]]:
    """The comparison of outputs with the reference runtime's, for the report, and what is wrong.

    A quantized model is judged by its steps, and by them what it gives end to end.
    """
    said, wanted_outputs = expected.reference_result, expected.reference_result.outputs[: len(outputs)]
    if compiled.is_quantized:
        found = compare(outputs, wanted_outputs, tolerance=np.inf, judge_integers=False)
        problems = [] if found.passed else [Problem(text=f"{where}: outputs differ from {said.runtime} in shape")]
        return {**found.to_json(), **said.to_json()}, problems
    if expected.evaluation is None:
        found = compare(outputs, wanted_outputs, tolerance=tolerance_of(compiled.program))
        text = f"{where}: outputs differ from {said.runtime} by {found.max_abs_error:g}"
        return {**found.to_json(), **said.to_json()}, [] if found.passed else [Problem(text=text)]
    known = known_outputs(said.outputs, expected.evaluation, expected.stressed)[: len(outputs)]
    verdicts: dict[str, tuple[Verdict, int]] = {}
    problems: list[Problem] = []
    for index, (sample, said_sample) in enumerate(zip(outputs, wanted_outputs, strict=True)):
        for name, wanted in said_sample.items():
            if name in known[0]:
                if index >= len(known) and not verdicts[name][0].passed:
                    continue  # what evaluated samples show says more
                verdict = _judged_output(known, index, name, sample[name], wanted, tolerance_of(compiled.program))
                if name not in verdicts or verdict.of_tolerance > verdicts[name][0].of_tolerance:
                    verdicts[name] = verdict, index
            elif not expected.stressed[index] and (text := _other_than(sample[name], wanted, compiled)):
                text = f"{where}: output {name}, sample {index}: differs from {said.runtime} {text}"
                problems.append(Problem(text=text))
    problems += [
        Problem(
            text=f"{where}: {verdict.sentence(f'output {name}, sample {index},', said.runtime)}", cause=verdict.cause
        )
        for name, (verdict, index) in verdicts.items()
        if not verdict.passed
    ]
    found = compare(outputs, wanted_outputs, tolerance=np.inf, judge_integers=False).to_json()
    table = _float64_table([verdict for verdict, _ in verdicts.values()], known)
    return {**found, "passed": not problems, **said.to_json(), "float64": table}, problems


def _judged_output(
    known: Sequence[Mapping[str, KnownTensor]],
    index: int,
    name: str,
    got: np.ndarray,
    said: np.ndarray,
    tolerance: float,
) -> Verdict:
    """The verdict on an output; known: of the samples that were evaluated, the first ones."""
    if index < len(known):
        return judged(got, known[index][name])
    return judged_unevaluated(got, said, [one[name] for one in known], tolerance)


def _other_than(got: np.ndarray, wanted: np.ndarray, compiled: Compiled) -> str:
    """How an output without a float64 counterpart differs from the runtime's; empty where it does not."""
    found = compare([{"": got}], [{"": wanted}], tolerance=tolerance_of(compiled.program))
    return "" if found.passed else f"by {found.max_abs_error:g} in {found.differing} elements"


def _float64_table(worst: Sequence[Verdict], known: Sequence[dict[str, KnownTensor]]) -> dict[str, Any]:
    """Errors beside the float64 evaluation, as the report has them; None for what is no number."""
    figures: dict[str, float] = {
        "error": max((verdict.from_exact for verdict in worst), default=0.0),
        "reference_error": max((verdict.reference_error for verdict in worst), default=0.0),
        "of_tolerance": max((verdict.of_tolerance for verdict in worst), default=0.0),
    }
    table: dict[str, Any] = {key: float(figure) if np.isfinite(figure) else None for key, figure in figures.items()}
    return table | {"weak": weak_outputs(known)}


def _against_host(compiled: Compiled, expected: Expected, answers: Outputs, host: Outputs, where: str) -> list[Problem]:
    """What is wrong where firmware differs from the host: integers at all, floats beyond 1e-5 and beyond rounding."""
    host = host[: len(answers)]
    same = compare(answers, host, tolerance=tolerance_of(compiled.program, BOARD_TOLERANCE))
    if same.passed or (expected.evaluation is not None and _within_rounding(compiled, expected, answers, host)):
        return []
    return [Problem(text=f"{where}: outputs differ from the host's by {same.max_abs_error:g}", cause="run")]


def _within_rounding(compiled: Compiled, expected: Expected, answers: Outputs, host: Outputs) -> bool:
    """True where the integers of both are equal and each float is within its tolerance."""
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
    """Calls of drivers that the board counted, where they are not those of the program."""
    steps = compiled.program.steps
    waits = sum(isinstance(step, DriverWait) for step in steps)
    starts = sum(call.implementation.driver is not None for call in compiled.program.kernel_calls())
    if (board.driver_calls or (0, 0)) == (starts, waits):
        return []
    text = f"board: (starts, waits) of accelerators are {board.driver_calls}, planned were {(starts, waits)}"
    return [Problem(text=text, cause="run")]


def not_the_model(name: str, problems: Sequence[str]) -> VerificationFailed:
    """The error for C that does not compute what it should."""
    return _failed(f"{name}: the C code does not compute the model", problems, "")


def failed_verification(subject: Subject, expected: Expected, problems: Sequence[Problem]) -> VerificationFailed:
    """The error for a package that failed: what was compared with what, whether the samples can decide, a way out."""
    name, texts, who = subject.model, [problem.text for problem in problems], expected.reference_result.runtime
    remark = "" if any(problem.cause == "run" for problem in problems) else _remark_on_file(subject, expected)
    if remark:
        head = f"{name}: these samples cannot tell whether the C code computes the model: {remark}. Compared on them"
        return _failed(head, texts, "Give samples that the model is made for (--verify-inputs). ")
    if all(problem.cause == "reading" for problem in problems):
        head = f"{name}: the C code computes what tvm_ext reads in the file, and {who} reads it otherwise"
        return _failed(head, texts, "Report it with the file. ")
    return _failed(f"{name}: the C code does not compute the model", texts, "")


def _failed(head: str, problems: Sequence[str], way_out: str) -> VerificationFailed:
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return VerificationFailed(
        f"{head}: {'; '.join(problems[:5])}{more}. Nothing was written. {way_out}"
        "--verify none builds the package anyway, marked as not verified."
    )


def _remark_on_file(subject: Subject, expected: Expected) -> str:
    """Why no C could be told right from wrong on these samples; empty where one can.

    The reference runtime gives no numbers, or its two modes give others, beyond what rounding explains.
    """
    said = expected.reference_result
    if said.own_reading or subject.compiled.is_quantized or expected.evaluation is None:
        return ""
    known = known_outputs(said.outputs, expected.evaluation, expected.stressed)
    ordinary = [sample for sample, hard in zip(said.outputs, expected.stressed, strict=True) if not hard]
    broken = [name for sample in ordinary for name, array in sample.items() if not _is_finite(array)]
    if broken:
        return f"{said.runtime} itself gives NaN or infinity in output {broken[0]}"
    modes = ask_modes(subject.mod, expected.asked[: len(ordinary)])
    if modes is None:
        return ""
    furthest = (0.0, "")
    for (one, other), wanted in zip(modes.outputs, known, strict=False):
        for name in wanted.keys() & one.keys():
            error = gaps(other[name].astype(np.float64), one[name].astype(np.float64))
            beyond = error[error > wanted[name].said_limits.reshape(error.shape)]
            if beyond.size:
                furthest = max(furthest, (float(beyond.max()), name))
    error, name = furthest
    return f"{modes.modes[1]} differs from {modes.modes[0]} by {error:.3g} in output {name}" if name else ""


def _is_finite(array: np.ndarray) -> bool:
    return not is_float(array) or bool(np.isfinite(array.astype(np.float64)).all())


_ADVICE = "verification on these samples says little about it. Give others (--verify-inputs), or look at the model"


def empty_outputs(outputs: Sequence[Sample], interface: Interface) -> list[str]:
    """A sentence for each output of numbers that is NaN, zero, constant or saturated in all samples.

    Only real numbers are looked at, as floats or as integers with a scale: an index may well be 0 each time.
    """
    found: list[str] = []
    for port in interface.outputs:
        arrays = [sample[port.source] for sample in outputs if port.source in sample]
        if not arrays or arrays[0].size == 0 or not interface.inputs:
            continue
        if not is_float(arrays[0]) and port.quantization is None:
            continue
        what = _emptiness(np.stack([array.astype(np.float64) for array in arrays]), port)
        found += [f"output {port.source} {what} in all {len(arrays)} samples; {_ADVICE}"] if what else []
    return found


def _emptiness(values: Array, port: Port) -> str:
    """How all values of an output, samples first, are empty; nothing where they are not."""
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
    """Least and largest value that an output can have: of its integers, or of a function between 0 or -1 and 1."""
    if port.quantization is not None and port.dtype.startswith(("int", "uint")):
        info = np.iinfo(port.dtype)
        return float(info.min), float(info.max)
    least = 0.0 if values.min() >= 0 else -1.0
    return (least, 1.0) if values.max() == 1 else ()
