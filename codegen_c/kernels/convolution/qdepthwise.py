"""Depthwise conv2d of a QDQ chain, integers only: activations of 8 or 16 bits."""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qconv2d import QCONV2D_I16_CONSTRAINTS
from codegen_c.kernels.shared.bit_widths import wide_kernel
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, image, rescale, shapes, sliding_window
from codegen_c.kernels.shared.requantize import Requantize
from codegen_c.kernels.shared.window import (
    CHANNEL_BLOCK,
    spatial,
)
from codegen_c.operators.kinds import QConv2d

# Depthwise conv2d of a QDQ chain, integers only: every channel by itself, four of one output pixel at a time.
#
# int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32. A sum starts at its
# bias and adds (x - zero point) * w in the order r, s ascending; products outside the input are left out, as
# padding is a real zero. Either rounding.

LAYER = "tvm_ext_qdepthwise_layer"


def is_depthwise(operator: QConv2d, target: Target) -> bool:
    """every input channel must be a group of its own with one output channel"""
    return operator.groups == operator.inputs[0].shape[3] == operator.output.shape[3]


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    finish, sums = qconv2d.rescaling(operator), qconv2d.products(operator)
    macs = operator.output.num_elements * operator.window.kernel[0] * operator.window.kernel[1]
    per_mac = 4 if sums.zero_point else 3
    return Implementation(
        kernel=QDEPTHWISE.name,
        function=CFunction(
            parameters=qconv2d.parameters(operator, finish, is_wide=qconv2d.wide(operator) is not None),
            body=qconv2d.call("tvm_ext_qdepthwise", LAYER, stored, finish),
            helpers=_shapes(operator, stored, finish),
            includes=("tvm_ext_qdepthwise.h", *BLOCK_INCLUDES),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=(("weights", pack(operator.weight)), ("bias", sums.bias), *finish.constants()),
        macs=macs,
        instructions=macs * per_mac
        + macs // CHANNEL_BLOCK * qconv2d.RUN_INSTRUCTIONS
        + operator.output.num_elements * qconv2d.REQUANTIZE_INSTRUCTIONS,
        passes=Passes.of_product(
            macs,
            operator.inputs[0].num_elements,
            operator.output.num_elements // operator.output.shape[3],
            pixels=1,
            channels=1,
        ),
        accumulation="bias, then r, s ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output, columns_at_once=1),
        exact=True,
        pitched=True,
        row_pitched=True,
    )


def pack(weight: np.ndarray) -> np.ndarray:
    """[C, R, S, 1] -> [R, S, C]: channels side by side, as in the input."""
    return np.ascontiguousarray(weight[..., 0].transpose(1, 2, 0))


def _shapes(operator: QConv2d, stored: StoredRows, finish: Requantize) -> str:
    """The layer's shapes as tvm_ext_qdepthwise.h takes them."""
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window),
        "rescale": rescale(finish, wide=qconv2d.wide(operator) is not None),
    }
    return shapes(LAYER, members)


QDEPTHWISE = Kernel(
    name="qdepthwise_i8",
    operator=QConv2d,
    implement=implement,
    constraints=(is_depthwise, *qconv2d.SUMS_TOO),
)


# Depthwise conv2d of a QDQ chain on 16-bit activations, integers only: py by its own loops.
#
# int16 or uint16[N, H, W, C], int8[C, R, S, 1] -> int16 or uint16[N, P, Q, C]; sums and rounding as in
# qconv2d.py.

MOST_COLUMNS = 128
"""Products of 2^16 * 2^7 that 32 bits hold: the loops carry over once for each row of the window."""


def rows_fit(operator: QConv2d, target: Target) -> bool:
    """the window must have 128 columns or fewer"""
    return operator.window.kernel[1] <= MOST_COLUMNS


QDEPTHWISE_I16 = wide_kernel("qdepthwise_i16", QDEPTHWISE, is_depthwise, rows_fit, *QCONV2D_I16_CONSTRAINTS)


KERNELS = (QDEPTHWISE, QDEPTHWISE_I16)
