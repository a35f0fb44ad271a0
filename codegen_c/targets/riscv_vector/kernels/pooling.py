"""Kernel for quantized max and average pooling with RISC-V's vectors: one output pixel by groups of channels.

int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]; sums of averages in int32, r then s ascending, starting at minus
the zero points of a window. Windows of averages lie in the image. Either rounding, if averages have a factor.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.pooling.qpool2d import accumulating, average, reference
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.product_kernel import SCRATCH
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import QPool2d
from codegen_c.targets.riscv_vector.kernels.products import (
    HEADERS,
    PARAMETERS,
    REGISTER_BYTES,
    SUM_BYTES,
    GroupedRescale,
    num_groups,
)

LAYER = "tvm_ext_rvv_pool2d_layer"
GROUP = 8
"""Registers of the accumulators, or of the maxima, of a group of channels."""
PIXEL_INSTRUCTIONS, RUN_INSTRUCTIONS, GROUP_INSTRUCTIONS = 40, 30, 12
"""Modelled instructions of a pixel, of a row of its window, and of a group of channels in the row."""


def has_factor(operator: QPool2d, target: Target) -> bool:
    """an average must have a factor; TFLite's averages of images are divisions"""
    return operator.method == "max" or operator.has_factor


def lies_in_image(operator: QPool2d, target: Target) -> bool:
    """an average must have no padding"""
    return operator.method == "max" or not any(operator.window.padding)


def sums_leave_room(operator: QPool2d, target: Target) -> bool:
    """if the factor of an average is one quarter or more, its sums must be small enough to be scaled up"""
    return operator.method == "max" or _rescale(operator).fits(*_bounds(operator))


def _num_taps(operator: QPool2d) -> int:
    return operator.window.kernel[0] * operator.window.kernel[1]


def _bounds(operator: QPool2d) -> tuple[np.ndarray, np.ndarray]:
    largest = np.array([255 * _num_taps(operator)])
    return -largest, largest


def _rescale(operator: QPool2d) -> GroupedRescale:
    return GroupedRescale.of(average(operator), *_bounds(operator))


def implement(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    channels, num_taps = output.shape[3], _num_taps(operator)
    finish = _rescale(operator) if operator.method == "average" else None
    start = np.full(channels, -num_taps * quantization(source).zero_point, np.int64)
    rings, layer = with_rings(LAYER, stored)
    factors = "factors, scratch" if finish else "NULL, NULL"
    limits: dict[str, Value] = {"low": operator.low, "high": operator.high}
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *((*PARAMETERS[1:], SCRATCH) if finish else ()),
                *ROW_PARAMETERS,
            ),
            body="\n".join([*rings, f"tvm_ext_rvv_pool2d({layer}, input, output, {factors}, row_begin, row_end);"]),
            helpers=shapes(LAYER, {
                "input": image(source), "output": image(output, stored=stored),
                "window": sliding_window(operator.window), "is_maximum": finish is None,
                "requantize": finish.members() if finish else limits,
            }),
            includes=("tvm_ext_rvv_pool2d.h", *HEADERS),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants(np.empty(0, np.int8), start)[1:] if finish else (),
        scratch_bytes=channels * SUM_BYTES if finish else 0,
        instructions=output.num_elements // channels * _pixel_instructions(operator, finish),
        passes=Passes(input=max(1.0, output.num_elements * num_taps / source.num_elements)),
        accumulation="r, s ascending",
        spatial=spatial(operator.window, source, output),
        exact=True,
        pitched=True,
        row_pitched=True,
        accumulating=accumulating(operator),
    )  # fmt: skip


def _pixel_instructions(operator: QPool2d, finish: GroupedRescale | None) -> int:
    """Return the modelled instructions of all channels of an output pixel."""
    (rows, columns), channels = operator.window.kernel, operator.output.shape[3]
    if finish:
        run = num_groups(channels, GROUP) * (GROUP_INSTRUCTIONS + 6 * columns)
        return PIXEL_INSTRUCTIONS + rows * (RUN_INSTRUCTIONS + run) + finish.instructions(channels)
    run = -(-channels // (GROUP * REGISTER_BYTES)) * (GROUP_INSTRUCTIONS + 5 * columns)
    return PIXEL_INSTRUCTIONS + rows * (RUN_INSTRUCTIONS + run)


KERNEL = Kernel(
    name="qpool2d_rvv",
    title="Quantized max and average pooling, groups of channels of an output pixel at a time",
    operator=QPool2d,
    implement=implement,
    constraints=(*qpool2d.QPOOL2D.constraints, has_factor, lies_in_image, sums_leave_room),
)
