"""Elements of three pixels by two channels at a time, by the DSP extension: from products to bytes in one function.

Sums stay in registers, and weights, numbers to start from and multipliers stand in the order they are read in:
runtime/tvm_ext_dsp_blocks.h. It takes an even number of channels and one shift for all (`common_shift.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.kernels.shared.common_shift import CommonShift
from codegen_c.kernels.shared.requantize import Requantize
from codegen_c.operators.kinds import Array
from codegen_c.targets.dsp.kernels.product_dsp import JOINED_LIMIT, PairedWeights, wrapped

INCLUDES = ("tvm_ext_dsp_blocks.h", "tvm_ext_dsp_requantize.h")
PAIR_INSTRUCTIONS = 29
CALL_INSTRUCTIONS = 36


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks:
    """A layer as `function` reads it: int8[K / 2][start A, start B, words of weights, multiplier A, multiplier B]."""

    weights: Array
    function: str
    units: int
    pairs: int
    rounding: int
    instructions: int

    @classmethod
    def of(cls, paired: PairedWeights, exact: Requantize, low: Array, high: Array) -> Self | None:
        """low, high: bounds of the sums, int64[K]. None for an odd number of channels, weights of 4 bits, several
        shifts, or sums of joined weights that are too large with their bias."""
        channels = len(low)
        if channels % 2 or paired.in_nibbles:
            return None
        if paired.joined and (low[1::2].min() < -JOINED_LIMIT or high[1::2].max() >= JOINED_LIMIT):
            return None
        common = CommonShift.of(exact, low, high)
        if common is None:
            return None
        start = paired.bias.astype(np.int64).reshape(-1, 2)
        if paired.joined:
            start = np.stack([start[:, 0], start[:, 0] + 256 * start[:, 1]], axis=1)
        products = paired.weights.view(np.int32).reshape(len(start), -1)
        rows = np.concatenate([wrapped(start), products, common.multiplier.reshape(-1, 2)], axis=1)
        unit = 17 if paired.joined else 20
        loop = paired.units * unit + 2 * -(-(paired.units - 1) // 8) + (4 if paired.joined else 0)
        return cls(
            weights=np.ascontiguousarray(rows).view(np.int8).ravel(),
            function=f"tvm_ext_dsp_blocks_{'joined_' if paired.joined else ''}{common.suffix}",
            units=paired.units,
            pairs=len(start),
            rounding=common.rounding,
            instructions=CALL_INSTRUCTIONS + len(start) * (PAIR_INSTRUCTIONS + loop),
        )

    def call(self) -> str:
        """All channels of three pixels, as C."""
        return f"{self.function}(output, weights, cells, {self.units}, {self.pairs}, {self.rounding});"
