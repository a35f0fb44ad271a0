"""QUANTIZE of int8 to int32 on integers, bit by bit as TensorFlow Lite Micro rounds."""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx

from codegen_c.kernels.shared.requantize_tflite import fixed_point
from relay_passes.dataflow import static_shape
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.check_scales import Scales

# Steps of the output that an int8 input can reach: what comes before the second rounding stays in int32.
_MOST_STEPS = 1 << 30


def rescaled_to_int32(builder: relax.BlockBuilder, value: relax.Expr, given: Scales, wanted: Scales) -> relax.Expr:
    """int32 steps of `wanted` for the int8 steps `value` of `given`, both with one scale. Raises Refused."""
    if given.scale.size != 1 or wanted.scale.size != 1:
        raise Refused("it rescales integers that have a scale for each channel")
    factor = float(given.scale[0]) / float(wanted.scale[0])
    if factor * 256 >= _MOST_STEPS:
        raise Refused(f"its scales are a factor of {factor:g} apart, more than int32 holds")
    mantissa, shift = fixed_point(factor)
    left, right = max(31 - shift, 0), max(shift - 31, 0)
    offset, zero_point = int(given.zero_point[0]), int(wanted.zero_point[0])
    limits = np.iinfo(np.int32)

    def compute(source: te.Tensor) -> te.Tensor:
        def wide(number: int) -> tirx.Expr:
            return tirx.const(number, "int64")

        def element(*at: tirx.Var) -> tirx.Expr:
            steps = (tirx.Cast("int64", source(*at)) - wide(offset)) * wide(1 << left)
            high = (steps * wide(mantissa) + wide(1 << 30)) >> wide(31)
            mask = (1 << right) - 1
            threshold = wide(mask >> 1) + tirx.Cast("int64", high < wide(0))
            rounded = (high >> wide(right)) + tirx.Cast("int64", (high & wide(mask)) > threshold)
            moved = rounded + wide(zero_point)
            clamped = tirx.max(tirx.min(moved, wide(int(limits.max))), wide(int(limits.min)))
            return tirx.Cast("int32", clamped)

        return te.compute(static_shape(value), element, "rescaled")

    return builder.normalize(builder.call_te(compute, value, primfunc_name_hint="rescale"))
