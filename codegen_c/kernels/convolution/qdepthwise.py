"""Kernels for quantized depthwise conv2d, integers only: activations of 8 or 16 bits."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qconv2d import QCONV2D_I16_CONSTRAINTS
from codegen_c.kernels.shared.bit_widths import wide_kernel
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, rescale
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.window import CHANNEL_BLOCK
from codegen_c.operators.kinds import QConv2d

# Depthwise conv2d of a quantized network, integers only: every channel by itself, four of one output pixel at a time.
#
# int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32. A sum starts at its bias and
# adds (x - zero point) * w in the order r, s ascending; products outside the input are skipped, because padding is a
# real zero. Either rounding.

LOOPS = Loops(
    function="tvm_ext_qdepthwise", layer="tvm_ext_qdepthwise_layer",
    includes=("tvm_ext_qdepthwise.h", *BLOCK_INCLUDES),
    accumulation="bias, then r, s ascending", columns_at_once=1,
)  # fmt: skip


def is_depthwise(operator: QConv2d, target: Target) -> bool:
    """every input channel must be a group of its own with one output channel"""
    return operator.groups == operator.inputs[0].shape[3] == operator.output.shape[3]


def depthwise_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    finish, sums, is_wide = qconv2d.rescaling(operator), qconv2d.products(operator), qconv2d.wide(operator) is not None
    macs = operator.output.num_elements * operator.window.kernel[0] * operator.window.kernel[1]
    per_mac = 4 if sums.zero_point else 3
    return Parts(
        parameters=qconv2d.parameters(operator, finish, is_wide=is_wide)[2:-2],
        constants=(("weights", pack(operator.weight)), ("bias", sums.bias), *finish.constants()),
        members={"rescale": rescale(finish, wide=is_wide)},
        statements=finish.tables(),
        tables=qconv2d.TABLES,
        scratch=None,
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
    )


def pack(weight: np.ndarray) -> np.ndarray:
    """Pack [C, R, S, 1] as [R, S, C]: channels are adjacent, as in the input."""
    return np.ascontiguousarray(weight[..., 0].transpose(1, 2, 0))


DEPTHWISE = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=depthwise_parts)
QDEPTHWISE = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_i8",
        title="Quantized depthwise convolution with activations of 8 bits",
        operator=QConv2d,
        constraints=(is_depthwise, *qconv2d.SUMS_TOO),
    )
)


# Depthwise conv2d of a quantized network on 16-bit activations, integers only, by the loops of the 8-bit kernel.
#
# int16 or uint16[N, H, W, C], int8[C, R, S, 1] -> int16 or uint16[N, P, Q, C]; sums and rounding as in qconv2d.py.

MOST_COLUMNS = 128
"""Products of 2^16 * 2^7 whose sum fits 32 bits: the loops carry over once for each row of the window."""


def rows_fit(operator: QConv2d, target: Target) -> bool:
    """the window must have 128 columns or fewer"""
    return operator.window.kernel[1] <= MOST_COLUMNS


QDEPTHWISE_I16 = wide_kernel(
    "qdepthwise_i16",
    "Quantized depthwise convolution with activations of 16 bits",
    QDEPTHWISE,
    is_depthwise,
    rows_fit,
    *QCONV2D_I16_CONSTRAINTS,
)


KERNELS = (QDEPTHWISE, QDEPTHWISE_I16)
