"""Products of the DSP extension: packed operands, sums of pairs, requantization, and blocks of pixels by channels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Parameter
from codegen_c.kernels.shared import requantize_litert
from codegen_c.kernels.shared.bit_widths import pack_pairs
from codegen_c.kernels.shared.common_shift import CommonShift, by_high_products
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.own_rounding import OwnRounding
from codegen_c.kernels.shared.requantize import Products, Requantize, quantization, wrapped
from codegen_c.kernels.shared.two_roundings import TwoRoundings
from codegen_c.operators.kinds import Array, TensorType

# Requantization in three instructions per sum, for processors with a high product. Its rounding is exactly that of
# `requantize.py`; `common_shift.py` decides from the factors and the bounds of the sums where it may be used.
#
# The zero point z is added before the shift: 2^r + z * 2^(r + 1) = (2 z + 1) * 2^r.

HEADERS = (
    "tvm_ext_dsp.h", "tvm_ext_dsp_requantize.h", "tvm_ext_layer.h", "tvm_ext_requantize.h",
    "tvm_ext_requantize_litert.h", "tvm_ext_requantize_tflite.h",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class FastRequantize:
    """Requantization by tvm_ext_dsp_requantize.h. is_fast: by high products, else as in the portable kernels.

    exact: mantissas and shifts for the C code; if fast, the shifts are those that remain after a high product.
    """

    exact: Requantize
    is_fast: bool

    @classmethod
    def of(cls, exact: Requantize, low: Array, high: Array) -> Self:
        """Return the requantization.

        low, high: bounds of the sums, int64, one pair for each factor (or one for all).
        """
        found = by_high_products(exact, low, high)
        return cls(exact=found, is_fast=found.takes_high_products)

    @classmethod
    def sixteenfold(cls, exact: Requantize, low: Array, high: Array) -> Self:
        """Return the requantization of 16 times the sums, which weights of 4 bits give."""
        return cls.of_scaled(exact, low, high, bits=4)

    @classmethod
    def of_scaled(cls, exact: Requantize, low: Array, high: Array, *, bits: int) -> Self:
        """Return the requantization of 2^bits times the sums from low to high.

        TensorFlow Lite rounds the sums themselves.
        """
        if exact.rounding != "onnx":
            return cls.of(exact, low, high)
        return cls.of(exact.scaled(bits), low << bits, high << bits)

    @property
    def instructions(self) -> int:
        """Modelled instructions of one sum; the sums of a channel share the loads of its factor."""
        if self.is_fast:
            return 6 if self.exact.rounding == "onnx" else 7 if self.exact.clamps_negatives else 8
        return requantize_litert.INSTRUCTIONS if self.exact.rounding == "litert" else 20

    def members(self) -> dict[str, Value]:
        """Return a `tvm_ext_dsp_requantize` of tvm_ext_dsp_requantize.h."""
        exact, output = self.exact, self.exact.output
        floats: dict[str, Value] = {"in_floats": True} if exact.rounding == "litert" else {}
        return floats | {
            "by_high_product": self.is_fast, "rounds_twice": exact.rounding == "tflite",
            "channel_step": 0 if exact.is_uniform else 1, "zero_point": quantization(output).zero_point,
            "low": exact.low, "high": exact.high,
        }  # fmt: skip

    def tables(self) -> list[str]:
        """Return definitions of `multiplier` and `shift` if they are no parameters: one of each for all channels."""
        if not self.exact.is_uniform:
            return []
        return [
            f"static const int32_t multiplier[] = {{{self.exact.mantissa[0]}}};",
            f"static const uint8_t shift[] = {{{self.exact.shift[0]}}}; /* {self.exact.note} */",
        ]

    def constants(self) -> tuple[tuple[str, Array], ...]:
        return self.exact.constants()

    def parameters(self) -> tuple[Parameter, ...]:
        return self.exact.parameters()


# Sums of products with the DSP extension: pairing of weights and activations, and the cost of a block.
#
# Convolutions and dense layers share it. Activations are expanded to cells of two 16-bit numbers. Weights stay bytes in
# such an order that the widened even or odd bytes of a word match a cell: see runtime/tvm_ext_dsp_product.h.

INCLUDES = ("tvm_ext_dsp_product.h",)
# Instructions of one call: the call itself, saving registers, entering and leaving the loop.
CALL_INSTRUCTIONS = 34
# Bound of channel b's sum: 256 times the sum is the difference of two sums, which must fit int32.
JOINED_BITS = 8
JOINED_LIMIT = 1 << (31 - JOINED_BITS)
# Bound of sums if weights have 4 bits: 16 times each sum must fit int32.
TABLES = ("weights", "bias", "multiplier", "shift")
"""Constants of a convolution, in the order of the headers' loops."""
NIBBLE_LIMIT = 1 << 27


def cell_pairs(length: int) -> list[tuple[int, int | None]]:
    """Return the pairs of adjacent elements that share a cell: of four (0, 2) and (1, 3), of a rest neighbours."""
    full = length // 4 * 4
    fours = [(i + j, i + j + 2) for i in range(0, full, 4) for j in (0, 1)]
    rest = [(i, i + 1 if i + 1 < length else None) for i in range(full, length, 2)]
    return [*fours, *rest]


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedWeights:
    """Weights of `pixels` x `width` blocks in the layout of the C code.

    weights: int8[K / width][cell][width / 2][a0 b0 a1 b1], two cells per unit; bias: int32[K], both padded with zeros
    to whole blocks and units. joined: a + 256 b instead of a and b, see the header. in_nibbles: weights of 4 bits, a +
    8 + 16 b in a byte: int8[K / width][unit][width / 2][element].
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
        cls,
        runs: Array,
        start: Array,
        source: TensorType,
        *,
        pixels: int,
        width: int,
        in_nibbles: bool = False,
        pairs_singles: bool = False,
    ) -> Self:
        """Pack weights.

        runs: int8[K, number of runs, adjacent elements]. start: int64[K], the initial sums. pairs_singles: if runs have
        an odd number of elements, the last ones of two runs share a cell, and these cells follow those of all runs.
        """
        channels = runs.shape[0]
        if pairs_singles and runs.shape[1] > 1 and runs.shape[2] % 2:
            cells = np.concatenate([_cells(runs[:, :, :-1]), _cells(runs[:, None, :, -1], adjacent=True)], axis=1)
        else:
            cells = _cells(runs)
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
        """Cells of all pixels; with weights of 4 bits, a word of each pixel precedes them."""
        return (2 * self.units + int(self.in_nibbles)) * self.pixels

    def members(self) -> dict[str, Value]:
        """Return the members of a layer's structure that describe the packing of its weights."""
        return {"has_nibbles": True} if self.in_nibbles else {"has_joined_weights": self.joined}

    @property
    def offset_instructions(self) -> int:
        """Modelled instructions of the word before the cells of a pixel, if there is one."""
        return 6 * self.units if self.in_nibbles else 0

    def instructions(self) -> int:
        """Return the modelled instructions of one block."""
        unit = {(3, True): 17, (3, False): 20, (1, True): 14, (1, False): 18}[self.pixels, self.joined]
        unit = {3: 19, 1: 18}[self.pixels] if self.in_nibbles else unit
        return CALL_INSTRUCTIONS + self.units * unit + self.units // 2


def _cells(runs: Array, *, adjacent: bool = False) -> Array:
    """Return the pairs of elements of all runs, int8[K, cells, 2]. adjacent: of neighbours, not of `cell_pairs`."""
    last = runs.shape[2]
    padded = np.concatenate([runs, np.zeros((*runs.shape[:2], 1), np.int8)], axis=2)
    pairs = [(i, i + 1) for i in range(0, last, 2)] if adjacent else cell_pairs(last)
    order = [[a, last if b is None else b] for a, b in pairs]
    return padded[:, :, order].reshape(runs.shape[0], -1, 2)


def channel_words(weight: Array) -> Array:
    """Return weights int8[K, C] as a word of each channel for each unit: int8[unit * K * element].

    The even bytes of a word belong to the first cell of the unit, the odd bytes to the second one. Words are padded
    with zeros.
    """
    if not len(weight):
        return np.zeros(0, np.int8)
    cells = _cells(weight[:, np.newaxis])
    filled = np.pad(cells, ((0, 0), (0, cells.shape[1] % 2), (0, 0)))
    return filled.reshape(len(weight), -1, 2, 2).transpose(1, 0, 3, 2).ravel()


def _can_join(filled: Array, source: TensorType) -> bool:
    """Return True if every a + 256 b fits 16 bits, and every channel b's products add up to less than JOINED_LIMIT."""
    weight = filled.reshape(-1, 2, filled.shape[1] * 2).astype(np.int64)
    joined = weight[:, 0] + 256 * weight[:, 1]
    limits = np.iinfo(source.dtype)
    second = weight[:, 1]
    highest = np.maximum(second * limits.min, second * limits.max).sum(axis=1)
    lowest = np.minimum(second * limits.min, second * limits.max).sum(axis=1)
    fits = joined.min() >= -(1 << 15) and joined.max() < 1 << 15
    return bool(fits and lowest.min() >= -JOINED_LIMIT and highest.max() < JOINED_LIMIT)


def _nibbles(blocks: Array) -> Array:
    """Pack [block, word, channel of two, cell, of a pair] as int8[block][unit][word][element of four]."""
    units = blocks.reshape(*blocks.shape[:3], -1, 2, 2)  # ..., unit, cell of two, of a pair
    elements = units.transpose(0, 3, 1, 2, 5, 4).reshape(units.shape[0], units.shape[3], units.shape[1], 2, 4)
    return pack_pairs(elements[:, :, :, 0] + np.int8(8), elements[:, :, :, 1]).view(np.int8).ravel()


def start(source: TensorType, weight: Array, bias: Array) -> Array:
    """Return the initial sums of x * w, int64[K]: bias minus zero point times weights; padding is then a zero point."""
    return Products.of(source=source, weight=weight, bias=bias, padded=False).start


def shared_function(name: str, parameters: list[str], lines: list[str]) -> str:
    """Return the definition of a void C function: one copy for all callers."""
    return apart(name, parameters, lines, linkage="TVM_EXT_DSP_SHARED")


def suffix(source: TensorType) -> str:
    """Return the suffix of the functions that widen this type."""
    return "s8" if source.dtype == "int8" else "u8"


# Elements of some pixels by some channels at a time, by the DSP extension: from products to bytes in one function.
#
# Sums stay in registers, and weights, initial sums and multipliers are stored in the order of use. Three pixels by two
# channels are runtime/tvm_ext_dsp_blocks.h; two pixels by four, and one pixel by two or four, only with joined weights,
# are runtime/tvm_ext_dsp_quads.h and runtime/tvm_ext_dsp_single.h. Channels must fill whole blocks, with one shift for
# all (`common_shift.py`; two by four: `own_rounding.py`), or with TensorFlow Lite's two roundings (`two_roundings.py`).

BLOCKS_INCLUDES = ("tvm_ext_dsp_blocks.h", "tvm_ext_dsp_requantize.h")
DUAL_INCLUDES = (*BLOCKS_INCLUDES, "tvm_ext_dsp_blocks_dual.h")
SINGLE_INCLUDES = (*BLOCKS_INCLUDES, "tvm_ext_dsp_single.h")
QUADS_INCLUDES = ("tvm_ext_dsp_quads.h", "tvm_ext_dsp_requantize.h")
BLOCKS_CALL_INSTRUCTIONS, QUADS_CALL_INSTRUCTIONS = 36, 21
DUAL_READ_AHEAD = 2
QUAD_PIXELS = 2
QUAD_WORDS, QUAD_WORDS_TWICE = 12, 9
"""Initial sums and factors of four channels that are rounded once, or twice."""


@dataclass(frozen=True, kw_only=True)
class PlainSums:
    """The form of results that are the sums themselves: no factors are stored."""

    rounding = 0
    suffix = "sums"
    channels: int

    def factors(self, width: int) -> Array:
        """Return the stored factors, int32[K / width, 0]."""
        return np.zeros((self.channels // width, 0), np.int32)

    def with_more(self, channels: int) -> Self:
        """Return the form with more channels after the others."""
        return replace(self, channels=self.channels + channels)


Form = CommonShift | TwoRoundings | OwnRounding | PlainSums


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks:
    """A layer in the layout of `function`: for each block of channels int8[starts, words of weights, factors].

    Starts are initial sums; for joined weights those of A and of A + 256 B of each two channels. form: the
    requantization. blocks: of two channels, or of `width` for one pixel or two. cells_read_ahead: cells after the last
    one that the function reads and does not use. block_cycles: of a block on a core that starts one instruction in a
    cycle, to choose between blocks of several forms.
    """

    weights: Array
    function: str
    form: Form
    joined: bool
    units: int
    blocks: int
    block_instructions: int
    block_cycles: int
    pixels: int = 3
    includes: tuple[str, ...] = BLOCKS_INCLUDES
    cells_read_ahead: int = 0

    @classmethod
    def of(cls, paired: PairedWeights, exact: Requantize | None, low: Array, high: Array) -> Self | None:
        """Return the layer in blocks, or None.

        exact: None for sums as results. low, high: bounds of the sums, int64[K].

        None for channels of several pixels that do not fill whole blocks, weights of 4 bits, factors without a form
        for registers, sums of joined weights that are too large with their bias, and one pixel without joined weights.
        """
        rest = -len(low) % paired.width
        if paired.in_nibbles or (not paired.joined if paired.pixels == 1 else rest):
            return None
        if paired.joined and (low[1::2].min(initial=0) < -JOINED_LIMIT or high[1::2].max(initial=0) >= JOINED_LIMIT):
            return None
        form = PlainSums(channels=len(low)) if exact is None else _in_registers(exact, low, high)
        if form is None:
            return None
        form = form.with_more(rest) if rest else form
        rows = _stored(paired, form, paired.bias.astype(np.int64))
        whole = cls(
            weights=rows.view(np.int8).ravel(),
            function=f"tvm_ext_dsp_blocks_{'joined_' if paired.joined else ''}{form.suffix}",
            joined=paired.joined,
            units=paired.units,
            blocks=len(rows),
            form=form,
            block_instructions=_three_by_two(paired.units, joined=paired.joined) + _more(form, 3, 2),
            block_cycles=_three_by_two_cycles(paired.units, joined=paired.joined) + _more(form, 3, 2),
        )
        return whole if paired.pixels > 1 else whole._single(paired.width)

    @classmethod
    def quads(cls, paired: PairedWeights, exact: Requantize, low: Array, high: Array) -> Self | None:
        """Return blocks of two pixels by four channels, or None. paired: packed so. low, high: as in `of`.

        None for channels that do not fill whole blocks, weights that are not joined, or have sums that are too large,
        and factors without a form for registers.
        """
        if len(low) % paired.width or not paired.joined:
            return None
        scale_bits = np.resize((0, JOINED_BITS), len(low))
        form = OwnRounding.of(exact, low, high, scale_bits) or TwoRoundings.of(exact, low, high)
        if form is None or (isinstance(form, TwoRoundings) and not form.is_signed):
            return None
        added = form.added if isinstance(form, OwnRounding) else np.zeros_like(low)
        if (low + added)[1::2].min() < -JOINED_LIMIT or (high + added)[1::2].max() >= JOINED_LIMIT:
            return None
        rows = _stored(_last_cell_first(paired), form, paired.bias + added)
        return cls(
            weights=rows.view(np.int8).ravel(),
            function=f"tvm_ext_dsp_quads_{form.suffix}",
            joined=True,
            units=paired.units,
            blocks=len(rows),
            form=form,
            block_instructions=_two_by_four(paired.units, form),
            block_cycles=_two_by_four_cycles(paired.units, form),
            includes=QUADS_INCLUDES,
            pixels=2,
        )

    def dual(self) -> Self:
        """Return the channels of three pixels for cores that start two instructions in a cycle."""
        return replace(
            self,
            function=self.function.replace("blocks", "blocks_dual"),
            includes=DUAL_INCLUDES,
            cells_read_ahead=DUAL_READ_AHEAD,
            block_instructions=_three_by_two_dual(self.units, joined=self.joined) + _more(self.form, 3, 2),
        )

    def one_pixel(self) -> Self | None:
        """Return the same channels for one pixel, in the weights' layout for three; None if weights are not joined."""
        return self._single(2) if self.joined and self.pixels == 3 else None

    def sizes(self) -> list[str]:
        """Return definitions that `call` uses: two pixels have their sizes in a structure."""
        if self.pixels != QUAD_PIXELS:
            return []
        words = QUAD_WORDS if isinstance(self.form, OwnRounding) else QUAD_WORDS_TWICE
        values = f"{self.units}, {self.blocks}, {words}, {self.rounding}"
        return [f"static const tvm_ext_dsp_quads_sizes sizes = TVM_EXT_DSP_QUADS_SIZES({values});"]

    def _single(self, width: int) -> Self:
        return replace(
            self,
            function=f"tvm_ext_dsp_single_1x{width}_{self.form.suffix}",
            includes=SINGLE_INCLUDES,
            cells_read_ahead=0,
            pixels=1,
            block_instructions=_one_by(width, self.units) + _more(self.form, 1, width),
        )

    @property
    def block_bytes(self) -> int:
        """Bytes from the numbers of one block to those of the next."""
        return self.weights.size // self.blocks

    @property
    def rounding(self) -> int:
        """The argument `rounding` of the function; 0 where each channel has its own."""
        return 0 if isinstance(self.form, OwnRounding) else self.form.rounding

    @property
    def instructions(self) -> int:
        """Modelled instructions of all channels of these pixels."""
        call = QUADS_CALL_INSTRUCTIONS if self.pixels == QUAD_PIXELS else BLOCKS_CALL_INSTRUCTIONS
        return call + self.blocks * self.block_instructions

    def call(self, output: str = "output") -> str:
        """Return the C code of all channels of these pixels."""
        if self.pixels == QUAD_PIXELS:
            return f"{self.function}({output}, weights, cells, &sizes);"
        return f"{self.function}({output}, weights, cells, {self.units}, {self.blocks}, {self.rounding});"


def _in_registers(exact: Requantize, low: Array, high: Array) -> CommonShift | TwoRoundings | None:
    return CommonShift.of(exact, low, high) or TwoRoundings.of(exact, low, high)


def _stored(paired: PairedWeights, form: Form, start: Array) -> Array:
    """Return the rows of blocks, int32[blocks, starts + words of weights + factors]. start: initial sums, int64[K]."""
    pairs = start.reshape(-1, 2)
    if paired.joined:
        pairs = np.stack([pairs[:, 0], pairs[:, 0] + (pairs[:, 1] << JOINED_BITS)], axis=1)
    starts = wrapped(pairs).reshape(-1, paired.width)
    products = paired.weights.view(np.int32).reshape(len(starts), -1)
    return np.ascontiguousarray(np.concatenate([starts, products, form.factors(paired.width)], axis=1))


def _last_cell_first(paired: PairedWeights) -> PairedWeights:
    """Return the weights with those of the last cell before those of the others, as the loop of quads reads them."""
    cells = paired.weights.reshape(-1, 2 * paired.units, 2 * paired.width)
    return replace(paired, weights=np.roll(cells, 1, axis=1).ravel())


def _two_by_four(units: int, form: OwnRounding | TwoRoundings) -> int:
    """Return the modelled instructions of one block."""
    return units * 28 + 3 * -(-units // 16) + (50 if isinstance(form, OwnRounding) else 81)


def _two_by_four_cycles(units: int, form: OwnRounding | TwoRoundings) -> int:
    """Return the cycles of one block on a Cortex-M4."""
    return units * 30 + 6 * -(-units // 16) + (58 if isinstance(form, OwnRounding) else 92)


def _three_by_two_cycles(units: int, *, joined: bool) -> int:
    """Return the cycles of one block on a Cortex-M4, rounded once."""
    return units * (25 if joined else 30) + 5 * -(-units // 8) + 60


def _three_by_two(units: int, *, joined: bool) -> int:
    """Return the modelled instructions of one block."""
    return units * (17 if joined else 20) + 2 * -(-(units - 1) // 8) + (33 if joined else 29)


def _three_by_two_dual(units: int, *, joined: bool) -> int:
    """Return the modelled instructions of one block on a core that starts two instructions in a cycle."""
    return units * (22 if joined else 24) + 5 * -(-units // 8) + (42 if joined else 39)


def _one_by(width: int, units: int) -> int:
    """Return the modelled instructions of one block of two or four channels.

    Units are processed in twos, eight times per iteration. By four channels, two units take 33 instructions, but these
    have fewer cycles each than others of the same kernel, and one factor gives the cycles of all: they count as 29.
    """
    twos, odd = divmod(units, 2)
    loop = twos * {2: 14, 4: 29}[width] + 3 * -(-twos // 8) + odd * {2: 9, 4: 15}[width]
    return loop + {2: 15, 4: 22}[width]


def _more(form: Form, pixels: int, width: int) -> int:
    """Return the modelled instructions that two roundings add to a block."""
    if not isinstance(form, TwoRoundings):
        return 0
    return {(3, 2): 16, (1, 2): 7, (1, 4): 15}[pixels, width] + (pixels * width if form.is_signed else 0)
