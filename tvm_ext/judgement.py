"""Judges what a package computes on the host, on the board and on a device; sentences say what is wrong, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import moved_bytes
from codegen_c.program.program import drivers_of
from codegen_c.program.steps import DriverWait
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.execution.run_result import RunResult
from tvm_ext.execution.runner import Runner
from tvm_ext.report.report import moved_table
from tvm_ext.subject import Expected, Subject
from tvm_ext.verification.empty_outputs import empty_outputs
from tvm_ext.verification.float_steps import FloatSteps, check_float_steps
from tvm_ext.verification.judge_floats import (
    KnownTensor,
    Verdict,
    gaps,
    judged,
    judged_unevaluated,
    known_outputs,
    weak_outputs,
)
from tvm_ext.verification.verify import BOARD_TOLERANCE, Sample, compare, is_float, tolerance_of
from tvm_ext.verification.verify_steps import StepErrors, against_steps, check_steps
from tvm_ext.verification.windows import against_windows
from tvm_ext.verification.witnesses.ask import ask_modes

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
        return check_steps(compiled, subject.samples, expected.testimony)
    if expected.evaluation is None:
        return None
    return check_float_steps(
        compiled, subject.samples, expected.testimony, expected.evaluation, stressed=expected.stressed
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
    results["host"]["warnings"] = [*empty_outputs(ordinary, compiled.interface), *map(_weakness, weak.items())]
    if compiled.is_quantized and compiled.interface.warm_up_runs:
        said = expected.testimony
        errors, results["host"]["tensors_compared"] = against_windows(subject.mod, host, expected.asked, said)
        problems += [Problem(text=error) for error in errors]
    elif isinstance(steps, FloatSteps):
        results["host"]["tensors_compared"] = steps.tensors_compared
        problems += [Problem(text=a, cause=b) for a, b in zip(steps.errors, steps.causes, strict=True)]
    elif steps:
        errors = [*steps.against_reference, *against_steps(host, steps), *steps.against_witness]
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
    said, wanted_outputs = expected.testimony, expected.testimony.outputs[: len(outputs)]
    if compiled.is_quantized:
        found = compare(outputs, wanted_outputs, tolerance=np.inf, judge_integers=False)
        problems = [] if found.passed else [Problem(text=f"{where}: outputs differ from {said.witness} in shape")]
        return {**found.to_json(), **said.to_json()}, problems
    if expected.evaluation is None:
        found = compare(outputs, wanted_outputs, tolerance=tolerance_of(compiled.program))
        text = f"{where}: outputs differ from {said.witness} by {found.max_abs_error:g}"
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
                text = f"{where}: output {name}, sample {index}: differs from {said.witness} {text}"
                problems.append(Problem(text=text))
    problems += [
        Problem(
            text=f"{where}: {verdict.sentence(f'output {name}, sample {index},', said.witness)}", cause=verdict.cause
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
    known = known_outputs(expected.testimony.outputs, expected.evaluation, expected.stressed)
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
    name, texts, who = subject.model, [problem.text for problem in problems], expected.testimony.witness
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
    said = expected.testimony
    if said.own_reading or subject.compiled.is_quantized or expected.evaluation is None:
        return ""
    known = known_outputs(said.outputs, expected.evaluation, expected.stressed)
    ordinary = [sample for sample, hard in zip(said.outputs, expected.stressed, strict=True) if not hard]
    broken = [name for sample in ordinary for name, array in sample.items() if not _is_finite(array)]
    if broken:
        return f"{said.witness} itself gives NaN or infinity in output {broken[0]}"
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
