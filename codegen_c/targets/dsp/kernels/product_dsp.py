"""Sums of products by the DSP extension: how weights and activations are paired, and what a block of them costs.

Convolutions and dense layers share it. Activations are expanded to cells of two 16-bit numbers; weights stay
bytes and are packed so that a word, its even and its odd bytes widened, meets a cell: runtime/tvm_ext_dsp_product.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.shared.four_bits import pack_pairs
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.requantize import Products
from codegen_c.operators.kinds import Array, TensorType

INCLUDES = ("tvm_ext_dsp_product.h",)
# Instructions of one call: the call itself, saving registers, entering and leaving the loop.
CALL_INSTRUCTIONS = 34
# Bound of channel b's sum: 256 times it is the difference of two sums, which must fit an int32.
JOINED_LIMIT = 1 << 23
# Bound of sums where weights have 4 bits: 16 times each must fit an int32.
NIBBLE_LIMIT = 1 << 27


def cell_pairs(length: int) -> list[tuple[int, int | None]]:
    """Pairs of `length` adjacent elements that share a cell: of four (0, 2) and (1, 3), of a rest neighbours."""
    full = length // 4 * 4
    fours = [(i + j, i + j + 2) for i in range(0, full, 4) for j in (0, 1)]
    rest = [(i, i + 1 if i + 1 < length else None) for i in range(full, length, 2)]
    return [*fours, *rest]


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedWeights:
    """Weights of `pixels` x `width` blocks, as the C code reads them.

    weights: int8[K / width][cell][width / 2][a0 b0 a1 b1], two cells per unit; bias: int32[K], both with zeros for
    channels and a cell that fill up the last block and unit. joined: a + 256 b instead of a and b, see the header.
    in_nibbles: weights of 4 bits, a + 8 + 16 b in a byte: int8[K / width][unit][width / 2][element].
    """

    weights: Array
    bias: Array
    units: int
    pixels: int
    width: int
    joined: bool
    in_nibbles: bool = False

    @classmethod
    def of(
        cls, runs: Array, start: Array, source: TensorType, *, pixels: int, width: int, in_nibbles: bool = False
    ) -> Self:
        """runs: int8[K, number of runs, adjacent elements]; start: int64[K], the sum of no products."""
        channels = runs.shape[0]
        zero = np.zeros((*runs.shape[:2], 1), np.int8)
        padded = np.concatenate([runs, zero], axis=2)
        last = runs.shape[2]
        order = [[a, last if b is None else b] for a, b in cell_pairs(last)]
        cells = padded[:, :, order].reshape(channels, -1, 2)
        filled = np.zeros((-(-channels // width) * width, -(-cells.shape[1] // 2) * 2, 2), np.int8)
        filled[:channels, : cells.shape[1]] = cells
        bias = np.zeros(filled.shape[0], np.int64)
        bias[:channels] = start
        blocks = filled.reshape(-1, width // 2, 2, filled.shape[1], 2)  # block, word, channel of two, cell, of a pair
        joined = not in_nibbles and _can_join(filled, source)
        packed = blocks.transpose(0, 3, 1, 4, 2).copy()
        if joined:
            packed[..., 1] -= packed[..., 0] < 0  # the upper byte of a + 256 b
        return cls(
            weights=_nibbles(blocks) if in_nibbles else packed.ravel(),
            bias=wrapped(bias),
            units=filled.shape[1] // 2,
            pixels=pixels,
            width=width,
            joined=joined,
            in_nibbles=in_nibbles,
        )

    @property
    def num_cells(self) -> int:
        """Cells of all pixels; before those that meet weights of 4 bits stands a word of each pixel."""
        return (2 * self.units + int(self.in_nibbles)) * self.pixels

    def members(self) -> dict[str, Value]:
        """Members of a layer's structure that say how its weights are packed."""
        return {"has_nibbles": True} if self.in_nibbles else {"has_joined_weights": self.joined}

    @property
    def offset_instructions(self) -> int:
        """Modelled instructions of the word before the cells of a pixel, where there is one."""
        return 6 * self.units if self.in_nibbles else 0

    def instructions(self) -> int:
        """Modelled instructions of one block."""
        unit = {(3, True): 17, (3, False): 20, (1, True): 14, (1, False): 18}[self.pixels, self.joined]
        unit = {3: 19, 1: 18}[self.pixels] if self.in_nibbles else unit
        return CALL_INSTRUCTIONS + self.units * unit + self.units // 2


def _can_join(filled: Array, source: TensorType) -> bool:
    """True where every a + 256 b fits 16 bits, and every channel b's products add up to less than JOINED_LIMIT."""
    weight = filled.reshape(-1, 2, filled.shape[1] * 2).astype(np.int64)
    joined = weight[:, 0] + 256 * weight[:, 1]
    limits = np.iinfo(source.dtype)
    second = weight[:, 1]
    highest = np.maximum(second * limits.min, second * limits.max).sum(axis=1)
    lowest = np.minimum(second * limits.min, second * limits.max).sum(axis=1)
    fits = joined.min() >= -(1 << 15) and joined.max() < 1 << 15
    return bool(fits and lowest.min() >= -JOINED_LIMIT and highest.max() < JOINED_LIMIT)


def _nibbles(blocks: Array) -> Array:
    """[block, word, channel of two, cell, of a pair] -> int8[block][unit][word][element of four]."""
    units = blocks.reshape(*blocks.shape[:3], -1, 2, 2)  # ..., unit, cell of two, of a pair
    elements = units.transpose(0, 3, 1, 2, 5, 4).reshape(units.shape[0], units.shape[3], units.shape[1], 2, 4)
    return pack_pairs(elements[:, :, :, 0] + np.int8(8), elements[:, :, :, 1]).view(np.int8).ravel()


def start(source: TensorType, weight: Array, bias: Array) -> Array:
    """Initial sums of x * w, int64[K]: bias less zero point times weights; padding is then a zero point."""
    return Products.of(source=source, weight=weight, bias=bias, padded=False).start


def wrapped(sums: Array) -> Array:
    """int64 -> int32 modulo 2^32, as the sums themselves are."""
    return sums.astype(np.uint64).astype(np.uint32).view(np.int32)


def shared_function(name: str, parameters: list[str], lines: list[str]) -> str:
    """Definition of a C function without result, one copy for all that call it."""
    return apart(name, parameters, lines, linkage="TVM_EXT_DSP_SHARED")


def suffix(source: TensorType) -> str:
    """Suffix of the functions that widen this type."""
    return "s8" if source.dtype == "int8" else "u8"
