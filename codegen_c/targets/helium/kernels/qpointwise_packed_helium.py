"""1x1 conv2d of a QDQ chain whose weights have 4 bits each, with Helium: two pixels by four channels at a time.

int8 or uint8[N, H, W, C], 4 bits[K, 1, 1, C] -> int8 or uint8[N, H, W, K], sums in int32:
qpointwise_helium.py with the `S4` products of tvm_ext_helium_product.h, which take 16 instructions
for 128 multiply-adds of two rows where int8's take 14.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.qconv2d_packed import CONSTRAINTS
from codegen_c.operators.kinds import PackedQConv2d
from codegen_c.targets.helium.kernels import qpointwise_helium
from codegen_c.targets.helium.kernels.qconv2d_helium import sums_leave_room
from codegen_c.targets.helium.kernels.qconv2d_packed_helium import sixteenfold_sums_fit


def implement(operator: PackedQConv2d, target: Target, stored: StoredRows) -> Implementation:
    return replace(qpointwise_helium.implement(operator, target, stored), kernel=KERNEL.name)


KERNEL = Kernel(
    name="qpointwise_packed_helium",
    operator=PackedQConv2d,
    implement=implement,
    constraints=(qpointwise_helium.is_pointwise, *CONSTRAINTS, sums_leave_room, sixteenfold_sums_fit),
)
