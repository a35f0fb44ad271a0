"""Softmax over the last axis of a QDQ tensor, integers only: a table of exponentials, one division per row.

int8 or uint8[..., C] -> int8 or uint8[..., C], C up to 65535. exp((x - max) * scale) comes from a table with 30
bits after the point; their sum is exact. One rounded division per row gives the factor from an exponential to
output steps, and each element is rounded "onnx" (halves to even). Within 1 step of round(softmax / scale).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, structure
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.layer import image
from codegen_c.kernels.shared.requantize import (
    MAX_SHIFT,
    quantization,
    quantized_bytes,
    results_fit,
    round_shift,
    rounds_once,
    scale_of,
)
from codegen_c.kernels.shared.vectors_in_turn import in_turn
from codegen_c.operators.kinds import QSoftmax

EXPONENTIAL_BITS = 30
# Divided by a sum of at least 2^30, a reciprocal of 60 bits leaves a factor of at most 2^30.
RECIPROCAL_BITS = 60
MAX_LENGTH = 65535
INCLUDES = ("tvm_ext_qsoftmax.h", "tvm_ext_layer.h", "tvm_ext_requantize.h")
ELEMENT_INSTRUCTIONS, VECTOR_INSTRUCTIONS = 33, 60


def reference(operator: QSoftmax, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    output, x = operator.output, inputs[0].astype(np.int64)
    exponential = exponentials(operator).astype(np.int64)[x.max(axis=-1, keepdims=True) - x]
    total = exponential.sum(axis=-1, keepdims=True)
    steps, shift = reciprocal(operator)
    factor = (steps + total // 2) // total
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


def reciprocal(operator: QSoftmax) -> tuple[int, int]:
    """(reciprocal, shift) with reciprocal / 2^shift nearest to 1 / output scale, the reciprocal at most 2^60.

    0 where a probability of one is less than half a step.
    """
    steps = 1 / scale_of(operator.output)
    shift = RECIPROCAL_BITS - math.frexp(steps)[1]
    return (round(math.ldexp(steps, shift)), shift) if shift <= MAX_SHIFT else (0, 1)


def implement(operator: QSoftmax, target: Target, stored: StoredRows) -> Implementation:
    def vectors(count: int) -> Implementation:
        return _of_vectors(operator, count)

    whole = vectors(operator.output.num_elements // operator.output.shape[-1])
    return replace(whole, in_rows=in_turn(operator, vectors))


def _of_vectors(operator: QSoftmax, rows: int) -> Implementation:
    source, output = operator.inputs[0], operator.output
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
        instructions=rows * (output.shape[-1] * ELEMENT_INSTRUCTIONS + VECTOR_INSTRUCTIONS),
        accumulation="exact",
        in_place=(0,),
        exact=True,
    )


def layer_of(operator: QSoftmax, rows: int) -> list[str]:
    """Lines of the layer's shapes and constants as tvm_ext_qsoftmax.h takes them."""
    source, output = operator.inputs[0], operator.output
    steps, shift = reciprocal(operator)
    limits, length = np.iinfo(output.dtype), source.shape[-1]
    members: dict[str, Value] = {
        "input": image(replace(source, shape=(1, rows, 1, length))), "steps": f"INT64_C({steps})", "shift": shift,
        "zero_point": quantization(output).zero_point, "low": int(limits.min), "high": int(limits.max),
    }  # fmt: skip
    return structure("tvm_ext_qsoftmax_layer", "layer", members)


def _body(operator: QSoftmax, rows: int) -> str:
    """The layer, and the loops of tvm_ext_qsoftmax.h."""
    return "\n".join([*layer_of(operator, rows), "tvm_ext_qsoftmax(&layer, input, output, exponential);"])


KERNEL = Kernel(
    name="qsoftmax_i8",
    operator=QSoftmax,
    implement=implement,
    constraints=(rounds_once, quantized_bytes, rows_are_short, results_in_range),
)
