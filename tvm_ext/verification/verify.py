"""Compares what the C computes with what the model means, as a reference runtime says it
(`tvm_ext.verification.reference_runtimes`).

Float models: every output within 1e-4 of its largest magnitude in the reference, over all samples. Quantized models:
`verify_steps`. A board must agree with the host: bytes for integers, 1e-5 for floats.
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
# Floats of 16 bits are rounded behind each operator: of two that are computed alike, some fall to the other side.
_NARROW_TOLERANCES = {"float16": 4 * 2.0**-11, "bfloat16": 4 * 2.0**-8}


# Two of the 255 steps of a range: what an ulp before them brings to the other side of a half.
_STEP_TOLERANCE = 2.0**-7


def tolerance_of(program: Program, otherwise: float = FLOAT_TOLERANCE) -> float:
    """Tolerance for outputs of a program: `otherwise`, or that of the narrowest floats in it, in four half steps.

    Where layers round, by ranges found at run time, what float steps compute before them: steps of such a range.
    """
    dtypes = {tensor.dtype for tensor in program.tensors.values()}
    narrow = [limit for dtype, limit in _NARROW_TOLERANCES.items() if dtype in dtypes]
    return max([otherwise, *narrow, *([_STEP_TOLERANCE] if _rounds_floats(program) else [])])


def float_tolerance(dtype: str) -> float:
    """Tolerance for floats of a type, relative to the largest magnitude: `FLOAT_TOLERANCE`, or four half steps."""
    return max(FLOAT_TOLERANCE, _NARROW_TOLERANCES.get(dtype, 0.0))


def _rounds_floats(program: Program) -> bool:
    """True where a step rounds its input behind one whose floats processors compute with an ulp's difference."""
    has_floats = False
    for call in program.kernel_calls():
        made = call.implementation
        if made.rounds_input and has_floats:
            return True
        has_floats |= made.computes_floats and not made.rounds_input and not made.copies
    return False


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Differences over all elements of all outputs of all samples; relative to each output's largest magnitude.

    differing: elements that are not equal.
    """

    passed: bool
    max_abs_error: float
    max_rel_error: float
    elements: int
    differing: int

    def to_json(self) -> dict[str, Any]:
        """Errors without a number, such as those relative to zeros, are None: JSON has no infinity."""
        return {
            key: None if isinstance(value, float) and not np.isfinite(value) else value
            for key, value in asdict(self).items()
        }


def compare(
    outputs: Sequence[Sample], expected: Sequence[Sample], *, tolerance: float, judge_integers: bool = True
) -> Comparison:
    """Floats within `tolerance` of each output's max|expected| in all samples, integers equal (where they are judged).

    A probability that is 1e-4 in one sample and 1e-2 in others is known no better than these: a sigmoid has the
    resolution of 1, in onnxruntime too.
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
    """True for floats of any width."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def difference(got: Array, wanted: Array, scale: float | None = None) -> tuple[float, float]:
    """Largest |got - wanted|, and that divided by the scale, by default max|wanted|.

    Infinite where only one of them is a number.
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
    """Largest finite magnitude."""
    magnitudes = np.abs(wanted.astype(np.float64))
    return float(magnitudes.max(initial=0.0, where=np.isfinite(magnitudes)))


def num_differing(got: Array, wanted: Array) -> int:
    """Elements that are not equal; all of them where the shapes are not."""
    if got.shape != wanted.shape:
        return wanted.size
    equal = got == wanted
    if is_float(wanted) and is_float(got):
        equal |= np.isnan(got) & np.isnan(wanted)
    return int(wanted.size - np.count_nonzero(equal))
