"""Kernel for PReLU of a quantized tensor, integers only: a factor for elements above zero, one of each channel below.

int8 or uint8[...] -> int8 or uint8[...]. Factors have 16 bits, so that products take an instruction each where pairs
of 16 bits are multiplied; a product has 12 to 16 fractional bits and is rounded once, halves up: within 0.54 steps of
the real result. Factors are stored without their repetition along the first axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp
from typing import Self

import numpy as np

from codegen_c.c_text.text import C_TYPES, loop, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.elementwise.qaffine import has_elements, period_of
from codegen_c.kernels.shared.requantize import (
    INCLUDES,
    quantization,
    quantized_bytes,
    rounds_once,
    scale_of,
    signed,
)
from codegen_c.operators.kinds import Array, QPrelu

FACTOR_BITS = 15
LEAST_SHIFT, MOST_SHIFT = 12, 16
ELEMENT_INSTRUCTIONS = 13


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedPrelu:
    """Factors times 2^shift: of elements above zero, and int16[period] below it. start: rounding and zero point."""

    above: int
    below: Array
    shift: int
    start: int

    @classmethod
    def of(cls, operator: QPrelu) -> Self:
        ratio, shape = scale_of(operator.inputs[0]) / scale_of(operator.output), operator.output.shape
        period = period_of(operator.slopes, shape)
        slopes = np.broadcast_to(operator.slopes, shape).reshape(-1)[:period].astype(np.float64) * ratio
        largest = max(ratio, float(np.abs(slopes).max(initial=0.0)))
        shift = min(MOST_SHIFT, FACTOR_BITS - frexp(largest)[1])
        most = (1 << FACTOR_BITS) - 1
        above, below = (np.clip(np.rint(part * 2.0**shift), -most, most) for part in (ratio, slopes))
        start = (quantization(operator.output).zero_point << max(shift, 0)) + (1 << max(shift - 1, 0))
        return cls(above=int(above), below=below.astype(np.int16), shift=shift, start=start)


def reference(operator: QPrelu, inputs: list[Array]) -> list[Array]:
    """The operator in numpy, bit for bit."""
    fixed, output = FixedPrelu.of(operator), operator.output
    x = inputs[0].astype(np.int64).reshape(-1, fixed.below.size) - quantization(operator.inputs[0]).zero_point
    value = (x * np.where(x < 0, fixed.below.astype(np.int64), fixed.above) + fixed.start) >> fixed.shift
    return [np.clip(value, operator.low, operator.high).astype(output.dtype).reshape(output.shape)]


def slopes_are_small(operator: QPrelu, target: Target) -> bool:
    """one step of the input, times any slope, must be less than 8 steps of the output"""
    return FixedPrelu.of(operator).shift >= LEAST_SHIFT


def implement(operator: QPrelu, target: Target, stored: StoredRows) -> Implementation:
    fixed, source, output = FixedPrelu.of(operator), operator.inputs[0], operator.output
    period, zero_point = fixed.below.size, quantization(source).zero_point
    repeats = output.num_elements // period
    place = f"{times('n', period)} + i" if repeats > 1 else "i"
    lines = [
        f"const int32_t x = input[{place}]{signed(-zero_point)};",
        f"const int32_t value = ((x * (x < 0 ? slopes[i] : {fixed.above})) + {fixed.start}) >> {fixed.shift};",
        f"output[{place}] = ({C_TYPES[output.dtype]})tvm_ext_clamp(value, {operator.low}, {operator.high});",
    ]
    walk = loop("i", period, lines)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                Parameter(name="slopes", ctype="int16_t", role="constant"),
            ),
            body="\n".join(loop("n", repeats, walk) if repeats > 1 else walk),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("slopes", fixed.below),),
        macs=output.num_elements,
        instructions=output.num_elements * ELEMENT_INSTRUCTIONS,
        in_place=(0,),
        exact=True,
    )


KERNEL = Kernel(
    name="qprelu_i8",
    title="PReLU of a quantized tensor with a slope for each channel",
    operator=QPrelu,
    implement=implement,
    constraints=(rounds_once, quantized_bytes, has_elements, slopes_are_small),
)
