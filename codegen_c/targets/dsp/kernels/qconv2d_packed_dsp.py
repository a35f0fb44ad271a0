"""conv2d of a QDQ chain whose weights have 4 bits each, by the DSP extension: three pixels by two channels at a time.

int8 or uint8[N, H, W, C], 4 bits[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32: qconv2d_dsp.py with
the `s4` products of tvm_ext_dsp_product.h, which take 19 instructions for 24 multiply-adds where int8's take 17 or 20.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qconv2d_packed import CONSTRAINTS
from codegen_c.operators.kinds import PackedQConv2d
from codegen_c.targets.dsp.kernels import qconv2d_dsp
from codegen_c.targets.dsp.kernels.product_dsp import NIBBLE_LIMIT


def sixteenfold_sums_fit(operator: PackedQConv2d, target: Target) -> bool:
    """bias and products must add up to less than 2^27, whatever the input"""
    low, high = qconv2d.products(operator).range()
    return bool((low > -NIBBLE_LIMIT).all() and (high < NIBBLE_LIMIT).all())


def implement(operator: PackedQConv2d, target: Target, stored: StoredRows) -> Implementation:
    return replace(qconv2d_dsp.implement(operator, target, stored), kernel=KERNEL.name)


KERNEL = Kernel(
    name="qconv2d_packed_dsp",
    operator=PackedQConv2d,
    implement=implement,
    constraints=(qconv2d_dsp.is_ungrouped, *CONSTRAINTS, sixteenfold_sums_fit),
)
