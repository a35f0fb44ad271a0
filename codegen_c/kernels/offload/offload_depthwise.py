"""Depthwise conv2d of a QDQ chain by an accelerator: each output channel reads one input channel.

int8 or uint8[N, H, W, C], int8[R, S, K] -> int8 or uint8[N, P, Q, K]; output channel k reads input channel k / (K / C).
Sums and rounding as of a conv2d.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.offload.driver import entry_of
from codegen_c.kernels.offload.offload_conv2d import SUMS, handed_over
from codegen_c.operators.kinds import QConv2d

KIND = "depthwise"


def reads_one_channel(operator: QConv2d, target: Target) -> bool:
    """every input channel must be a group of its own"""
    return operator.groups == operator.inputs[0].shape[3] and operator.weight.shape[3] == 1


def is_taken(operator: QConv2d, target: Target) -> bool:
    """the accelerator's driver must take a depthwise convolution of its type, shape, window and rounding"""
    return entry_of(KIND, operator, target, operator.window) is not None


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    return handed_over(KERNEL.name, KIND, operator, target, operator.weight[:, :, :, 0].transpose(1, 2, 0))


KERNEL = Kernel(
    name="offload_depthwise", operator=QConv2d, implement=implement, constraints=(reads_one_channel, is_taken, *SUMS),
    offload=True,
)  # fmt: skip
