"""conv2d of a QDQ chain, integers only: two neighbouring pixels by four channels at a time, for speed.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32, results and order of sums those
of qconv2d.py, whose loops compute the pixels beside the pairs: the last of an odd row, and those whose windows leave
the image to the left or right.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.window import CHANNEL_BLOCK
from codegen_c.operators.kinds import QConv2d

PAIR_RUN_INSTRUCTIONS = 20
"""Modelled instructions around the products of one row of a pair's window and a block of channels."""


def is_for_speed(operator: QConv2d, target: Target) -> bool:
    """loops for pairs beside those for single pixels are for speed, not for size"""
    return target.optimize == "speed"


def has_pairs(operator: QConv2d, target: Target) -> bool:
    """all channels must be of one group, taps of a row adjacent, and two windows in a row inside the image"""
    return operator.groups == 1 and operator.window.dilation[1] == 1 and pairs_in_row(operator) > 0


def pairs_in_row(operator: QConv2d) -> int:
    """Pairs of pixels in a row whose windows lie inside the image from left to right."""
    window, columns = operator.window, operator.inputs[0].shape[2]
    first = -(-window.padding[1] // window.strides[1])
    inside = (columns - window.kernel[1] + window.padding[1]) // window.strides[1] + 1
    return (min(inside, operator.output.shape[2]) - first) // 2


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    whole, finish = qconv2d.implement(operator, target, stored), qconv2d.rescaling(operator)
    return replace(
        whole,
        kernel=KERNEL.name,
        function=replace(
            whole.function,
            body=qconv2d.call("tvm_ext_qconv2d_pairs", qconv2d.LAYER, stored, finish),
            includes=("tvm_ext_qconv2d_pairs.h", *whole.function.includes),
        ),
        instructions=_instructions(operator, whole),
        passes=Passes.of_product(
            whole.macs,
            operator.inputs[0].num_elements,
            operator.output.num_elements // operator.output.shape[3],
            pixels=2,
            channels=CHANNEL_BLOCK,
        ),
    )


def _instructions(operator: QConv2d, whole: Implementation) -> int:
    """Modelled instructions: a pair loads two elements and four weights for eight products."""
    columns, rows = operator.output.shape[2], operator.window.kernel[0]
    in_pairs = 2 * pairs_in_row(operator) / columns
    elements = 2 * (2 if qconv2d.products(operator).zero_point else 1)
    per_block = 2 * CHANNEL_BLOCK
    macs = in_pairs * whole.macs
    products = macs * (elements + CHANNEL_BLOCK + per_block) / per_block
    runs = in_pairs * operator.output.num_elements / per_block * rows * PAIR_RUN_INSTRUCTIONS
    ends = in_pairs * operator.output.num_elements * qconv2d.REQUANTIZE_INSTRUCTIONS
    return int((1 - in_pairs) * whole.instructions + products + runs + ends)


CONSTRAINTS = (is_for_speed, has_pairs, *qconv2d.SUMS_TOO)
KERNEL = Kernel(name="qconv2d_pairs_i8", operator=QConv2d, implement=implement, constraints=CONSTRAINTS)
