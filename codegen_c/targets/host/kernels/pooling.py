"""Kernel for quantized average pooling on the host, in vectors of 16 accumulators.

It computes 16 channels of one output pixel at a time. int8 or uint8[N, H, W, C] -> int8 or
uint8[N, P, Q, C]; C is a multiple of 16, and windows have no padding. Rounding "onnx" or "tflite".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.pooling.qpool2d import average
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.product_kernel import activations
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import QPool2d
from codegen_c.targets.host.kernels.products import FACTORS, SUM_INCLUDES, UNIT, LaneRescale

LAYER = "tvm_ext_host_pool2d_layer"
TAP_INSTRUCTIONS = 6
"""Modelled instructions of a tap of a unit."""


def is_average_by_a_factor(operator: QPool2d, target: Target) -> bool:
    """it must be an average that is rescaled to the output by a factor"""
    return operator.method == "average" and operator.has_factor


def is_not_padded(operator: QPool2d, target: Target) -> bool:
    """windows must lie within the image"""
    return not any(operator.window.padding)


def has_whole_vectors(operator: QPool2d, target: Target) -> bool:
    """channels must be a multiple of 16"""
    return operator.output.shape[3] % UNIT == 0


def sums_leave_room(operator: QPool2d, target: Target) -> bool:
    """if the factor is one half or more, sums must be small enough to be scaled up"""
    return _rescale(operator).fits(*_bounds(operator))


def _bounds(operator: QPool2d) -> tuple[np.ndarray, np.ndarray]:
    largest = np.array([255 * operator.window.kernel[0] * operator.window.kernel[1]])
    return -largest, largest


def _rescale(operator: QPool2d) -> LaneRescale:
    return LaneRescale.of(average(operator), *_bounds(operator))


def implement(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    portable, finish = qpool2d.implement(operator, target, stored), _rescale(operator)
    (source,), output, (rows, columns) = operator.inputs, operator.output, operator.window.kernel
    start = np.full(output.shape[3], -quantization(source).zero_point * rows * columns)
    rings, layer = with_rings(LAYER, stored)
    taps = rows * columns * TAP_INSTRUCTIONS
    call = f"tvm_ext_host_pool2d({layer}, input, output, factors, row_begin, row_end);"
    return replace(
        portable,
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                *activations(source, output),
                FACTORS,
                *ROW_PARAMETERS,
            ),
            body="\n".join([*rings, call]),
            helpers=shapes(LAYER, {
                "input": image(source), "output": image(output, stored=stored),
                "window": sliding_window(operator.window), "rescale": finish.members(),
            }),
            includes=("tvm_ext_host_pool2d.h", *SUM_INCLUDES),
        ),
        constants=(("factors", finish.table(start)),),
        instructions=output.num_elements // UNIT * (taps + finish.finish_instructions),
    )  # fmt: skip


KERNEL = Kernel(
    name="qpool2d_host",
    title="Quantized average pooling, 16 channels of an output pixel at a time",
    operator=QPool2d,
    implement=implement,
    constraints=(
        is_average_by_a_factor,
        *qpool2d.QPOOL2D.constraints,
        is_not_padded,
        has_whole_vectors,
        sums_leave_room,
    ),
)
