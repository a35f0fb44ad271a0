"""Compares what the C computes with what the model means.

Float models: every output within 1e-4 of the largest reference magnitude. Quantized models: (a) every integer
step gives the very bytes of its kernel's reference, (b) every integer step fed onnxruntime's own values lies
within 1 of onnxruntime's result (TVM's, for a model quantized here), (c) the end-to-end difference is reported, not
judged: onnxruntime differs from itself by more. A board must agree with the host: bytes for integers, 1e-5 for floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx
import tvm

from codegen_c import reference
from codegen_c.build import Compiled
from codegen_c.program import KernelCall, Step, Tensor, calls
from tvm_ext.instrumented import trace, with_ports_in_arena
from tvm_ext.references import module_values, onnx_outputs

Array = np.ndarray
Sample = Mapping[str, Array]

FLOAT_TOLERANCE = 1e-4
BOARD_TOLERANCE = 1e-5
OPERATOR_TOLERANCE_LSB = 1


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Differences over all elements of all outputs of all samples; relative to each output's largest magnitude."""

    passed: bool
    max_abs_error: float
    max_rel_error: float
    elements: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    outputs: Sequence[Sample], expected: Sequence[Sample], *, tolerance: float, judge_integers: bool = True
) -> Comparison:
    """Floats within `tolerance` of each output's max|expected|, integers equal (where they are judged)."""
    passed, worst_abs, worst_rel, elements = True, 0.0, 0.0, 0
    for got, wanted in zip(outputs, expected, strict=True):
        for name, reference_array in wanted.items():
            absolute, relative = difference(got[name], reference_array)
            worst_abs, worst_rel = max(worst_abs, absolute), max(worst_rel, relative)
            elements += reference_array.size
            if reference_array.dtype.kind == "f":
                passed &= relative <= tolerance
            elif judge_integers:
                passed &= absolute == 0
    return Comparison(passed=passed, max_abs_error=worst_abs, max_rel_error=worst_rel, elements=elements)


def difference(got: Array, wanted: Array) -> tuple[float, float]:
    """Largest |got - wanted|, and that divided by max|wanted|. Infinite where only one of them is a number."""
    if got.shape != wanted.shape or wanted.size == 0:
        return (0.0, 0.0) if got.shape == wanted.shape else (np.inf, np.inf)
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        gaps = np.where(equal, 0.0, np.abs(a - b))
    absolute = float(np.inf if np.isnan(gaps).any() else gaps.max())
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max()) if finite.size else 0.0
    return absolute, absolute / scale if scale > 0 else (0.0 if absolute == 0 else np.inf)


@dataclass(frozen=True, kw_only=True)
class StepErrors:
    """Steps of a quantized model that miss what they must reach, as sentences; empty is good."""

    against_reference: tuple[str, ...]
    against_onnxruntime: tuple[str, ...]
    operators_compared: int

    @property
    def passed(self) -> bool:
        return not self.against_reference and not self.against_onnxruntime


def check_steps(
    compiled: Compiled, samples: Sequence[Sample], model: onnx.ModelProto | tvm.IRModule | None
) -> StepErrors:
    """Rules (a) and (b) for every step of a quantized model; without a model only (a). A module runs in TVM's VM."""
    compiled = with_ports_in_arena(compiled)
    kernels = [error for sample in samples for error in _against_reference(compiled, sample)]
    operators: list[str] = []
    compared = 0
    if model is not None:
        sources = [_source(tensor) for tensor in compiled.program.tensors.values()]
        is_module = isinstance(model, tvm.IRModule)
        values = module_values(model, samples) if is_module else onnx_outputs(model, samples, inner=sources)
        for sample, known in zip(samples, values, strict=True):
            found, count = _against_model(compiled, {**sample, **known}, "TVM" if is_module else "onnxruntime")
            operators += found
            compared += count
    return StepErrors(
        against_reference=tuple(dict.fromkeys(kernels)), against_onnxruntime=tuple(dict.fromkeys(operators)),
        operators_compared=compared,
    )  # fmt: skip


def _against_reference(compiled: Compiled, sample: Sample) -> list[str]:
    """(a): each step of the C run against its reference, given what the C run gave that step."""
    program, interface = compiled.program, compiled.interface
    values = {port.name: sample[port.source] for port in interface.inputs}
    values |= trace(compiled, sample)
    errors = []
    for step in program.steps:
        for name, wanted in reference.run_step(program, step, values).items():
            if name not in values:  # of a ring only the last rows are left
                continue
            absolute, relative = difference(values[name], wanted)
            exact = _is_exact(step)
            limit = 0.0 if exact else OPERATOR_TOLERANCE_LSB if wanted.dtype.kind in "iu" else BOARD_TOLERANCE
            if (relative if wanted.dtype.kind == "f" else absolute) > limit:
                errors.append(f"{step.name}: {name} differs from its kernel's reference by {absolute:g}")
    return errors


def _is_exact(step: Step) -> bool:
    return all(call.implementation.exact for call in calls(step) if isinstance(call, KernelCall))


def _against_model(compiled: Compiled, known: Mapping[str, Array], who: str) -> tuple[list[str], int]:
    """(b): each integer step's reference, given the values `who` computed, against its result."""
    program = compiled.program
    values = {}
    for tensor in program.tensors.values():
        stored = _as_stored(known.get(_source(tensor)), tensor)
        if stored is not None:
            values[tensor.name] = stored
    errors, compared = [], 0
    for call in (call for step in program.steps for call in calls(step)):
        if not isinstance(call, KernelCall) or not _is_exact(call):
            continue
        if any(name not in values for name in (*call.inputs, *call.outputs)):
            continue
        for name, result in reference.run_step(program, call, values).items():
            absolute, _ = difference(result, values[name])
            compared += 1
            if absolute > OPERATOR_TOLERANCE_LSB:
                errors.append(f"{call.name}: {program.tensors[name].source} is {absolute:g} LSB from {who}'s")
    return errors, compared


def _source(tensor: Tensor) -> str:
    """The model's own name of what a tensor holds, or holds columns of."""
    return tensor.strip.source if tensor.strip else tensor.source


def _as_stored(array: Array | None, tensor: Tensor) -> Array | None:
    """The model's array as the program stores it; None where the two are not the same tensor."""
    if array is None or str(array.dtype) != tensor.dtype:
        return None
    if tensor.layout and array.ndim == len(tensor.layout):
        array = array.transpose(tensor.layout)
    if tensor.strip and array.ndim == 4:
        array = array[:, :, tensor.strip.begin : tensor.strip.end]
    if array.size != tensor.num_elements:
        return None
    return np.ascontiguousarray(array).reshape(tensor.shape)
