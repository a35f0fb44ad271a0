"""Kernel for quantized max and average pooling with HVX: 128 channels of one output pixel at a time.

int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]; sums of averages in 16 bits. Windows of averages lie in the
image. Averages are rounded as a factor says, or are quotients of integers.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.pooling.qpool2d import accumulating, average, reference
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.product_kernel import activations
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import QPool2d
from codegen_c.targets.hexagon.kernels.products import (
    FACTORS,
    HEADERS,
    VECTOR_BYTES,
    WORDS,
    WordRescale,
)

LAYER = "tvm_ext_hvx_pool2d_layer"
MOST_TAPS = 255
QUOTIENT_BITS = 31
AVERAGE_INSTRUCTIONS, MAXIMUM_INSTRUCTIONS, ROW_INSTRUCTIONS = 50, 10, 4
"""Modelled packets of an average and of a maximum of 128 channels, and of a row of the window of an average."""


def lies_in_image(operator: QPool2d, target: Target) -> bool:
    """an average must have no padding"""
    return operator.method == "max" or not any(operator.window.padding)


def few_taps(operator: QPool2d, target: Target) -> bool:
    """the window of an average must have from 2 to 255 taps, because they are summed in 16 bits"""
    return operator.method == "max" or 2 <= _num_taps(operator) <= MOST_TAPS


def sums_leave_room(operator: QPool2d, target: Target) -> bool:
    """if an average has a factor of one quarter or more, its sums must be small enough to be scaled up"""
    finish = _rescale(operator)
    return finish is None or finish.fits(*_bounds(operator))


def _num_taps(operator: QPool2d) -> int:
    return operator.window.kernel[0] * operator.window.kernel[1]


def _bounds(operator: QPool2d) -> tuple[np.ndarray, np.ndarray]:
    largest = np.array([255 * _num_taps(operator)])
    return -largest, largest


def _rescale(operator: QPool2d) -> WordRescale | None:
    """Return the requantization of an average that has a factor."""
    if operator.method == "max" or not operator.has_factor:
        return None
    return WordRescale.of(average(operator), *_bounds(operator))


def implement(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    source, output, num_taps = operator.inputs[0], operator.output, _num_taps(operator)
    finish = _rescale(operator)
    divides = operator.method == "average" and finish is None
    rings, layer = with_rings(LAYER, stored)
    limits: dict[str, Value] = {"low": operator.low, "high": operator.high}
    limits |= {"is_unsigned": True} if output.dtype == "uint8" else {}
    start = np.full(WORDS, -num_taps * quantization(source).zero_point, np.int64)
    call = f"tvm_ext_hvx_pool2d({layer}, input, output, {'factors' if finish else 'NULL'}, row_begin, row_end);"
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*activations(source, output), *((FACTORS,) if finish else ()), *ROW_PARAMETERS),
            body="\n".join([*rings, call]),
            helpers=shapes(LAYER, {
                "input": image(source), "output": image(output, stored=stored),
                "window": sliding_window(operator.window), "is_maximum": operator.method == "max",
                "reciprocal": -(-(1 << QUOTIENT_BITS) // num_taps) if divides else 0,
                "requantize": finish.members() if finish else limits,
            }),
            includes=("tvm_ext_hvx_pool2d.h", *HEADERS),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("factors", finish.table(start)),) if finish else (),
        instructions=_instructions(operator),
        passes=Passes(input=max(1.0, output.num_elements * num_taps / source.num_elements)),
        accumulation="r, s ascending",
        spatial=spatial(operator.window, source, output),
        exact=True,
        pitched=True,
        row_pitched=True,
        accumulating=accumulating(operator),
    )  # fmt: skip


def _instructions(operator: QPool2d) -> int:
    """Return the modelled packets; an average takes about the same for a factor and for a division."""
    rows, columns = operator.window.kernel
    blocks = operator.output.num_elements // operator.output.shape[3] * -(-operator.output.shape[3] // VECTOR_BYTES)
    if operator.method == "max":
        return blocks * (MAXIMUM_INSTRUCTIONS + rows * columns * 5 // 2)
    return blocks * (AVERAGE_INSTRUCTIONS + rows * (ROW_INSTRUCTIONS + columns * 9 // 4))


KERNEL = Kernel(
    name="qpool2d_hvx",
    title="Quantized max and average pooling, 128 channels of an output pixel at a time",
    operator=QPool2d,
    implement=implement,
    constraints=(*qpool2d.QPOOL2D.constraints, lies_in_image, few_taps, sums_leave_room),
)
