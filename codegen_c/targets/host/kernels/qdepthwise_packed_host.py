"""Depthwise conv2d of a QDQ chain whose weights have 4 bits each, in vectors of 8 sums: qdepthwise_host.py, taking
bytes apart.

int8 or uint8[N, H, W, C], 4 bits[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32, modulo 2^32.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.qconv2d_packed import CONSTRAINTS
from codegen_c.kernels.convolution.qdepthwise import is_depthwise
from codegen_c.operators.kinds import PackedQConv2d
from codegen_c.targets.host.kernels import qdepthwise_host
from codegen_c.targets.host.kernels.qconv2d_host import sums_leave_room


def implement(operator: PackedQConv2d, target: Target, stored: StoredRows) -> Implementation:
    return replace(qdepthwise_host.implement(operator, target, stored), kernel=KERNEL.name)


KERNEL = Kernel(
    name="qdepthwise_packed_host",
    operator=PackedQConv2d,
    implement=implement,
    constraints=(is_depthwise, qdepthwise_host.few_taps, *CONSTRAINTS, sums_leave_room),
)
