"""Dense layer of a QDQ chain whose weights have 4 bits each, in vectors of 8 sums: qdense_host.py, taking bytes apart.

int8 or uint8[..., C], 4 bits[K, C] -> int8 or uint8[..., K], sums in int32, modulo 2^32.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.dense.qdense_packed import CONSTRAINTS
from codegen_c.operators.kinds import PackedQDense
from codegen_c.targets.host.kernels import qdense_host


def implement(operator: PackedQDense, target: Target, stored: StoredRows) -> Implementation:
    whole = qdense_host.implement(operator, target, stored)
    return replace(whole, kernel=KERNEL.name, in_rows=None, accumulating=None)


KERNEL = Kernel(
    name="qdense_packed_host",
    operator=PackedQDense,
    implement=implement,
    constraints=(*CONSTRAINTS, qdense_host.sums_leave_room),
)
