"""Kernels for quantized conv2d, integers only: activations of 8 or 16 bits, weights of 4, 8 or 9 bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.shared.bit_widths import (
    NineBits,
    all_channels,
    four_bit_weights,
    has_few_weights,
    nine_bit_weights,
    pack_pairs,
    weighted,
    wide_kernel,
)
from codegen_c.kernels.shared.common_shift import by_high_products
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, rescale
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.requantize import (
    Products,
    Requantize,
    channel_factors,
    integer_weights,
    quantization,
    quantized_bytes,
    results_fit,
    sum_rounding,
    wide_sums,
)
from codegen_c.kernels.shared.sums import bytes_or_sums
from codegen_c.kernels.shared.window import (
    CHANNEL_BLOCK,
    ROW_PARAMETERS,
    pack_blocks,
    taps,
)
from codegen_c.operators.kinds import Array, PackedQConv2d, QConv2d

# conv2d of a quantized network, integers only: one output pixel by four channels at a time.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C / groups] -> int8 or uint8[N, P, Q, K], sums in int32; 16-bit activations
# use the same loops. A sum starts at its bias and adds (x - zero point) * w in the order r, s, c ascending; products
# outside the input are skipped, because padding is a real zero. Either rounding.

LOOPS = Loops(
    function="tvm_ext_qconv2d", layer="tvm_ext_qconv2d_layer",
    includes=("tvm_ext_qconv2d.h", *BLOCK_INCLUDES),
    accumulation="bias, then r, s, c ascending", columns_at_once=1,
)  # fmt: skip
TABLES = ("weights", "bias", "multiplier", "shift")
# Modelled instructions around the products: of one run over adjacent taps, and of requantizing one sum.
RUN_INSTRUCTIONS = 8
REQUANTIZE_INSTRUCTIONS = 20
MOST_DIFFERENCE = 2**16
"""Largest difference of an element of 16 bits from a zero point."""


def reference(operator: QConv2d, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    output, groups, zero_point = operator.output.shape, operator.groups, quantization(operator.inputs[0]).zero_point
    weight = operator.weight.astype(np.int64).reshape(groups, output[3] // groups, *operator.weight.shape[1:])
    total = np.zeros((*output[:3], groups, output[3] // groups), dtype=np.int64)
    # Matrix products in float64 are several times as fast as sums of integers, and exact below 2^53.
    in_float64 = groups == 1 and np.abs(weight).sum(dtype=np.float64) < 2**53 / MOST_DIFFERENCE
    for r, s, x in taps(inputs[0], operator.window, (output[1], output[2]), zero_point):
        split = x.reshape(*x.shape[:3], groups, -1).astype(np.int64) - zero_point
        if in_float64:
            total += (split.astype(np.float64) @ weight[0, :, r, s].T.astype(np.float64)).astype(np.int64)
        else:
            total += np.einsum("nhwgc,gkc->nhwgk", split, weight[:, :, r, s])
    return [requantize(operator).run(total.reshape(output) + operator.bias)]


def is_ungrouped(operator: QConv2d, target: Target) -> bool:
    """the convolution must not have groups"""
    return operator.groups == 1


def sums_fit(operator: QConv2d, target: Target) -> bool:
    """the bias and all products must add up to a sum that fits int32, for every input"""
    return products(operator).fit_int32()


def rescaled_sums_fit(operator: QConv2d, target: Target) -> bool:
    """weight scales must be finite and not negative, and no sum may reach 2^30 steps of the output"""
    return results_fit(*products(operator).range(), channel_factors(operator))


def products(operator: QConv2d) -> Products:
    """Return weights and initial values of the sums; padding keeps the zero point out of the initial values."""
    padded = any(operator.window.padding)
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=padded)


def start_of(operator: QConv2d) -> Array:
    """Return the initial accumulators of x * w, int64[K]: the bias minus the zero point times the weights.

    Padding counts as elements that equal the zero point.
    """
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=False).start


def bounds(operator: QConv2d) -> tuple[Array, Array]:
    """Return the least and the largest sum of each channel."""
    return products(operator).range()


def wide(operator: QConv2d) -> Products | None:
    """Return the sums if they have 64 bits, else None."""
    return wide_sums(operator.inputs[0], lambda: products(operator))


def requantize(operator: QConv2d) -> Requantize:
    """Return the exact requantization, from which each target derives its own."""
    exact = requantize_sums(operator, wide(operator))
    return exact if exact.rounding != "litert" else exact.proved(*bounds(operator))


def rescaling(operator: QConv2d) -> Requantize:
    """Return the requantization of the plain C kernel: by high products if these give the same bits, else exact."""
    return (
        requantize(operator) if wide(operator) else by_high_products(requantize(operator), *products(operator).range())
    )


def requantize_sums(operator: QConv2d, sums: Products | None) -> Requantize:
    """Return the requantization of a convolution. sums: the sums if they have 64 bits."""
    return Requantize.of(
        channel_factors(operator), output=operator.output, low=operator.low, high=operator.high,
        rounding=sum_rounding(operator), largest=sums.largest if sums else 0,
    )  # fmt: skip


def parameters(operator: QConv2d, finish: Requantize, *, is_wide: bool = False) -> tuple[Parameter, ...]:
    """Return the parameters of a convolution:

    input, output, weights, bias, factors, rows. is_wide: sums have 64 bits.
    """
    return (
        Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
        Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
        Parameter(name="weights", ctype="int8_t", role="constant"),
        Parameter(name="bias", ctype="int64_t" if is_wide else "int32_t", role="constant"),
        *finish.parameters(),
        *ROW_PARAMETERS,
    )


def convolution_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    width, is_packed = width_of(operator), isinstance(operator, PackedQConv2d)
    finish, sums = rescaling(operator), products(operator)
    macs = operator.output.num_elements * operator.weight[0].size
    runs = operator.output.num_elements * operator.window.kernel[0] // width
    runs *= 1 if _is_one_run(operator) else operator.window.kernel[1]
    per_activation = 2 if sums.zero_point else 1
    weights = pack(operator.weight, width) if is_packed else pack_blocks(operator.weight, width)
    return Parts(
        parameters=parameters(operator, finish, is_wide=wide(operator) is not None)[2:-2],
        constants=(("weights", weights), ("bias", sums.bias), *finish.constants()),
        members=members(operator, finish),
        statements=finish.tables(),
        tables=TABLES,
        scratch=None,
        instructions=macs * (per_activation + 2 * width) // width
        + runs * RUN_INSTRUCTIONS
        + operator.output.num_elements * REQUANTIZE_INSTRUCTIONS
        + (macs * NIBBLE_INSTRUCTIONS if is_packed else 0),
        passes=Passes.of_product(
            macs,
            operator.inputs[0].num_elements,
            operator.output.num_elements // operator.output.shape[3],
            pixels=1,
            channels=width,
        ),
    )


def width_of(operator: QConv2d) -> int:
    """Return the number of channels computed together, which must read the same group."""
    per_group = operator.weight.shape[0] // operator.groups
    return CHANNEL_BLOCK if operator.groups == 1 or per_group % CHANNEL_BLOCK == 0 else 1


def _is_one_run(operator: QConv2d) -> bool:
    """Return True if all taps of a kernel row are adjacent in the input, as they are in the weights."""
    return operator.window.dilation[1] == 1 and operator.groups == 1


def members(operator: QConv2d, finish: Requantize) -> dict[str, Value]:
    """Return the members of a `tvm_ext_qconv2d_layer` beside its images and its window."""
    return {
        "groups": operator.groups,
        "block": width_of(operator),
        "rescale": rescale(finish, wide=wide(operator) is not None),
        **({"is_packed": True} if isinstance(operator, PackedQConv2d) else {}),
    }


_WEIGHTS = (integer_weights, sums_fit, rescaled_sums_fit)
CONSTRAINTS = (quantized_bytes, *_WEIGHTS)
"""Constraints of kernels that write requantized elements."""
SUMS_TOO = (bytes_or_sums, *_WEIGHTS)
"""Constraints of kernels that can also write sums for another kernel."""
CONVOLUTION = ProductKernel(loops=LOOPS, reference=reference, parts=convolution_parts)
QCONV2D = CONVOLUTION.kernel(
    Family(
        name="qconv2d_i8",
        title="Quantized convolution with activations and weights of 8 bits",
        operator=QConv2d,
        constraints=SUMS_TOO,
    )
)


# conv2d of a quantized network on 16-bit activations, integers only, by the loops of the 8-bit kernel.
#
# int16 or uint16[N, H, W, C], int8[K, R, S, C / groups] -> int16 or uint16[N, P, Q, K]. Sums have 32 bits if these
# suffice for every input, else 64. Rounding "tflite" is TensorFlow Lite's: if the bias has 64 bits, once, halves up, by
# a factor of 15 bits.

QCONV2D_I16_CONSTRAINTS = weighted(products, channel_factors)
QCONV2D_I16 = wide_kernel(
    "qconv2d_i16", "Quantized convolution with activations of 16 bits", QCONV2D, *QCONV2D_I16_CONSTRAINTS
)


# conv2d of a quantized network with weights of 9 bits, integers only, in plain C: up to four channels of a pixel at a
# time.
#
# int8 or uint8[N, H, W, C], weights[K, R, S, C / groups] from -255 to 255 -> int8 or uint8[N, P, Q, K], sums in int32.
# A sum starts at its bias and adds (x - zero point) * w in the order r, s, c ascending. Either rounding.


def qconv2d_nine_bits_implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    return all_channels(
        QCONV2D_NINE_BITS.name, operator, bits_of(operator), stored, lambda inputs: reference(operator, inputs)
    )


def bits_of(operator: QConv2d, channels: Array | None = None) -> NineBits:
    """Return the layer's channels: all, or the given ones."""
    return NineBits.of(operator, products(operator), requantize(operator), channels)


QCONV2D_NINE_BITS = Kernel(
    name="qconv2d_nine_bits",
    title="Quantized convolution with weights of 9 bits",
    operator=QConv2d,
    implement=qconv2d_nine_bits_implement,
    constraints=(quantized_bytes, nine_bit_weights, has_few_weights, sums_fit, rescaled_sums_fit),
)


# conv2d of a quantized network with weights of 4 bits, integers only: the loops of the 8-bit kernel, which unpack
# bytes.
#
# int8 or uint8[N, H, W, C], 4 bits[K, R, S, C / groups] -> int8 or uint8[N, P, Q, K], sums in int32. Results are those
# of the 8-bit kernel on the same weights as int8, bit for bit.

NIBBLE_INSTRUCTIONS = 1
"""Instructions per product that extract a weight from its byte; two weights share a load."""


def pack(weight: Array, width: int) -> Array:
    """Pack int8[K, ...] in the order of `pack_blocks`, two to a byte; each block of channels begins at a byte."""
    blocks = [pack_blocks(weight[k : k + width], width) for k in range(0, len(weight), width)]
    even = [np.append(block, np.zeros(block.size % 2, np.int8)) for block in blocks]
    return np.concatenate([pack_pairs(block[0::2], block[1::2]) for block in even]).view(np.int8)


QCONV2D_PACKED_CONSTRAINTS = (four_bit_weights, *CONSTRAINTS)
QCONV2D_PACKED = CONVOLUTION.kernel(
    Family(
        name="qconv2d_packed",
        title="Quantized convolution with weights of 4 bits",
        operator=PackedQConv2d,
        constraints=QCONV2D_PACKED_CONSTRAINTS,
    )
)


# conv2d of a quantized network, integers only: two neighbouring pixels by four channels at a time, for speed.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. Results and order of sums are
# those of the kernel for single pixels, whose loops compute the remaining pixels: the last of an odd row, and pixels
# whose windows leave the image to the left or right.

PAIR_RUN_INSTRUCTIONS = 20
"""Modelled instructions around the products of one row of a pair's window and a block of channels."""


def is_for_speed(operator: QConv2d, target: Target) -> bool:
    """separate loops for pairs and single pixels are for speed, not for size"""
    return target.optimize == "speed"


def has_pairs(operator: QConv2d, target: Target) -> bool:
    """all channels must be of one group, taps of a row adjacent, and two windows of a row inside the image"""
    return operator.groups == 1 and operator.window.dilation[1] == 1 and pairs_in_row(operator) > 0


def pairs_in_row(operator: QConv2d) -> int:
    """Return the pairs of pixels in a row whose windows lie inside the image from left to right."""
    window, columns = operator.window, operator.inputs[0].shape[2]
    first = -(-window.padding[1] // window.strides[1])
    inside = (columns - window.kernel[1] + window.padding[1]) // window.strides[1] + 1
    return (min(inside, operator.output.shape[2]) - first) // 2


def pairs_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    whole = convolution_parts(operator, target, stored)
    return replace(
        whole,
        instructions=_instructions(operator, whole.instructions),
        passes=Passes.of_product(
            operator.output.num_elements * operator.weight[0].size,
            operator.inputs[0].num_elements,
            operator.output.num_elements // operator.output.shape[3],
            pixels=2,
            channels=CHANNEL_BLOCK,
        ),
    )


def _instructions(operator: QConv2d, of_single_pixels: int) -> int:
    """Return the modelled instructions: a pair loads two elements and four weights for eight products."""
    columns, rows = operator.output.shape[2], operator.window.kernel[0]
    in_pairs = 2 * pairs_in_row(operator) / columns
    elements = 2 * (2 if products(operator).zero_point else 1)
    per_block = 2 * CHANNEL_BLOCK
    macs = in_pairs * (operator.output.num_elements * operator.weight[0].size)
    macs_cost = macs * (elements + CHANNEL_BLOCK + per_block) / per_block
    runs = in_pairs * operator.output.num_elements / per_block * rows * PAIR_RUN_INSTRUCTIONS
    ends = in_pairs * operator.output.num_elements * REQUANTIZE_INSTRUCTIONS
    return int((1 - in_pairs) * of_single_pixels + macs_cost + runs + ends)


QCONV2D_PAIRS_CONSTRAINTS = (is_for_speed, has_pairs, *SUMS_TOO)
PAIRS_LOOPS = replace(
    LOOPS,
    function="tvm_ext_qconv2d_pairs",
    includes=("tvm_ext_qconv2d_pairs.h", *LOOPS.includes),
    columns_at_once=2,
)
QCONV2D_PAIRS = ProductKernel(loops=PAIRS_LOOPS, reference=reference, parts=pairs_parts).kernel(
    Family(
        name="qconv2d_pairs_i8",
        title="Quantized convolution with activations and weights of 8 bits, two pixels of a row at a time",
        operator=QConv2d,
        constraints=QCONV2D_PAIRS_CONSTRAINTS,
    )
)


KERNELS = (QCONV2D, QCONV2D_I16, QCONV2D_NINE_BITS, QCONV2D_PACKED, QCONV2D_PAIRS)
