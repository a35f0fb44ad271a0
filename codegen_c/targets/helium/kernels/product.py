"""Products of Helium: packed operands, sums of 16 products, requantization of four sums, windows in scratch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Parameter, StoredRows, Target
from codegen_c.kernels.measurements import Block
from codegen_c.kernels.shared.bit_widths import pack_pairs
from codegen_c.kernels.shared.common_shift import DOUBLED_BITS, HighWords
from codegen_c.kernels.shared.layer import apart, with_rings
from codegen_c.kernels.shared.requantize import INCLUDES as REQUANTIZE_INCLUDES
from codegen_c.kernels.shared.requantize import quantization, wrapped
from codegen_c.kernels.shared.sums import holds_sums
from codegen_c.operators.kinds import Array, Operator, QBinary, QPool2d, TensorType, Window

# Shared parts of the Helium kernels: exact requantization of four sums at a time, and its constants.
#
# A factor is mantissa / 2^shift. The high word of sum * mantissa, shifted right by shift - 32 with rounding, is the
# product rounded halves up, because its low word never carries. Halves to even differs only in ties, and a tie requires
# a sum with more trailing zeros than most layers' sums have bits: if one can happen, one more comparison handles it.
# TensorFlow Lite's two roundings are two instructions, with a correction of negative numbers in between. So results are
# those of `requantize.Requantize`, bit for bit.

INCLUDES = (*REQUANTIZE_INCLUDES, "tvm_ext_helium.h", "tvm_ext_helium_plain.h")
LAYER_INCLUDES = (*INCLUDES, "tvm_ext_helium_rescale.h", "tvm_ext_layer.h", "tvm_ext_requantize_litert.h")
PRODUCT_INCLUDES = (*LAYER_INCLUDES, "tvm_ext_helium_product.h", "tvm_ext_helium_channels.h")
LANES = 4


def rounds_once(operator: QBinary | QPool2d, target: Target) -> bool:
    """the layer must round once, as in ONNX; portable kernels compute TensorFlow Lite's two roundings"""
    return operator.rounding == "onnx"


def flip(tensor: TensorType) -> int:
    """Return the offset from an element to the int8 of the same scale: -128 for uint8."""
    return -128 if tensor.dtype == "uint8" else 0


def signed_zero_point(tensor: TensorType) -> int:
    """Return the zero point of the tensor's elements after conversion to int8."""
    return quantization(tensor).zero_point + flip(tensor)


class Rescale(HighWords):
    """A `Requantize` in vectors of four sums."""

    def fits(self, low: Array, high: Array) -> bool:
        """Return True if sums from low to high can be scaled up, or if they are multiplied as floats."""
        return self.requantize.rounding == "litert" or super().fits(low, high)

    def table(self, start: Array, order: Array) -> Array:
        """Return int32[blocks, 3, width]: starts, multipliers and shifts of each block of channels, padded with zeros.

        start: int64[K], taken modulo 2^32. order: int[width], the channel of a block in each lane.
        """
        width, num_channels = len(order), len(start)
        multiplier, shift = (np.broadcast_to(array, num_channels) for array in self.factors())
        rows = np.zeros((3, -(-num_channels // width) * width), dtype=np.int32)
        rows[2] = -1
        rows[:, :num_channels] = wrapped(start), multiplier, shift
        return np.ascontiguousarray(rows.reshape(3, -1, width).transpose(1, 0, 2)[:, :, order])

    def members(self) -> dict[str, Value]:
        """Return a `tvm_ext_helium_rescale`."""
        finish = self.requantize
        members: dict[str, Value] = {"rounds_twice": True, "rounds_up": self._rounds_up} if self.is_twice else {}
        members |= {"in_floats": True} if finish.rounding == "litert" else {}
        if self.halves_even:
            members |= {"has_ties": True}
        if self.left_shift:
            members |= {"left_shift": self.left_shift}
        return {**members, "zero_point": quantization(finish.output).zero_point, "low": finish.low, "high": finish.high}

    @property
    def _rounds_up(self) -> bool:
        """True if halves may round up: negative sums are clamped, and every factor leaves a shift."""
        shifts = self.requantize.shift[self.requantize.mantissa > 0]
        return self.requantize.clamps_negatives and bool((shifts > DOUBLED_BITS).all())

    @property
    def instructions(self) -> int:
        """Modelled instructions of the rescaling of four sums."""
        if self.is_twice:
            return 2 if self._rounds_up else 5
        if self.requantize.rounding == "litert":
            return 3
        return 2 + (6 if self.halves_even else 0) + (1 if self.left_shift else 0)


# Integer product with constant weights for Helium: two rows by four output channels, 16 products at a time.
#
# Dense layers and convolutions share it: a row is a pixel's window, as one run of bytes or several. Every sum stays in
# its own general register; four complete sums become a vector. Depths that are no multiple of 16 are read from padded
# copies, with zero weights for the padding. The loops are in tvm_ext_helium_channels.h.

STEP = 16
CHANNEL_BLOCK = 4
# Steps that are unrolled in one run of instructions.
MOST_STEPS = {"speed": 12, "size": 2}
STEP_BLOCKS: tuple[Block, ...] = ((2,), (4,), (8,), (20,))
# Modelled instructions, by rows: of a step, of a block of four channels around its steps, of a call.
STEP_INSTRUCTIONS = {2: 14, 1: 9}
BLOCK_INSTRUCTIONS = {2: 29, 1: 17}
CALL_INSTRUCTIONS = {2: 30, 1: 4}
# Additional instructions per step for weights of 4 bits: two loads less, four instructions that unpack them.
NIBBLE_INSTRUCTIONS = 2


def step_blocks(operator: Operator, target: Target) -> tuple[Block, ...]:
    """Return the numbers of unrolled steps that `Product.of` supports; none for small code."""
    return STEP_BLOCKS if target.optimize == "speed" else ()


def padded(depth: int) -> int:
    """Return the depth padded to whole steps."""
    return -(-depth // STEP) * STEP


def pack(weight: Array) -> Array:
    """Pack int8[K, ...] as int8[ceil(K / 4), ceil(depth / 16), 4, 16], padded with zeros."""
    flat = weight.reshape(weight.shape[0], -1)
    full = np.zeros((-(-flat.shape[0] // CHANNEL_BLOCK) * CHANNEL_BLOCK, padded(flat.shape[1])), dtype=np.int8)
    full[: flat.shape[0], : flat.shape[1]] = flat
    return np.ascontiguousarray(full.reshape(-1, CHANNEL_BLOCK, full.shape[1] // STEP, STEP).transpose(0, 2, 1, 3))


def pack_nibbles(weight: Array) -> Array:
    """Pack int8[K, ...] from -8 to 7 in the order of `pack`, two channels in a byte:

    int8[ceil(K / 4), steps, 2, 16].
    """
    full = pack(weight)
    return pack_pairs(full[:, :, 0::2], full[:, :, 1::2]).view(np.int8)


def nibble_sums_fit(weight: Array) -> bool:
    """Return True if 16 times the products of each channel and int8 fit an int32."""
    magnitude = np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(axis=1)
    return int(magnitude.max(initial=0)) * 128 * 16 < 1 << 31


@dataclass(frozen=True, kw_only=True, eq=False)
class Product:
    """`runs` runs of `run_bytes` each (a multiple of 16 if there are several) times `channels` channels.

    in_nibbles: weights of 4 bits.
    """

    runs: int
    run_bytes: int
    channels: int
    rescale: Rescale
    most_steps: int
    in_nibbles: bool = False

    @classmethod
    def of(
        cls, *, runs: int, run_bytes: int, channels: int, rescale: Rescale, target: Target, in_nibbles: bool = False
    ) -> Product:
        most = target.block[0] if target.block else MOST_STEPS[target.optimize]
        return cls(
            runs=runs, run_bytes=run_bytes, channels=channels, rescale=rescale, most_steps=most, in_nibbles=in_nibbles
        )

    @property
    def steps(self) -> int:
        """Steps of one run."""
        return -(-self.run_bytes // STEP)

    @property
    def _group(self) -> int:
        """Unrolled steps: all, else the largest divisor of a run's steps above half of the limit, else the limit."""
        if self.runs * self.steps <= self.most_steps:
            return self.runs * self.steps
        most = min(self.steps, self.most_steps)
        return next((g for g in range(most, self.most_steps // 2, -1) if self.steps % g == 0), most)

    def constants(self, weight: Array, start: Array) -> tuple[tuple[str, Array], ...]:
        """Return the packed weights, and the table of starts, multipliers and shifts."""
        table = self.rescale.table(start, np.arange(CHANNEL_BLOCK))
        return (("weights", pack_nibbles(weight) if self.in_nibbles else pack(weight)), ("factors", table))

    def instructions(self, rows: int) -> int:
        """Return the modelled instructions of one call for one or two rows."""
        loops = 0 if self.runs * self.steps <= self.most_steps else self.runs * -(-self.steps // self.most_steps) * 8
        step = STEP_INSTRUCTIONS[rows] + (NIBBLE_INSTRUCTIONS if self.in_nibbles else 0)
        each = self.runs * self.steps * step + loops
        each += BLOCK_INSTRUCTIONS[rows] + rows * (self.rescale.instructions - 2)
        return CALL_INSTRUCTIONS[rows] + -(-self.channels // CHANNEL_BLOCK) * each

    def members(self) -> dict[str, Value]:
        """Return a `tvm_ext_helium_product`."""
        stored: dict[str, Value] = {"has_nibbles": True} if self.in_nibbles else {}
        stored |= {"holds_sums": True} if holds_sums(self.rescale.requantize.output) else {}
        return {
            "runs": self.runs, "steps": self.steps, "group_steps": self._group, "channels": self.channels, **stored,
            "rescale": self.rescale.members(),
        }  # fmt: skip

    def function(self, rows: int) -> str:
        """Return `$_two` or `$_one`, a tvm_ext_helium_two or a tvm_ext_helium_one of the layer's product."""
        tables = ["const int8_t *restrict weights", "const int32_t *restrict factors"]
        if rows == 1:
            call = "tvm_ext_helium_channels(&$_layer.product, x0, x0, 0, y0, y0, weights, factors, 1);"
            return apart("$_one", ["const int8_t *x0", "uint8_t *y0", *tables], [call])
        places = ["const int8_t *x0", "const int8_t *x1", "int32_t skip", "uint8_t *y0", "uint8_t *y1"]
        call = "tvm_ext_helium_channels(&$_layer.product, x0, x1, skip, y0, y1, weights, factors, 2);"
        return apart("$_two", [*places, *tables], [call])


PARAMETERS = (
    Parameter(name="weights", ctype="int8_t", role="constant"),
    Parameter(name="factors", ctype="int32_t", role="constant"),
)


# The window of one output pixel, copied into scratch for the Helium kernels: its bytes, its cost, the function.
#
# In scratch a pixel's channels are `depth` bytes apart, at least as many as there are; bytes between are not written.
# Elements become int8: uint8 is converted during the copy. Padding is the input's zero point. tvm_ext_helium_patch.h
# copies.

IM2COL_INCLUDES = ("tvm_ext_helium_patch.h",)


@dataclass(frozen=True, kw_only=True)
class Im2col:
    """The window of one output pixel, int8[R, S, depth]."""

    window: Window
    source: TensorType
    depth: int

    @property
    def num_bytes(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1] * self.depth

    @property
    def instructions(self) -> int:
        """Modelled instructions of one copy."""
        rows, columns = self.window.kernel
        fill = self.num_bytes // 16 if any(self.window.padding) else 0
        if self._is_run:
            return 25 + fill + rows * (8 + columns * self.depth * 3 // 16)
        return 25 + fill + rows * (8 + columns * (9 + self.depth * 3 // 16))

    @property
    def _is_run(self) -> bool:
        """True if a row of the window is one run of bytes, in the input and in scratch."""
        return self.window.dilation[1] == 1 and self.depth == self.source.shape[3]


def patch_function(copy: str, layer: str, stored: StoredRows) -> str:
    """Return `$_patch`, a tvm_ext_helium_patch. copy: function of the layer's header; layer: its structure."""
    rings, address = with_rings(layer, StoredRows(inputs=stored.inputs))
    parameters = ["int8_t *restrict patch", "const uint8_t *input", "int32_t h", "int32_t w"]
    return apart("$_patch", parameters, [*rings, f"{copy}({address}, patch, input, h, w);"])
