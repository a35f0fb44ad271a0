"""Comparison of outputs of the C code with the results of a reference runtime
(`tvm_ext.verification.reference_runtimes`).

Tolerances are relative to the largest magnitude of an output in all samples: 1e-4 for float models. Quantized models
are judged step by step (`tvm_ext.verification.judgement`). A board must agree with the host: integers exactly, floats
within 1e-5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from codegen_c.program.program import Program

Array = np.ndarray
Sample = Mapping[str, Array]

FLOAT_TOLERANCE = 1e-4
BOARD_TOLERANCE = 1e-5
# Floats of 16 bits are rounded after each operator, so that a tiny difference before may round to another neighbor.
_NARROW_TOLERANCES = {"float16": 4 * 2.0**-11, "bfloat16": 4 * 2.0**-8}


# About two of the 255 steps of a range: a difference of one ulp before the rounding can move a value over a half.
_STEP_TOLERANCE = 2.0**-7


def tolerance_of(program: Program, otherwise: float = FLOAT_TOLERANCE) -> float:
    """Return the tolerance for outputs of a program, relative to their largest magnitude.

    It is at least `otherwise`; with 16-bit floats at least four of their unit roundoffs; and if layers quantize, with
    ranges from run time, the results of float steps, at least two steps of such a range.
    """
    dtypes = {tensor.dtype for tensor in program.tensors.values()}
    narrow = [limit for dtype, limit in _NARROW_TOLERANCES.items() if dtype in dtypes]
    return max([otherwise, *narrow, *([_STEP_TOLERANCE] if _rounds_floats(program) else [])])


def float_tolerance(dtype: str) -> float:
    """Return the relative tolerance for floats of a type: `FLOAT_TOLERANCE` or four unit roundoffs of 16-bit floats."""
    return max(FLOAT_TOLERANCE, _NARROW_TOLERANCES.get(dtype, 0.0))


def _rounds_floats(program: Program) -> bool:
    """Return True if a step rounds its input after a step whose floats differ by an ulp between processors."""
    has_floats = False
    for call in program.kernel_calls():
        implementation = call.implementation
        if implementation.rounds_input and has_floats:
            return True
        has_floats |= implementation.computes_floats and not implementation.rounds_input and not implementation.copies
    return False


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Differences over all elements of all outputs of all samples.

    max_rel_error: relative to the largest magnitude of the output.
    elements, differing: numbers of all elements and of those that are not equal.
    """

    passed: bool
    max_abs_error: float
    max_rel_error: float
    elements: int
    differing: int

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the report. Infinite errors, as relative to zeros, are None: JSON has no infinity."""
        return {
            key: None if isinstance(value, float) and not np.isfinite(value) else value
            for key, value in asdict(self).items()
        }


def compare(
    outputs: Sequence[Sample], expected: Sequence[Sample], *, tolerance: float, judge_integers: bool = True
) -> Comparison:
    """Compare outputs with expected outputs.

    Floats pass within `tolerance` times the output's largest expected magnitude in all samples. Integers pass if they
    are equal, or always without `judge_integers`. The scale is common to all samples because a runtime may compute a
    sigmoid of 1e-4 with the absolute error of a sigmoid near 1, as onnxruntime does.
    """
    passed, worst_abs, worst_rel, elements, differing = True, 0.0, 0.0, 0, 0
    scales = {name: max(largest(sample[name]) for sample in expected) for name in (expected[0] if expected else ())}
    for got, wanted in zip(outputs, expected, strict=True):
        for name, reference_array in wanted.items():
            absolute, relative = difference(got[name], reference_array, scales[name])
            worst_abs, worst_rel = max(worst_abs, absolute), max(worst_rel, relative)
            elements += reference_array.size
            differing += num_differing(got[name], reference_array)
            if is_float(reference_array):
                passed &= relative <= tolerance
            elif judge_integers:
                passed &= absolute == 0
    return Comparison(
        passed=passed, max_abs_error=worst_abs, max_rel_error=worst_rel, elements=elements, differing=differing
    )


def is_float(array: Array) -> bool:
    """Return True for an array of floats of any width."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def difference(got: Array, wanted: Array, scale: float | None = None) -> tuple[float, float]:
    """Return the largest |got - wanted|, and the same divided by the scale, which is max|wanted| by default.

    Both are infinite if the shapes differ, or if only one of two elements is a number.
    """
    if got.shape != wanted.shape or wanted.size == 0:
        return (0.0, 0.0) if got.shape == wanted.shape else (np.inf, np.inf)
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.where(equal, 0.0, np.abs(a - b))
    absolute = float(np.inf if np.isnan(gaps).any() else gaps.max())
    scale = largest(wanted) if scale is None else scale
    return absolute, absolute / scale if scale > 0 else (0.0 if absolute == 0 else np.inf)


def largest(wanted: Array) -> float:
    """Return the largest finite magnitude of an array, 0 without any."""
    magnitudes = np.abs(wanted.astype(np.float64))
    return float(magnitudes.max(initial=0.0, where=np.isfinite(magnitudes)))


def num_differing(got: Array, wanted: Array) -> int:
    """Return the number of elements that are not equal, which is all of them if the shapes differ."""
    if got.shape != wanted.shape:
        return wanted.size
    equal = got == wanted
    if is_float(wanted) and is_float(got):
        equal |= np.isnan(got) & np.isnan(wanted)
    return int(wanted.size - np.count_nonzero(equal))
