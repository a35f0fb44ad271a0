"""conv2d of a QDQ chain whose weights have 4 bits each, in vectors of 8 sums: qconv2d_host.py, taking bytes apart.

int8 or uint8[N, H, W, C], 4 bits[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32, modulo 2^32.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.qconv2d_packed import CONSTRAINTS
from codegen_c.operators.kinds import PackedQConv2d
from codegen_c.targets.host.kernels import qconv2d_host


def implement(operator: PackedQConv2d, target: Target, stored: StoredRows) -> Implementation:
    return replace(qconv2d_host.implement(operator, target, stored), kernel=KERNEL.name)


KERNEL = Kernel(
    name="qconv2d_packed_host",
    operator=PackedQConv2d,
    implement=implement,
    constraints=(qconv2d_host.has_no_groups, *CONSTRAINTS, qconv2d_host.sums_leave_room),
)
