"""Dense layer of a QDQ chain, integers only: activations of 8 or 16 bits, weights of 4, 8 or 9 bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, structure
from codegen_c.kernels.contract import (
    Accumulating,
    CFunction,
    Implementation,
    Kernel,
    Parameter,
    Passes,
    StoredRows,
    Target,
)
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense.dense_rows import in_rows, num_calls, row_counts
from codegen_c.kernels.shared.bit_widths import (
    NineBits,
    all_channels,
    four_bit_weights,
    has_few_weights,
    nine_bit_weights,
    weighted,
    wide_kernel,
)
from codegen_c.kernels.shared.common_shift import by_high_products
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, image, rescale, shapes, with_rings
from codegen_c.kernels.shared.requantize import (
    Products,
    Requantize,
    channel_factors,
    integer_weights,
    quantized_bytes,
    results_fit,
    scale_of,
    sum_rounding,
    wide_sums,
)
from codegen_c.kernels.shared.sums import bytes_or_sums
from codegen_c.kernels.shared.vector_rows import Rows
from codegen_c.kernels.shared.window import CHANNEL_BLOCK, ROW_PARAMETERS, accumulated, pack_blocks
from codegen_c.operators.kinds import Array, PackedQConv2d, PackedQDense, QDense, TensorType, Window

# Dense layer of a QDQ chain, integers only: four output channels at a time.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], sums in int32; qdense.py computes 16-bit activations
# by the same loops. A sum starts at its bias, from which the input's zero point times the weights is taken off
# beforehand, and adds x * w with c ascending. Either rounding.

LAYER = "tvm_ext_qdense_layer"
REQUANTIZE_INSTRUCTIONS = 20
PART_INSTRUCTIONS = 6
"""Instructions per sum in each call that adds to it: loading and storing it."""


def reference(operator: QDense, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    sums = inputs[0].astype(np.int64) @ operator.weight.astype(np.int64).T + products(operator).start
    return [requantize(operator).run(sums)]


def sums_fit(operator: QDense, target: Target) -> bool:
    """bias and products must add up to no more than an int32 holds, whatever the input"""
    return products(operator).fit_int32()


def rescaled_sums_fit(operator: QDense, target: Target) -> bool:
    """weight scales must be finite, not negative, and no sum may reach 2^30 steps of the output"""
    return results_fit(*products(operator).range(), channel_factors(operator))


def products(operator: QDense) -> Products:
    """Weights and starts of the sums."""
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=False)


def bounds(operator: QDense) -> tuple[Array, Array]:
    """Return the least and the largest sum of each channel."""
    return products(operator).range()


def wide(operator: QDense) -> Products | None:
    """The sums, where they have 64 bits."""
    return wide_sums(operator.inputs[0], lambda: products(operator))


def requantize(operator: QDense) -> Requantize:
    sums = wide(operator)
    return Requantize.of(
        layer_factors(operator), output=operator.output, low=operator.low, high=operator.high,
        rounding=sum_rounding(operator), largest=sums.largest if sums else 0,
    )  # fmt: skip


def rescaling(operator: QDense) -> Requantize:
    """Requantization as plain C does it."""
    return (
        requantize(operator) if wide(operator) else by_high_products(requantize(operator), *products(operator).range())
    )


def layer_factors(operator: QDense) -> np.ndarray:
    """Output steps of one unit of each channel's sum, float64[K].

    TensorFlow Lite multiplies the two scales of a fully connected layer in single precision where all channels share
    them.
    """
    scale = operator.weight_scale
    if operator.rounding == "onnx" or operator.scale_product == "double" or np.unique(scale).size > 1:
        return channel_factors(operator)
    products = np.float32(scale_of(operator.inputs[0])) * scale
    return products.astype(np.float64) / scale_of(operator.output)


def implement(operator: QDense, target: Target, stored: StoredRows) -> Implementation:
    finish, is_wide = rescaling(operator), wide(operator) is not None

    def row(part: QDense, rows: Rows) -> Implementation:
        return replace(whole, function=_function(part, finish, is_wide=is_wide), instructions=_instructions(part))

    macs = operator.output.num_elements * operator.weight.shape[1]
    whole = Implementation(
        kernel=QDENSE.name,
        function=_function(operator, finish, is_wide=is_wide),
        reference=lambda inputs: reference(operator, inputs),
        constants=constants_of(operator, finish),
        macs=macs,
        instructions=_instructions(operator),
        passes=Passes.of_product(
            macs,
            operator.inputs[0].num_elements,
            operator.output.num_elements // operator.output.shape[-1],
            pixels=1,
            channels=CHANNEL_BLOCK,
        ),
        accumulation="bias, then c ascending",
        exact=True,
        accumulating=accumulating(operator),
    )
    return replace(whole, in_rows=in_rows(operator, row))


def constants_of(operator: QDense, finish: Requantize) -> tuple[tuple[str, np.ndarray], ...]:
    weights = pack_blocks(operator.weight[:, np.newaxis, np.newaxis, :], CHANNEL_BLOCK)
    return (("weights", weights), ("bias", products(operator).bias), *finish.constants())


def _instructions(operator: QDense) -> int:
    elements, depth = operator.output.num_elements, operator.weight.shape[1]
    return elements * depth * (1 + 2 * CHANNEL_BLOCK) // CHANNEL_BLOCK + elements * REQUANTIZE_INSTRUCTIONS


def _function(operator: QDense, finish: Requantize, *, is_wide: bool = False) -> CFunction:
    """is_wide: the layer's sums have 64 bits; `operator` may be a part of it."""
    return CFunction(
        parameters=(
            Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
            Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
            Parameter(name="weights", ctype="int8_t", role="constant"),
            Parameter(name="bias", ctype="int64_t" if is_wide else "int32_t", role="constant"),
            *finish.parameters(),
        ),
        body=_body(operator, finish, is_wide=is_wide),
        includes=("tvm_ext_qdense.h", *BLOCK_INCLUDES),
    )


def _body(operator: QDense, finish: Requantize, *, is_wide: bool) -> str:
    """The layer's shapes, and the loops of tvm_ext_qdense.h."""
    channels, depth = operator.weight.shape
    shapes = _shapes(operator, operator.output.num_elements // channels, depth, rescale(finish, wide=is_wide))
    call = "tvm_ext_qdense(&layer, input, output, weights, bias, multiplier, shift);"
    return "\n".join([*structure(LAYER, "layer", shapes), *finish.tables(), call])


def _shapes(operator: QDense, rows: int, depth: int, finish: dict[str, Value]) -> dict[str, Value]:
    """A `tvm_ext_qdense_layer`, with so many vectors, or parts of one, of `depth` elements."""
    channels = operator.weight.shape[0]
    vectors = replace(operator.inputs[0], shape=(1, rows, 1, depth))
    results = replace(operator.output, shape=(1, operator.output.num_elements // channels, 1, channels))
    return {"input": image(vectors), "output": image(results), "rescale": finish}


def accumulating(operator: QDense) -> Accumulating | None:
    """A layer of one vector takes its elements as they come."""
    counts = row_counts(operator)
    if not counts or wide(operator):
        return None
    return Accumulating(row_counts=counts, implement=lambda count, stored: _in_parts(operator, count, stored))


def sums_reference(operator: QDense, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The result, and the sums it is made of, int32[1, K]."""
    sums = inputs[0].reshape(1, -1).astype(np.int64) @ operator.weight.astype(np.int64).T + products(operator).start
    return [*reference(operator, inputs), sums.astype(np.int32)]


def _in_parts(operator: QDense, count: int, stored: StoredRows) -> Implementation:
    """Sums of `count` equal parts of the input; the last call finishes them."""
    finish, channels = rescaling(operator), operator.weight.shape[0]
    whole = _function(operator, finish)
    source, output, *constants = whole.parameters
    sums = Parameter(name="sums", ctype="int32_t", role="output")
    rings, layer = with_rings(LAYER, stored)
    shapes_of_parts = shapes(LAYER, _shapes(operator, count, operator.weight.shape[1] // count, rescale(finish)))
    arguments = f"{layer}, input, output, sums, weights, bias, multiplier, shift, row_begin, row_end"
    body = "\n".join([*rings, *finish.tables(), f"tvm_ext_qdense_add({arguments});"])
    return Implementation(
        kernel=f"{QDENSE.name}_in_parts",
        function=replace(
            whole, parameters=(source, output, sums, *constants, *ROW_PARAMETERS), body=body, helpers=shapes_of_parts
        ),
        reference=lambda inputs: sums_reference(operator, inputs),
        constants=constants_of(operator, finish),
        macs=operator.weight.size,
        instructions=_instructions(operator) + num_calls(count, stored) * channels * PART_INSTRUCTIONS,
        accumulation="bias, then c ascending",
        spatial=accumulated(count),
        exact=True,
        sums=TensorType(shape=(1, channels), dtype="int32"),
    )


_WEIGHTS = (integer_weights, sums_fit, rescaled_sums_fit)
CONSTRAINTS = (quantized_bytes, *_WEIGHTS)
"""Constraints of kernels whose result is elements."""
SUMS_TOO = (bytes_or_sums, *_WEIGHTS)
"""Constraints of kernels that leave sums to others as well."""
QDENSE = Kernel(
    name="qdense_i8",
    operator=QDense,
    implement=implement,
    constraints=SUMS_TOO,
)


# Dense layer of a QDQ chain on 16-bit activations, integers only: py by its own loops.
#
# int16 or uint16[..., C], int8[K, C] -> int16 or uint16[..., K]; sums and rounding as in qconv2d.py.

QDENSE_I16 = wide_kernel("qdense_i16", QDENSE, *weighted(products, layer_factors))


# Dense layer of a QDQ chain whose weights need 9 bits, integers only, in plain C: four output channels at a time.
#
# int8 or uint8[..., C], weights[K, C] from -255 to 255 -> int8 or uint8[..., K], sums in int32. A sum starts at its
# bias, from which the input's zero point times the weights is taken off beforehand, and adds x * w with c ascending.
# Either rounding.


def qdense_nine_bits_implement(operator: QDense, target: Target, stored: StoredRows) -> Implementation:
    return all_channels(
        QDENSE_NINE_BITS.name, operator, bits_of(operator), stored, lambda inputs: reference(operator, inputs)
    )


def bits_of(operator: QDense, channels: Array | None = None) -> NineBits:
    """The layer's channels: all, or these."""
    return NineBits.of(operator, products(operator), requantize(operator), channels)


QDENSE_NINE_BITS = Kernel(
    name="qdense_nine_bits",
    operator=QDense,
    implement=qdense_nine_bits_implement,
    constraints=(quantized_bytes, nine_bit_weights, has_few_weights, sums_fit, rescaled_sums_fit),
)


# Dense layer of a QDQ chain whose weights have 4 bits each, integers only: a convolution of one column by 1x1.
#
# int8 or uint8[..., C], 4 bits[K, C] -> int8 or uint8[..., K], sums in int32. Results are those of py on the same
# weights as int8, bit for bit.


def qdense_packed_implement(operator: PackedQDense, target: Target, stored: StoredRows) -> Implementation:
    plain, finish = implement(operator, target, stored), rescaling(operator)
    rows = operator.output.num_elements // operator.weight.shape[0]
    column = as_column(operator)
    weights = qconv2d.pack(operator.weight[:, np.newaxis, np.newaxis, :], CHANNEL_BLOCK)
    arguments = f"&$_layer, input, output, weights, bias, multiplier, shift, 0, {rows}"
    return replace(
        plain,
        kernel=QDENSE_PACKED.name,
        function=CFunction(
            parameters=plain.function.parameters,
            body="\n".join([*finish.tables(), f"tvm_ext_qconv2d({arguments});"]),
            helpers=qconv2d.LOOPS.shapes(column, StoredRows(), qconv2d.members(column, finish)),
            includes=qconv2d.LOOPS.includes,
        ),
        constants=(("weights", weights), *plain.constants[1:]),
        instructions=plain.instructions + plain.macs * qconv2d.NIBBLE_INSTRUCTIONS,
        in_rows=None,
        accumulating=None,
    )


def as_column(operator: PackedQDense) -> PackedQConv2d:
    """The layer as a convolution: vectors are the rows of an image of one column."""
    channels, depth = operator.weight.shape
    rows = operator.output.num_elements // channels
    return PackedQConv2d(
        inputs=(replace(operator.inputs[0], shape=(1, rows, 1, depth)),),
        outputs=(replace(operator.output, shape=(1, rows, 1, channels)),),
        weight=operator.weight.reshape(channels, 1, 1, depth), weight_scale=operator.weight_scale,
        bias=operator.bias, window=Window(kernel=(1, 1)), low=operator.low, high=operator.high,
        rounding=operator.rounding,
    )  # fmt: skip


QDENSE_PACKED_CONSTRAINTS = (four_bit_weights, *CONSTRAINTS)
QDENSE_PACKED = Kernel(
    name="qdense_packed",
    operator=PackedQDense,
    implement=qdense_packed_implement,
    constraints=QDENSE_PACKED_CONSTRAINTS,
)


KERNELS = (QDENSE, QDENSE_I16, QDENSE_NINE_BITS, QDENSE_PACKED)
