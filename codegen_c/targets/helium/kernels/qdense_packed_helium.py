"""Dense layer of a QDQ chain whose weights have 4 bits each, with Helium: two rows by four channels at a time.

int8 or uint8[..., C], 4 bits[K, C] -> int8 or uint8[..., K], sums in int32:
qdense_helium.py with the `S4` products of tvm_ext_helium_product.h, which take 16 instructions
for 128 multiply-adds of two rows where int8's take 14.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.dense.qdense_packed import CONSTRAINTS
from codegen_c.operators.kinds import PackedQDense
from codegen_c.targets.helium.kernels import qdense_helium
from codegen_c.targets.helium.kernels.product_helium import nibble_sums_fit


def sixteenfold_sums_fit(operator: PackedQDense, target: Target) -> bool:
    """products of a channel must add up to less than 2^27, whatever the input"""
    return nibble_sums_fit(operator.weight)


def implement(operator: PackedQDense, target: Target, stored: StoredRows) -> Implementation:
    whole = qdense_helium.implement(operator, target, stored)
    return replace(whole, kernel=KERNEL.name, in_rows=None, accumulating=None)


KERNEL = Kernel(
    name="qdense_packed_helium",
    operator=PackedQDense,
    implement=implement,
    constraints=(*CONSTRAINTS, qdense_helium.sums_leave_room, sixteenfold_sums_fit),
)
