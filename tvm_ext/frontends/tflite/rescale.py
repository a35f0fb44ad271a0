"""QUANTIZE between int32 and other integers, with the same bits as TensorFlow Lite Micro."""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx

from codegen_c.kernels.shared.requantize_tflite import fixed_point
from relay_passes.dataflow import static_shape
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.read_file import Scales

# Limit of the output's steps that an input can reach, so that the value before the second rounding stays in int32.
_MOST_STEPS = 1 << 30
_TYPES = ("int8", "int16", "int32")


def rescaled_integers(
    builder: relax.BlockBuilder, value: relax.Expr, given: Scales, wanted: Scales, dtype: str
) -> relax.Expr:
    """Rescale integers `value` from the scale `given` to the scale `wanted` and a type.

    Raises Refused for several scales, types without such a kernel, and scales too far apart.
    """
    source = str(value.ty.dtype)
    if source not in _TYPES or dtype not in _TYPES:
        raise Refused(f"quantizing {source} to {dtype} is not supported")
    if given.scale.size != 1 or wanted.scale.size != 1:
        raise Refused("it rescales integers that have a scale for each channel")
    factor = float(given.scale[0]) / float(wanted.scale[0])
    most = 1 if source == "int32" else _MOST_STEPS >> np.iinfo(source).bits
    if factor >= most:
        raise Refused(f"its scales are a factor of {factor:g} apart; from {source} it stays below {most}")
    offset, zero_point = int(given.zero_point[0]), int(wanted.zero_point[0])

    def compute(source: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            steps = tirx.Cast("int64", source(*at)) - tirx.const(offset, "int64")
            return clamped(rescaled(steps, factor) + tirx.const(zero_point, "int64"), dtype)

        return te.compute(static_shape(value), element, "rescaled")

    return builder.normalize(builder.call_te(compute, value, primfunc_name_hint="rescale"))


def rescaled(steps: tirx.Expr, factor: float) -> tirx.Expr:
    """Multiply int64 steps by a factor with two roundings. |steps| times a factor above 1 must stay in int32."""
    mantissa, shift = fixed_point(factor)
    left, right = max(31 - shift, 0), max(shift - 31, 0)
    high = (steps * _wide(1 << left) * _wide(mantissa) + _wide(1 << 30)) >> _wide(31)
    if right == 0:
        return high
    mask = (1 << right) - 1
    threshold = _wide(mask >> 1) + tirx.Cast("int64", high < _wide(0))
    return (high >> _wide(right)) + tirx.Cast("int64", (high & _wide(mask)) > threshold)


def rescaled_wrapped(steps: tirx.Expr, factor: float) -> tirx.Expr:
    """Rescale int64 steps as `rescaled` does, wrapped to int32 first.

    A factor above 1 shifts them to the left, and they wrap again.
    """
    left = max(31 - fixed_point(factor)[1], 0)
    return rescaled(_wrapped(_wrapped(steps) * _wide(1 << left)), factor / (1 << left))


def _wrapped(steps: tirx.Expr) -> tirx.Expr:
    """Return the lower 32 bits as an int32 value.

    A cast to int32 would be simpler, but TVM assumes that a cast does not change the range of its operand.
    """
    return ((steps + _wide(1 << 31)) & _wide((1 << 32) - 1)) - _wide(1 << 31)


def clamped(steps: tirx.Expr, dtype: str) -> tirx.Expr:
    """Return int64 steps in a narrower type, saturated to its range."""
    limits = np.iinfo(dtype)
    return tirx.Cast(dtype, tirx.max(tirx.min(steps, _wide(int(limits.max))), _wide(int(limits.min))))


def check_sums(most: np.ndarray, factor: float) -> None:
    """Raise Refused if accumulators, or their rescaled values, exceed int32. most: largest magnitude of each."""
    largest = int(most.max(initial=0)) * max(1.0, 2 * factor)
    if largest > np.iinfo(np.int32).max:
        raise Refused(f"its sums reach {largest:.3g}, more than int32 holds")


def _wide(number: int) -> tirx.Expr:
    return tirx.const(number, "int64")
