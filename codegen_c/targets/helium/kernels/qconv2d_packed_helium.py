"""conv2d of a QDQ chain whose weights have 4 bits each, with Helium: two output pixels by four channels at a time.

int8 or uint8[N, H, W, C], 4 bits[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32:
qconv2d_helium.py with the `S4` products of tvm_ext_helium_product.h, which take 16 instructions
for 128 multiply-adds of two rows where int8's take 14.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.qconv2d_packed import CONSTRAINTS
from codegen_c.operators.kinds import PackedQConv2d
from codegen_c.targets.helium.kernels import qconv2d_helium
from codegen_c.targets.helium.kernels.product_helium import nibble_sums_fit


def sixteenfold_sums_fit(operator: PackedQConv2d, target: Target) -> bool:
    """products of a channel must add up to less than 2^27, whatever the input"""
    return nibble_sums_fit(operator.weight)


def implement(operator: PackedQConv2d, target: Target, stored: StoredRows) -> Implementation:
    return replace(qconv2d_helium.implement(operator, target, stored), kernel=KERNEL.name)


KERNEL = Kernel(
    name="qconv2d_packed_helium",
    operator=PackedQConv2d,
    implement=implement,
    constraints=(qconv2d_helium.has_no_groups, *CONSTRAINTS, qconv2d_helium.sums_leave_room, sixteenfold_sums_fit),
)
