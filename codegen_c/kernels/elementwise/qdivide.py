"""Kernel for the quotient of two quantized tensors, integers only, of one shape or with broadcasting.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...], as numpy broadcasts shapes. A divisor has 256 values, so
its reciprocals are a table of 1 KiB, in steps of the output for one step of the dividend. A result is one product,
rounded once, halves up, and clamped: within 0.52 steps of the real quotient. A divisor of zero has a reciprocal that
saturates every dividend but zero.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.elementwise.qbinary import broadcast_body, broadcast_rows, padded, repeats_to_output
from codegen_c.kernels.shared.requantize import (
    INCLUDES,
    quantization,
    quantized_bytes,
    rounds_once,
    scale_of,
    signed,
)
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import Array, QDivide

# Modelled instructions of an element including the innermost loop, in the disassembly for a Cortex-M4.
ELEMENT_INSTRUCTIONS = 15
BEYOND = 512
"""Steps of the output that, added to any result in range, leave the range."""
SHIFT = 13
"""Fractional bits of a reciprocal: those that leave the largest product, 255 times BEYOND, in 31 bits."""


def reciprocals(operator: QDivide) -> Array:
    """Return int32[256]: the reciprocal of each divisor, from its least integer on, with SHIFT fractional bits."""
    dividend, divisor = operator.inputs
    limits, zero_point = np.iinfo(divisor.dtype), quantization(divisor).zero_point
    steps = np.arange(limits.min, limits.max + 1, dtype=np.float64) - zero_point
    factor = scale_of(dividend) / (scale_of(divisor) * scale_of(operator.output))
    exact = np.divide(factor, steps, out=np.full(steps.shape, float(BEYOND)), where=steps != 0)
    return np.rint(np.clip(exact, -BEYOND, BEYOND) * 2.0**SHIFT).astype(np.int32)


def reference(operator: QDivide, inputs: list[Array]) -> list[Array]:
    """The operator in numpy, bit for bit."""
    a, b = (x.astype(np.int64) for x in inputs)
    dividend, divisor = operator.inputs
    factor = reciprocals(operator).astype(np.int64)[b - np.iinfo(divisor.dtype).min]
    value = ((a - quantization(dividend).zero_point) * factor + start(operator)) >> SHIFT
    return [np.clip(value, operator.low, operator.high).astype(operator.output.dtype)]


def start(operator: QDivide) -> int:
    """Return what is added to a product: half a step, and the zero point of the output."""
    return (quantization(operator.output).zero_point << SHIFT) + (1 << (SHIFT - 1))


def implement(operator: QDivide, target: Target, stored: StoredRows) -> Implementation:
    output, (dividend, divisor) = operator.output, operator.inputs
    shapes = [*(padded(tensor, output.shape) for tensor in operator.inputs), output.shape]
    types = [C_TYPES[tensor.dtype] for tensor in (*operator.inputs, output)]
    rows, zero_point = broadcast_rows(operator), quantization(dividend).zero_point
    least = int(np.iinfo(divisor.dtype).min)

    def element(first: str, second: str, result: str) -> str:
        quotient = f"(({first}{signed(-zero_point)}) * reciprocal[{second}{signed(-least)}]) + {start(operator)}"
        return f"{result} = ({types[2]})tvm_ext_clamp(({quotient}) >> {SHIFT}, {operator.low}, {operator.high});"

    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input0", ctype=types[0], role="input"),
                Parameter(name="input1", ctype=types[1], role="input"),
                Parameter(name="output", ctype=types[2], role="output"),
                Parameter(name="reciprocal", ctype="int32_t", role="constant"),
                *(ROW_PARAMETERS if rows else ()),
            ),
            body=broadcast_body(shapes, types, stored, element, by_rows=rows is not None),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("reciprocal", reciprocals(operator)),),
        macs=output.num_elements,
        instructions=output.num_elements * ELEMENT_INSTRUCTIONS,
        accumulation="exact",
        spatial=rows,
        in_place=tuple(index for index, shape in enumerate(shapes[:2]) if shape == output.shape),
        exact=True,
    )


KERNEL = Kernel(
    name="qdivide_i8",
    title="Quotient of two quantized tensors, by a table of reciprocals",
    operator=QDivide,
    implement=implement,
    constraints=(rounds_once, quantized_bytes, repeats_to_output),
)
