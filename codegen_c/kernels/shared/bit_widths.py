"""Weights of 4 and 9 bits, and activations of 16 bits: their storage, and the constraints of their kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, structure
from codegen_c.kernels.contract import CFunction, Constraint, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.common_shift import by_high_products
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, image, rescale, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.requantize import SCALES, Products, Requantize, is_quantized_integer
from codegen_c.kernels.shared.window import CHANNEL_BLOCK, ROW_PARAMETERS, pack_blocks, spatial
from codegen_c.operators.kinds import Array, Operator, PackedQConv2d, PackedQDense, QConv2d, QDense, Window

# Weights of 4 bits, two to a byte. Each kernel chooses the pairs by the instructions that unpack them.

LOW, HIGH = -8, 7


def fits_four_bits(weight: Array) -> bool:
    """Return True for integers from -8 to 7."""
    return weight.size > 0 and int(weight.min()) >= LOW and int(weight.max()) <= HIGH


def four_bit_weights(operator: PackedQConv2d | PackedQDense, target: Target) -> bool:
    """weights stored in 4 bits must lie between -8 and 7"""
    return fits_four_bits(operator.weight)


def pack_pairs(low: Array, high: Array) -> Array:
    """Pack int8 pairs from -8 to 7 into uint8: `low` in the lower four bits, `high` in the upper, two's complement."""
    return ((low.astype(np.int16) & 15) | ((high.astype(np.int16) & 15) << 4)).astype(np.uint8)


# Constraints of integer kernels on activations of 16 bits, and a kernel made from the one for 8 bits.
#
# The loops are the same: the layer's structure contains the widths of elements and sums.

WORDS = ("int16", "uint16")
MOST_SUM = 1 << 47
"""Limit of sums: times a mantissa of 15 bits, they stay below 2^62."""
LEAST_SUM = 1 << 16
"""Lower bound of assumed sums, which keeps a factor below 2^14: with 15 bits it then shifts to the right."""


def quantized_words(operator: Operator, target: Target) -> bool:
    """activations must be int16 or uint16 with one scale, finite and above zero, and a zero point of that type"""
    return all(is_quantized_integer(tensor, WORDS) for tensor in (*operator.inputs, *operator.outputs))


def integer_weights(operator: QConv2d | QDense, target: Target) -> bool:
    """weights must be int8, their scales float32 or float64 and the bias int32 or int64"""
    return operator.weight.dtype == "int8" and operator.weight_scale.dtype in SCALES and (
        operator.bias.dtype in ("int32", "int64")
    )  # fmt: skip


def weighted(products: Callable[[Any], Any], factors: Callable[[Any], np.ndarray]) -> tuple[Constraint, ...]:
    """Return the constraints of a layer with weights.

    products, factors: its sums, and output steps of one unit of each.
    """

    def sums_fit(operator: QConv2d | QDense, target: Target) -> bool:
        """bias and products must add up to less than 2^47; in rounding "tflite" with a 32-bit bias, below 2^31"""
        if operator.rounding == "tflite" and operator.bias.dtype == np.int32:
            return products(operator).fit_int32()
        return products(operator).largest < MOST_SUM

    def rescaled_sums_fit(operator: QConv2d | QDense, target: Target) -> bool:
        """weight scales must be finite and not negative, and no sum may reach 2^30 steps of the output"""
        low, high = products(operator).range()
        real = factors(operator)
        if not (np.isfinite(real).all() and (real >= 0).all()):
            return False
        largest = np.maximum(np.maximum(np.abs(low), np.abs(high)), LEAST_SUM)
        return bool((largest * real < 1 << 30).all())

    return quantized_words, integer_weights, sums_fit, rescaled_sums_fit


def _named(
    implement: Callable[[int, StoredRows], Implementation], name: str
) -> Callable[[int, StoredRows], Implementation]:
    return lambda rows, stored: replace(implement(rows, stored), kernel=name)


def wide_kernel(name: str, title: str, narrow: Kernel, *constraints: Constraint) -> Kernel:
    """Return a kernel for 16 bits that uses the loops of the kernel for 8 bits."""

    def implement(operator: Operator, target: Target, stored: StoredRows) -> Implementation:
        made = narrow.implement(operator, target, stored)
        parts = made.accumulating
        named = replace(parts, implement=_named(parts.implement, f"{name}_in_parts")) if parts else None
        return replace(made, kernel=name, accumulating=named)

    return Kernel(name=name, title=title, operator=narrow.operator, implement=implement, constraints=constraints)


# Layers whose weights need 9 bits: unsigned bytes whose zero point is not in the middle, from -255 to 255.
#
# They are stored as bytes and an offset for each channel, which is multiplied by the sum of the elements.
#
# Their channels are computed in plain C: all of a layer (`all_channels`), or some of them beside a kernel for int8,
# which kernels/beside_int8.py combines.

Reference = Callable[[list[Array]], list[Array]]

NINE_BITS = "int16"
"""Element type of weights that need 9 bits."""
UINT8_MAX = 255
MOST_WEIGHTS = 1 << 15
"""Limit of a channel's weights for which products with elements, and the offset times the elements, fit int32 each."""
INCLUDES = ("tvm_ext_nine_bits.h", *BLOCK_INCLUDES)
_LAYER = "tvm_ext_nine_bits_layer"
_CONSTANTS = "tvm_ext_nine_bits_constants"
_SHAPES = "$_nine_bits"
_PREFIX = "nine_bit_"
REQUANTIZE_INSTRUCTIONS = 20
RUN_INSTRUCTIONS = 12


def nine_bit_weights(operator: QConv2d | QDense, target: Target) -> bool:
    """weights must need 9 bits and come from bytes, their scales be float32 and the bias int32"""
    types = (operator.weight.dtype, operator.weight_scale.dtype, operator.bias.dtype)
    return types == (NINE_BITS, "float32", "int32") and bool((_spans(operator.weight) <= UINT8_MAX).all())


def has_few_weights(operator: QConv2d | QDense, target: Target) -> bool:
    """each of at most 65,535 channels must have 32,768 weights or fewer"""
    return len(operator.weight) < 1 << 16 and operator.weight[0].size <= MOST_WEIGHTS


def _spans(weight: Array) -> Array:
    """Return the difference between the largest and the least weight of each channel."""
    rows = weight.reshape(weight.shape[0], -1).astype(np.int64)
    return rows.max(axis=1) - rows.min(axis=1)


def split_weights(weight: Array) -> tuple[Array, Array]:
    """Return int8[K, ...] and int16[K] offsets, which add up to the weights, int16[K, ...] that come from bytes."""
    rows = weight.reshape(weight.shape[0], -1).astype(np.int64)
    above, below = np.maximum(rows.max(axis=1) - 127, 0), np.minimum(rows.min(axis=1) + 128, 0)
    offsets = above + below  # one of them is 0
    rest = weight - offsets.reshape(-1, *[1] * (weight.ndim - 1))
    return rest.astype(np.int8), offsets.astype(np.int16)


@dataclass(frozen=True, kw_only=True, eq=False)
class NineBits:
    """All channels of a layer, or some of them, in the form of the C code.

    convolution: the layer; a dense layer as a convolution over its vectors as rows of an image. channels: of its
    output. weight, offsets, bias, finish: of these channels; weights minus their offsets are int8[K, R, S, C / groups].
    """

    convolution: QConv2d
    channels: Array
    weight: Array
    offsets: Array
    bias: Array
    finish: Requantize

    @classmethod
    def of(cls, operator: QConv2d | QDense, products: Products, exact: Requantize, channels: Array | None) -> Self:
        """Return the channels of a layer.

        products, exact: sums of the whole layer, and their requantization. channels: None for all of them.
        """
        chosen = np.arange(operator.output.shape[-1]) if channels is None else channels
        low, high = (bounds[chosen] for bounds in products.range())
        if not exact.is_uniform:
            exact = replace(exact, mantissa=exact.mantissa[chosen], shift=exact.shift[chosen])
        weight, offsets = split_weights(operator.weight[chosen])
        return cls(
            convolution=operator if isinstance(operator, QConv2d) else _over_vectors(operator),
            channels=chosen,
            weight=weight if weight.ndim == 4 else weight[:, None, None, :],
            offsets=offsets,
            bias=products.start[chosen].astype(np.int32),
            finish=by_high_products(exact, low, high),
        )

    @property
    def block(self) -> int:
        """Number of channels computed together, which must read the same group."""
        return CHANNEL_BLOCK if self.convolution.groups == 1 else 1

    @property
    def macs(self) -> int:
        pixels = self.convolution.output.num_elements // self.convolution.output.shape[3]
        return pixels * self.weight.size

    def instructions(self) -> int:
        """Return the modelled instructions of the sums and their elements."""
        elements = self.macs // self.weight[0].size
        side_by_side = min(self.block, len(self.channels))
        runs = self.macs // self.weight[0, 0].size // side_by_side
        per_element = 2 if any(self.convolution.window.padding) else 1
        products = self.macs * (per_element + 1 + 2 * side_by_side) // side_by_side
        return products + runs * RUN_INSTRUCTIONS + elements * REQUANTIZE_INSTRUCTIONS

    def constants(self, *, with_channels: bool) -> tuple[tuple[str, Array], ...]:
        """Return the tables in the order of the function's parameters."""
        found = [("channels", self.channels.astype(np.uint16))] if with_channels else []
        found += [("weights", pack_blocks(self.weight, self.block)), ("offsets", self.offsets), ("bias", self.bias)]
        return tuple((f"{_PREFIX}{name}", array) for name, array in (*found, *self.finish.constants()))

    def parameters(self, *, with_channels: bool) -> tuple[Parameter, ...]:
        return tuple(
            Parameter(name=role, ctype=C_TYPES[str(array.dtype)], role="constant")
            for role, array in self.constants(with_channels=with_channels)
        )

    def definition(self, stored: StoredRows) -> str:
        """Return the definition of `$_nine_bits`, the shapes of the layer."""
        convolution = self.convolution
        members: dict[str, Value] = {
            "input": image(convolution.inputs[0]), "output": image(convolution.output, stored=stored),
            "window": sliding_window(convolution.window), "groups": convolution.groups,
            "count": len(self.channels), "block": self.block, "rescale": rescale(self.finish),
        }  # fmt: skip
        return shapes(_LAYER, members, name=_SHAPES)

    def statements(self, stored: StoredRows, *, with_channels: bool) -> tuple[list[str], str]:
        """Return statements that define the first argument of the header's functions, and that argument."""
        rings, layer = with_rings(_LAYER, stored, shapes=_SHAPES, name="nine_bits")
        tables = [line.replace(" multiplier[", f" {_PREFIX}multiplier[").replace(" shift[", f" {_PREFIX}shift[")
                  for line in self.finish.tables()]  # fmt: skip
        names = ("channels", "weights", "offsets", "bias", "multiplier", "shift")
        members = {f"{name}s" if name in ("multiplier", "shift") else name: f"{_PREFIX}{name}" for name in names}
        if not with_channels:
            members["channels"] = "NULL"
        return [*rings, *tables, *structure(_CONSTANTS, "nine_bit_tables", members)], layer


def all_channels(
    kernel: str, operator: QConv2d | QDense, bits: NineBits, stored: StoredRows, reference: Reference
) -> Implementation:
    """Return the layer in plain C, with all its channels."""
    statements, layer = bits.statements(stored, with_channels=False)
    is_image = isinstance(operator, QConv2d)
    rows = "row_begin, row_end" if is_image else f"0, {bits.convolution.output.shape[1]}"
    call = f"tvm_ext_nine_bits({layer}, input, output, &nine_bit_tables, {rows});"
    return Implementation(
        kernel=kernel,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *bits.parameters(with_channels=False),
                *(ROW_PARAMETERS if is_image else ()),
            ),
            body="\n".join([*statements, call]),
            helpers=bits.definition(stored),
            includes=INCLUDES,
        ),
        reference=reference,
        constants=bits.constants(with_channels=False),
        macs=bits.macs,
        instructions=bits.instructions(),
        accumulation="bias, then r, s, c ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output)
        if isinstance(operator, QConv2d)
        else None,
        exact=True,
        pitched=is_image,
        row_pitched=is_image,
    )


def _over_vectors(operator: QDense) -> QConv2d:
    """Return a dense layer as a 1x1 convolution; the factors of its scales stay those of the dense layer."""
    channels, depth = operator.weight.shape
    rows = operator.output.num_elements // channels
    return QConv2d(
        inputs=(replace(operator.inputs[0], shape=(1, rows, 1, depth)),),
        outputs=(replace(operator.output, shape=(1, rows, 1, channels)),),
        weight=operator.weight[:, None, None, :], weight_scale=operator.weight_scale, bias=operator.bias,
        window=Window(kernel=(1, 1)), low=operator.low, high=operator.high, rounding=operator.rounding,
    )  # fmt: skip
