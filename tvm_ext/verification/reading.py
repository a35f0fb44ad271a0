"""Compares our reading of a float file with the file's own runtime, before another form is derived from it.

A model that is quantized here is known to no other runtime. So the float module that it is made of is compared with the
runtime of the file (`check_reading`), and the quantized module with the float results of that runtime (`beside_float`).
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
"""Calibration samples on which a file's runtime is asked."""


@dataclass(frozen=True, kw_only=True)
class FormComparison:
    """One comparison of a form of the model with another, for the report.

    form: what was compared. against: with what. own_reading: why no runtime but ours took part; None where one did.
    max_abs_error, of_tolerance: of float against float. snr_db: lowest of the outputs. top1_agreement: part of the
    samples in which both have the largest element of the first output at the same index; None where it is no vector.
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
        """The comparison as `report.json` has it."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedReading:
    """A float module that was compared with its runtime: on which samples, and what the runtime gives."""

    samples: Sequence[Sample]
    said: ReferenceResult
    comparison: FormComparison


def samples_to_read(data: Calibration) -> list[Sample]:
    """The first calibration samples; of a model with states, up to where the states are reset."""
    end = min([NUM_SAMPLES, *(index for index in data.resets if index > 0)])
    return list(data.samples[:end])


def check_reading(mod: tvm.IRModule, samples: Sequence[Sample], name: str) -> CheckedReading:
    """Compare a loaded float module with its file's runtime. Raises VerificationFailed where they differ.

    Where no other runtime takes the file, TVM stands for it, and the comparison says so.
    """
    inner = [binding.var.name for binding in bindings(mod["main"])]
    said, _ = ask_others(mod, samples, inner)
    if said is None:
        return _own_reading(mod, samples, ask(mod, samples, (), quantized_here=False))
    evaluation = evaluate(mod, samples, inner)
    form = FormComparison(form="the float model, as it was read", against=said.runtime, samples=len(samples))
    if not isinstance(evaluation, str):
        known = known_outputs(said.outputs, evaluation, [False] * len(samples))
        verdicts = [
            (judged(said.outputs[index][output], _loosened(one)), f"output {output}, sample {index},")
            for index, sample in enumerate(known)
            for output, one in sample.items()
        ]
        worst = max(verdicts, key=lambda pair: pair[0].of_tolerance, default=None)
        if worst is not None and worst[0].passed and not _integers_differ(said.outputs, evaluation.outputs):
            verdict = worst[0]
            found = replace(form, max_abs_error=verdict.error, of_tolerance=verdict.of_tolerance)
            return CheckedReading(samples=samples, said=said, comparison=found)
        first = _first_difference(known_inner(said, evaluation), inner)
    else:
        worst, first = None, ""
    found = compare(run_module(mod, samples), said.outputs, tolerance=FLOAT_TOLERANCE)
    if worst is None and found.passed:
        return CheckedReading(samples=samples, said=said, comparison=replace(form, max_abs_error=found.max_abs_error))
    text = (_text(worst, said.runtime) or f"outputs differ by {found.max_abs_error:g}") + first
    raise VerificationFailed(
        f"{name}: the float model, as tvm_ext reads it, is not what {said.runtime} computes from the file: {text}. "
        "Nothing was quantized. Report it with the file; --verify none builds the package anyway, marked as not "
        "verified."
    )


def _loosened(known: KnownTensor) -> KnownTensor:
    """What a runtime's output is held against: float64, within rounding and 1e-4 of its channel.

    Runtimes approximate functions; an operator that is read wrong is further off.
    """
    more = FLOAT_TOLERANCE * shared_noise(np.abs(known.exact))
    return replace(known, said=None, limits=known.said_limits + more)


def _own_reading(mod: tvm.IRModule, samples: Sequence[Sample], said: ReferenceResult) -> CheckedReading:
    """The reading where TVM is the only runtime: that of a Relax module, else ours."""
    why = said.own_reading or None
    is_module = ModelOrigin.read(mod).source_format == "relax"
    form = FormComparison(
        form="the float module" if is_module else "the float model, as it was read", against=said.runtime,
        samples=len(samples), own_reading=why, max_abs_error=0.0,
    )  # fmt: skip
    return CheckedReading(samples=samples, said=said, comparison=form)


def _integers_differ(said: Sequence[Sample], exact: Sequence[Sample]) -> bool:
    return any(
        array.dtype.kind in "iub" and not np.array_equal(array, other[name].reshape(array.shape))
        for sample, other in zip(said, exact, strict=True)
        for name, array in sample.items()
    )


def _text(worst: tuple[Verdict, str] | None, who: str) -> str:
    return "" if worst is None or worst[0].passed else worst[0].sentence(worst[1], who)


def _first_difference(known: Mapping[str, Verdict], order: Sequence[str]) -> str:
    """Words on the first tensor of the model that differs, by the order of its operators."""
    name = next((name for name in order if name in known and not known[name].passed), None)
    return "" if name is None else f"; the first tensor that differs is {name}, by {known[name].error:.3g}"


def beside_float(mod: tvm.IRModule, interface: Interface, reading: CheckedReading, form: str) -> FormComparison:
    """The quantized module, run by TVM, beside the float results of the file's runtime.

    mod: in QDQ form, of whole windows. interface: of its package, which knows the scales of its inputs and outputs.
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
        for name, array in reading.said.outputs[0].items()
        if array.dtype.kind == "f" and name in outputs and name not in changed.indexed
    ]
    pairs = {
        name: [
            (wanted[name].astype(np.float64), _real(got[name], outputs[name]).reshape(wanted[name].shape))
            for wanted, got in zip(reading.said.outputs, made, strict=True)
        ]
        for name in floats
    }
    ratios = [_snr_db(both) for both in pairs.values()]
    return FormComparison(
        form=form, against=f"the float model in {reading.said.runtime}", samples=len(samples),
        own_reading=reading.comparison.own_reading,
        snr_db=min((ratio for ratio in ratios if ratio is not None), default=None),
        top1_agreement=_top1_agreement(pairs[floats[0]]) if floats else None,
    )  # fmt: skip


def _quantized(array: Array, port: Port, dtype: str) -> Array:
    """An input as the module takes it."""
    if str(array.dtype) == dtype or port.quantization is None:
        return array
    info = np.iinfo(dtype)
    steps = np.rint(array.astype(np.float64) / port.quantization.scale) + port.quantization.zero_point
    return np.clip(steps, info.min, info.max).astype(dtype)


def _real(array: Array, port: Port) -> Array:
    """An output as real numbers."""
    if array.dtype.kind == "f" or port.quantization is None:
        return array.astype(np.float64)
    return (array.astype(np.float64) - port.quantization.zero_point) * port.quantization.scale


def _snr_db(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    """Ratio of signal to noise over all samples, 200 at most; None where either is no number or there is no signal."""
    signal = sum(float((wanted**2).sum()) for wanted, _ in pairs)
    noise = sum(float(((wanted - got) ** 2).sum()) for wanted, got in pairs)
    if not np.isfinite(signal + noise) or signal == 0:
        return None
    return min(10 * float(np.log10(signal / noise)), 200.0) if noise else 200.0


def _top1_agreement(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    if sum(extent > 1 for extent in pairs[0][0].shape) != 1:
        return None
    return sum(int(wanted.argmax() == got.argmax()) for wanted, got in pairs) / len(pairs)
