"""Kernel for a quantized tensor times constants plus constants, in 32 bits; rounded once, halves up.

int8 or uint8[...] -> int8 or uint8[...]. (x - zero point) * factor + addend, both with as many fractional bits as leave
the sum 31 bits; an addend that saturates any element is reduced to one that just does. Equal factors are literals in
the code, and so are equal addends; others are constants, stored without their repetition along the first axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, log2, prod
from typing import Self

import numpy as np

from codegen_c.c_text.text import C_TYPES, loop, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.requantize import (
    INCLUDES,
    largest_distance,
    quantization,
    quantized_bytes,
    rounds_once,
    scale_of,
    signed,
)
from codegen_c.operators.kinds import Array, Operator, QAffine

LEAST_SHIFT, MOST_SHIFT = 8, 30
Reference = Callable[[list[Array]], list[Array]]
BEYOND = 512.0
"""Steps of the output that, added to any result in range, leave the range."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedAffine:
    """Factors and addends times 2^shift, int32[] or int32[period]; addends include rounding and the zero point."""

    factors: Array
    addends: Array
    shift: int
    period: int

    @classmethod
    def of(cls, operator: QAffine) -> Self:
        source, output = operator.inputs[0], operator.output
        factors = operator.factors * (scale_of(source) / scale_of(output))
        largest = largest_distance(source) * float(np.abs(factors).max(initial=0))
        addends = np.clip(operator.addends / scale_of(output), -BEYOND - largest, BEYOND + largest)
        bound = largest + float(np.abs(addends).max(initial=0)) + BEYOND
        shift = min(MOST_SHIFT, floor(30 - log2(bound)))
        zero_point = quantization(output).zero_point
        fixed = [np.rint(part * 2.0**shift).astype(np.int64) for part in (factors, addends)]
        fixed[1] += (zero_point << max(shift, 0)) + (1 << max(shift - 1, 0))
        period = max(period_of(part, output.shape) for part in fixed)
        return cls(factors=_kept(fixed[0], output.shape, period), addends=_kept(fixed[1], output.shape, period),
                   shift=shift, period=period)  # fmt: skip


def period_of(part: Array, shape: tuple[int, ...]) -> int:
    """Return the number of elements after which an array repeats when it is broadcast to a shape."""
    wide = (1,) * (len(shape) - part.ndim) + part.shape
    first = next((axis for axis, extent in enumerate(wide) if extent > 1), len(shape))
    return prod(shape[first:])


def _kept(part: Array, shape: tuple[int, ...], period: int) -> Array:
    """Return one number for an array of one element, else the first `period` elements of the broadcast array."""
    flat = part.reshape(-1) if part.size == 1 else np.broadcast_to(part, shape).reshape(-1)[:period]
    return flat.astype(np.int32)


def reference(operator: QAffine, inputs: list[Array]) -> list[Array]:
    """The operator in numpy, bit for bit."""
    fixed, (source,), output = FixedAffine.of(operator), operator.inputs, operator.output
    x = inputs[0].astype(np.int64).reshape(-1, fixed.period) - quantization(source).zero_point
    value = (x * fixed.factors + fixed.addends) >> fixed.shift
    return [np.clip(value, operator.low, operator.high).astype(output.dtype).reshape(output.shape)]


def leaves_bits(operator: QAffine, target: Target) -> bool:
    """one step of the input, and what is added, must be less than 2^13 steps of the output"""
    return FixedAffine.of(operator).shift >= LEAST_SHIFT


def has_elements(operator: QAffine, target: Target) -> bool:
    """the tensor must have elements"""
    return operator.output.num_elements > 0


def implement(operator: QAffine, target: Target, stored: StoredRows) -> Implementation:
    fixed = FixedAffine.of(operator)
    clamps = operator.low, operator.high
    return of_fixed(KERNEL.name, operator, fixed, *clamps, lambda inputs: reference(operator, inputs))


def of_fixed(
    kernel: str, operator: Operator, fixed: FixedAffine, low: int, high: int, reference: Reference
) -> Implementation:
    """Return the kernel of factors and addends in fixed point, with results from low to high."""
    source, output = operator.inputs[0], operator.output
    constants = tuple((name, array) for name, array in _arrays(fixed).items() if array.size > 1)
    return Implementation(
        kernel=kernel,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *(Parameter(name=name, ctype="int32_t", role="constant") for name, _ in constants),
            ),
            body=_body(operator, fixed, low, high),
            includes=INCLUDES,
        ),
        reference=reference,
        constants=constants,
        macs=output.num_elements if fixed.factors.size > 1 else 0,
        instructions=output.num_elements * 11,
        in_place=(0,),
        exact=True,
    )


def _arrays(fixed: FixedAffine) -> dict[str, Array]:
    return {"factors": fixed.factors, "addends": fixed.addends}


def _body(operator: Operator, fixed: FixedAffine, low: int, high: int) -> str:
    zero_point, repeats = quantization(operator.inputs[0]).zero_point, operator.output.num_elements // fixed.period
    factor, addend = (f"{name}[i]" if a.size > 1 else str(int(a[0])) for name, a in _arrays(fixed).items())
    first = f"{times('n', fixed.period)} + i" if repeats > 1 else "i"
    lines = [
        f"const int32_t x = input[{first}]{signed(-zero_point)};",
        f"const int32_t value = ((x * {factor}) + {addend}) >> {fixed.shift};",
        f"output[{first}] = ({C_TYPES[operator.output.dtype]})tvm_ext_clamp(value, {low}, {high});",
    ]
    period = loop("i", fixed.period, lines)
    return "\n".join(loop("n", repeats, period) if repeats > 1 else period)


KERNEL = Kernel(
    name="qaffine_i8",
    title="Quantized tensor times constants plus constants",
    operator=QAffine,
    implement=implement,
    constraints=(rounds_once, quantized_bytes, has_elements, leaves_bits),
)
