"""Softmax over the last axis of a QDQ tensor, integers only: a table of exponentials, one division per row.

int8 or uint8[..., C] -> int8 or uint8[..., C], C up to 65535. exp((x - max) * scale) comes from a table with 30
bits after the point; their sum is exact. One rounded division per row gives the factor from an exponential to
output steps, and each element is rounded "onnx" (halves to even). Within 1 step of round(softmax / scale).
"""

from __future__ import annotations

import math

import numpy as np

from codegen_c.c_text.text import C_TYPES, block
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.requantize import (
    INCLUDES,
    MAX_SHIFT,
    quantization,
    quantized_bytes,
    results_fit,
    round_shift,
    rounds_once,
    scale_of,
)
from codegen_c.operators.kinds import QSoftmax

EXPONENTIAL_BITS = 30
# Divided by a sum of at least 2^30, a reciprocal of 60 bits leaves a factor of at most 2^30.
RECIPROCAL_BITS = 60
MAX_LENGTH = 65535


def reference(operator: QSoftmax, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    output, x = operator.output, inputs[0].astype(np.int64)
    exponential = exponentials(operator).astype(np.int64)[x.max(axis=-1, keepdims=True) - x]
    total = exponential.sum(axis=-1, keepdims=True)
    reciprocal, shift = _reciprocal(operator)
    factor = (reciprocal + total // 2) // total
    value = round_shift(exponential * factor, shift) + quantization(output).zero_point
    limits = np.iinfo(output.dtype)
    return [np.clip(value, limits.min, limits.max).astype(output.dtype)]


def rows_are_short(operator: QSoftmax, target: Target) -> bool:
    """the last axis must have 1 to 65535 elements"""
    return 1 <= operator.inputs[0].shape[-1] <= MAX_LENGTH


def results_in_range(operator: QSoftmax, target: Target) -> bool:
    """a probability of one must stay below 2^30 steps of the output"""
    return results_fit(np.array(0), np.array(1), np.array(1 / scale_of(operator.output)))


def exponentials(operator: QSoftmax) -> np.ndarray:
    """exp(-d * input scale) for d = 0 to 255, times 2^30: int32[256]."""
    scale = scale_of(operator.inputs[0])
    return np.array([round(math.exp(-d * scale) * (1 << EXPONENTIAL_BITS)) for d in range(256)], dtype=np.int32)


def _reciprocal(operator: QSoftmax) -> tuple[int, int]:
    """(reciprocal, shift) with reciprocal / 2^shift nearest to 1 / output scale, the reciprocal at most 2^60.

    0 where a probability of one is less than half a step.
    """
    steps = 1 / scale_of(operator.output)
    shift = RECIPROCAL_BITS - math.frexp(steps)[1]
    return (round(math.ldexp(steps, shift)), shift) if shift <= MAX_SHIFT else (0, 1)


def implement(operator: QSoftmax, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    rows = output.num_elements // output.shape[-1]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                Parameter(name="exponential", ctype="int32_t", role="constant"),
            ),
            body=_body(operator, rows),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("exponential", exponentials(operator)),),
        instructions=output.num_elements * 34 + rows * 400,
        accumulation="exact",
        in_place=(0,),
        exact=True,
    )


def _body(operator: QSoftmax, rows: int) -> str:
    source, output = operator.inputs[0], operator.output
    length, limits, zero_point = source.shape[-1], np.iinfo(output.dtype), quantization(output).zero_point
    reciprocal, shift = _reciprocal(operator)
    place = f"m * {length}"
    each = f"for (int32_t c = 0; c < {length}; ++c) {{"
    lines = [
        f"const {C_TYPES[source.dtype]} *x = {f'&input[{place}]' if rows > 1 else 'input'};",
        f"{C_TYPES[output.dtype]} *y = {f'&output[{place}]' if rows > 1 else 'output'};",
        "int32_t max = x[0];",
        each,
        block("max = x[c] > max ? x[c] : max;"),
        "}",
        "int64_t sum = 0;",
        each,
        block("sum += exponential[max - x[c]];"),
        "}",
        f"const int64_t steps = INT64_C({reciprocal}); /* of the output in a probability of 1, times a power of two */",
        "const int32_t factor = (int32_t)((steps + sum / 2) / sum);",
        f"const int32_t shift = {shift};",
        f"const int32_t zero_point = {zero_point};",
        each,
        block(
            [
                "const int32_t value = tvm_ext_requantize(exponential[max - x[c]], factor, shift) + zero_point;",
                f"y[c] = ({C_TYPES[output.dtype]})tvm_ext_clamp(value, {limits.min}, {limits.max});",
            ]
        ),
        "}",
    ]
    if rows > 1:
        lines = [f"for (int32_t m = 0; m < {rows}; ++m) {{", block(lines), "}"]
    return "\n".join(lines)


KERNEL = Kernel(
    name="qsoftmax_i8",
    operator=QSoftmax,
    implement=implement,
    constraints=(rounds_once, quantized_bytes, rows_are_short, results_in_range),
)
