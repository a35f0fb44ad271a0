"""Elements of some pixels by some channels at a time, by the DSP extension: from products to bytes in one function.

Sums stay in registers, and weights, numbers to start from and multipliers stand in the order they are read in. Three
pixels by two channels are runtime/tvm_ext_dsp_blocks.h; one pixel by two or four, of joined weights alone, are
runtime/tvm_ext_dsp_single.h. Channels come in whole blocks, with one shift for all (`common_shift.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from codegen_c.kernels.shared.common_shift import CommonShift
from codegen_c.kernels.shared.requantize import Requantize
from codegen_c.operators.kinds import Array
from codegen_c.targets.dsp.kernels.product_dsp import JOINED_LIMIT, PairedWeights, wrapped

INCLUDES = ("tvm_ext_dsp_blocks.h", "tvm_ext_dsp_requantize.h")
SINGLE_INCLUDES = (*INCLUDES, "tvm_ext_dsp_single.h")
CALL_INSTRUCTIONS = 36


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks:
    """A layer as `function` reads it: for each block of channels int8[starts, words of weights, multipliers].

    Starts are those of the sums; of joined weights those of A and of A + 256 B of each two channels. suffix: of
    functions that finish the sums so. blocks: of two channels, or of `width` for one pixel.
    """

    weights: Array
    function: str
    suffix: str
    joined: bool
    units: int
    blocks: int
    rounding: int
    block_instructions: int

    @classmethod
    def of(cls, paired: PairedWeights, exact: Requantize, low: Array, high: Array) -> Self | None:
        """low, high: bounds of the sums, int64[K]. None for channels that fill no whole blocks, weights of 4 bits,
        several shifts, sums of joined weights that are too large with their bias, and one pixel without joined ones."""
        if len(low) % paired.width or paired.in_nibbles or (paired.pixels == 1 and not paired.joined):
            return None
        if paired.joined and (low[1::2].min() < -JOINED_LIMIT or high[1::2].max() >= JOINED_LIMIT):
            return None
        common = CommonShift.of(exact, low, high)
        if common is None:
            return None
        start = paired.bias.astype(np.int64).reshape(-1, 2)
        if paired.joined:
            start = np.stack([start[:, 0], start[:, 0] + 256 * start[:, 1]], axis=1)
        start = wrapped(start).reshape(-1, paired.width)
        products = paired.weights.view(np.int32).reshape(len(start), -1)
        rows = np.concatenate([start, products, common.multiplier.reshape(-1, paired.width)], axis=1)
        whole = cls(
            weights=np.ascontiguousarray(rows).view(np.int8).ravel(),
            function=f"tvm_ext_dsp_blocks_{'joined_' if paired.joined else ''}{common.suffix}",
            suffix=common.suffix,
            joined=paired.joined,
            units=paired.units,
            blocks=len(start),
            rounding=common.rounding,
            block_instructions=_three_by_two(paired.units, joined=paired.joined),
        )
        return whole if paired.pixels > 1 else whole._single(paired.width)

    def one_pixel(self) -> Self | None:
        """The same channels of one pixel, from weights as they stand for three; None of weights that are not joined."""
        return self._single(2) if self.joined else None

    def _single(self, width: int) -> Self:
        function = f"tvm_ext_dsp_single_1x{width}_{self.suffix}"
        return replace(self, function=function, block_instructions=_one_by(width, self.units))

    @property
    def instructions(self) -> int:
        """Modelled instructions of all channels of these pixels."""
        return CALL_INSTRUCTIONS + self.blocks * self.block_instructions

    def call(self, output: str = "output") -> str:
        """All channels of these pixels, as C."""
        return f"{self.function}({output}, weights, cells, {self.units}, {self.blocks}, {self.rounding});"


def _three_by_two(units: int, *, joined: bool) -> int:
    """Modelled instructions of one block."""
    return units * (17 if joined else 20) + 2 * -(-(units - 1) // 8) + (33 if joined else 29)


def _one_by(width: int, units: int) -> int:
    """Modelled instructions of one block of two or four channels. Units come by twos, four times in a round."""
    twos, odd = divmod(units, 2)
    loop = twos * {2: 14, 4: 27}[width] + 3 * -(-twos // 4) + odd * {2: 9, 4: 15}[width]
    return loop + {2: 15, 4: 22}[width]
