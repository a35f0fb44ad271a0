"""Dense layer of a QDQ chain whose weights have 4 bits each, by the DSP extension: one row by four channels at a time.

int8 or uint8[..., C], 4 bits[K, C] -> int8 or uint8[..., K], sums in int32: qdense_dsp.py with the `s4` products of
tvm_ext_dsp_product.h, which take 18 instructions for 16 multiply-adds where int8's take 14 or 18.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.dense.qdense_packed import CONSTRAINTS
from codegen_c.operators.kinds import PackedQDense
from codegen_c.targets.dsp.kernels import qdense_dsp
from codegen_c.targets.dsp.kernels.product_dsp import NIBBLE_LIMIT


def sixteenfold_sums_fit(operator: PackedQDense, target: Target) -> bool:
    """bias and products must add up to less than 2^27, whatever the input"""
    low, high = qdense.products(operator).range()
    return bool((low > -NIBBLE_LIMIT).all() and (high < NIBBLE_LIMIT).all())


def implement(operator: PackedQDense, target: Target, stored: StoredRows) -> Implementation:
    whole = qdense_dsp.implement(operator, target, stored)
    return replace(whole, kernel=KERNEL.name, in_rows=None, accumulating=None)


KERNEL = Kernel(
    name="qdense_packed_dsp",
    operator=PackedQDense,
    implement=implement,
    constraints=(*CONSTRAINTS, sixteenfold_sums_fit),
)
