"""Comparison of the float model that tvm_ext reads from a file with the file's own runtime, before it is quantized.

No other runtime has the model that is quantized here. Therefore the float module is compared with the runtime of the
file (`check_reading`), and the quantized module with the float results of that runtime (`beside_float`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import tvm

from codegen_c.program.interface import Interface, Port
from relay_passes.dataflow import bindings
from tvm_ext.core.decisions.models import ChangedPorts, ModelOrigin
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.frontends.calibration import Calibration
from tvm_ext.verification.judge_floats import KnownTensor, Verdict, judged, known_inner, known_outputs
from tvm_ext.verification.reference_runtimes.ask import ask, ask_others, evaluate, of_real, run_module
from tvm_ext.verification.reference_runtimes.float64_runtime import shared_noise
from tvm_ext.verification.reference_runtimes.reference_result import ReferenceResult
from tvm_ext.verification.verify import FLOAT_TOLERANCE, Array, Sample, compare

NUM_SAMPLES = 8
"""Number of calibration samples on which the file's runtime runs."""


@dataclass(frozen=True, kw_only=True)
class FormComparison:
    """Comparison of two forms of a model, for the report.

    form, against: names of the two forms.
    samples: number of samples.
    own_reading: why no other runtime took part; None if another runtime did.
    max_abs_error, of_tolerance: largest error between floats, absolute and in units of the tolerance.
    snr_db: lowest signal-to-noise ratio over the outputs.
    top1_agreement: fraction of samples in which the first output has its largest element at the same index in both
    forms; None if the output is not a vector.
    """

    form: str
    against: str
    samples: int
    own_reading: str | None = None
    max_abs_error: float | None = None
    of_tolerance: float | None = None
    snr_db: float | None = None
    top1_agreement: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as an entry of report.json."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedReading:
    """Result of the comparison of a float module with the file's runtime.

    samples: inputs of the comparison. reported: the runtime's results for them. is_own: True if no other runtime takes
    the model, so that TVM ran the module.
    """

    samples: Sequence[Sample]
    reported: ReferenceResult
    comparison: FormComparison
    is_own: bool = False


def samples_to_read(data: Calibration) -> list[Sample]:
    """Return the first calibration samples; for a model with states only those before its states are reset."""
    end = min([NUM_SAMPLES, *(index for index in data.resets if index > 0)])
    return list(data.samples[:end])


def check_reading(mod: tvm.IRModule, samples: Sequence[Sample], name: str) -> CheckedReading:
    """Compare a loaded float module with the file's runtime.

    If no other runtime takes the file, TVM runs the module, and `own_reading` says so.
    Raises VerificationFailed if the outputs differ.
    """
    inner = [binding.var.name for binding in bindings(mod["main"])]
    reported, _ = ask_others(mod, samples, inner)
    if reported is None:
        return _own_reading(mod, samples, ask(mod, samples, (), quantized_here=False))
    evaluation = evaluate(mod, samples, inner)
    form = FormComparison(form="the float model, as it was read", against=reported.runtime, samples=len(samples))
    if not isinstance(evaluation, str):
        known = known_outputs(reported.outputs, evaluation, [False] * len(samples))
        verdicts = [
            (judged(reported.outputs[index][output], _loosened(one)), f"output {output}, sample {index},")
            for index, sample in enumerate(known)
            for output, one in sample.items()
        ]
        worst = max(verdicts, key=lambda pair: pair[0].of_tolerance, default=None)
        if worst is not None and worst[0].passed and not _integers_differ(reported.outputs, evaluation.outputs):
            verdict = worst[0]
            found = replace(form, max_abs_error=verdict.error, of_tolerance=verdict.of_tolerance)
            return CheckedReading(samples=samples, reported=reported, comparison=found)
        first = _first_difference(known_inner(reported, evaluation), inner)
    else:
        worst, first = None, ""
    found = compare(run_module(mod, samples), reported.outputs, tolerance=FLOAT_TOLERANCE)
    if worst is None and found.passed:
        return CheckedReading(
            samples=samples, reported=reported, comparison=replace(form, max_abs_error=found.max_abs_error)
        )
    text = (_text(worst, reported.runtime) or f"outputs differ by {found.max_abs_error:g}") + first
    raise VerificationFailed(
        f"{name}: tvm_ext and {reported.runtime} read the float model in the file differently: {text}. Nothing was "
        "quantized. Please report it with the file; --verify none builds the package anyway, marked as not verified."
    )


def check_rewritten(mod: tvm.IRModule, reading: CheckedReading, name: str) -> None:
    """Compare a float module that passes rewrote ahead of its quantization with the file's runtime.

    The quantized module is compared with the C code, and its distance from the float model has no exact limit, so
    nothing else would find a pass that rewrites the float model wrongly. Raises VerificationFailed.
    """
    # Without another runtime there is no evaluation in float64 below, so rounding has more room here.
    tolerance = 10 * FLOAT_TOLERANCE if reading.is_own else FLOAT_TOLERANCE
    found = compare(run_module(mod, reading.samples), reading.reported.outputs, tolerance=tolerance)
    if found.passed:
        return
    if not reading.is_own:
        check_reading(mod, reading.samples, name)  # its tolerances follow from an evaluation in float64
        return
    raise VerificationFailed(
        f"{name}: passes of tvm_ext change the outputs of the float model by {found.max_abs_error:g} ahead of its "
        "quantization. Please report it with the file; --verify none builds the package anyway, marked as not verified."
    )


def _loosened(known: KnownTensor) -> KnownTensor:
    """Return known values with tolerances of rounding plus 1e-4 of the channel's magnitude around float64.

    Runtimes approximate functions by more than rounding, but an operator that is read wrongly has a larger error.
    """
    more = FLOAT_TOLERANCE * shared_noise(np.abs(known.exact))
    return replace(known, reported=None, limits=known.reported_limits + more)


def _own_reading(mod: tvm.IRModule, samples: Sequence[Sample], reported: ReferenceResult) -> CheckedReading:
    """Return the comparison without another runtime: TVM is the own runtime of a Relax module, but not of a file."""
    why = reported.own_reading or None
    is_module = ModelOrigin.read(mod).source_format == "relax"
    form = FormComparison(
        form="the float module" if is_module else "the float model, as it was read", against=reported.runtime,
        samples=len(samples), own_reading=why, max_abs_error=0.0,
    )  # fmt: skip
    return CheckedReading(samples=samples, reported=reported, comparison=form, is_own=True)


def _integers_differ(reported: Sequence[Sample], exact: Sequence[Sample]) -> bool:
    return any(
        array.dtype.kind in "iub" and not np.array_equal(array, other[name].reshape(array.shape))
        for sample, other in zip(reported, exact, strict=True)
        for name, array in sample.items()
    )


def _text(worst: tuple[Verdict, str] | None, who: str) -> str:
    return "" if worst is None or worst[0].passed else worst[0].sentence(worst[1], who)


def _first_difference(known: Mapping[str, Verdict], order: Sequence[str]) -> str:
    """Return words about the first tensor that differs, in the order of the model's operators; empty without any."""
    name = next((name for name in order if name in known and not known[name].passed), None)
    return "" if name is None else f"; the first tensor that differs is {name}, by {known[name].error:.3g}"


def beside_float(mod: tvm.IRModule, interface: Interface, reading: CheckedReading, form: str) -> FormComparison:
    """Compare the quantized module, run by TVM, with the float results of the file's runtime.

    mod: module in QDQ form, of whole windows. interface: of the package; it has the scales of inputs and outputs.
    """
    ports = {port.source: port for port in interface.inputs}
    dtypes = {param.name: str(param.ty.dtype) for param in mod["main"].params}
    changed = ChangedPorts.read(mod)
    samples = [
        {name: _quantized(array, ports[name], dtypes[name]) for name, array in sample.items() if name in ports}
        for sample in (of_real(one, changed.inputs or {}) for one in reading.samples)
    ]
    made = run_module(mod, samples)
    outputs = {port.source: port for port in interface.outputs}
    floats = [
        name
        for name, array in reading.reported.outputs[0].items()
        if array.dtype.kind == "f" and name in outputs and name not in changed.indexed
    ]
    pairs = {
        name: [
            (wanted[name].astype(np.float64), _real(got[name], outputs[name]).reshape(wanted[name].shape))
            for wanted, got in zip(reading.reported.outputs, made, strict=True)
        ]
        for name in floats
    }
    ratios = [_snr_db(both) for both in pairs.values()]
    return FormComparison(
        form=form, against=f"the float model in {reading.reported.runtime}", samples=len(samples),
        own_reading=reading.comparison.own_reading,
        snr_db=min((ratio for ratio in ratios if ratio is not None), default=None),
        top1_agreement=_top1_agreement(pairs[floats[0]]) if floats else None,
    )  # fmt: skip


def _quantized(array: Array, port: Port, dtype: str) -> Array:
    """Return an input in the type that the module takes. Real numbers become integers of the port's scale."""
    if str(array.dtype) == dtype or port.quantization is None:
        return array
    info = np.iinfo(dtype)
    steps = np.rint(array.astype(np.float64) / port.quantization.scale) + port.quantization.zero_point
    return np.clip(steps, info.min, info.max).astype(dtype)


def _real(array: Array, port: Port) -> Array:
    """Return an output as real numbers."""
    if array.dtype.kind == "f" or port.quantization is None:
        return array.astype(np.float64)
    return (array.astype(np.float64) - port.quantization.zero_point) * port.quantization.scale


def _snr_db(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    """Return the signal-to-noise ratio over all samples, 200 dB at most; None without a signal or for NaN."""
    signal = sum(float((wanted**2).sum()) for wanted, _ in pairs)
    noise = sum(float(((wanted - got) ** 2).sum()) for wanted, got in pairs)
    if not np.isfinite(signal + noise) or signal == 0:
        return None
    return min(10 * float(np.log10(signal / noise)), 200.0) if noise else 200.0


def _top1_agreement(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    if sum(extent > 1 for extent in pairs[0][0].shape) != 1:
        return None
    return sum(int(wanted.argmax() == got.argmax()) for wanted, got in pairs) / len(pairs)
