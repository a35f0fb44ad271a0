"""Kernels for quantized conv2d and 1x1 conv2d with Helium, with weights of 8 or 4 bits."""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Passes, SharedWindows, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.conv_f32 import inner_columns
from codegen_c.kernels.convolution.qconv2d import QCONV2D_PACKED_CONSTRAINTS
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel, room_for_sums
from codegen_c.kernels.shared.shared_windows import has_whole_image
from codegen_c.operators.kinds import Array, PackedQConv2d, QConv2d
from codegen_c.targets.helium.kernels.product import (
    CHANNEL_BLOCK,
    PARAMETERS,
    PRODUCT_INCLUDES,
    STEP,
    Im2col,
    Product,
    Rescale,
    flip,
    nibble_sums_fit,
    padded,
    patch_function,
    signed_zero_point,
    step_blocks,
)
from codegen_c.targets.helium.kernels.product import IM2COL_INCLUDES as PATCH_INCLUDES

# Quantized conv2d with Helium: two output pixels by four channels at a time.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. If a row of the window is a
# whole number of vectors, pixels whose window lies inside the input are read in place; windows of all other pixels are
# copied to scratch first, with the zero point as padding. Rounding "onnx".

LAYER = "tvm_ext_helium_conv2d_layer"
LOOPS = Loops(
    function="tvm_ext_helium_conv2d", layer=LAYER,
    includes=("tvm_ext_helium_conv2d.h", *PATCH_INCLUDES, *PRODUCT_INCLUDES),
    accumulation="products with r, s, c ascending in vectors of 16, then bias", row_pitched=False,
)  # fmt: skip
# Modelled instructions of copying a window whose rows are at most a vector: around its rows, and of one row.
SHORT_COPY, SHORT_ROW = 14, 5


def rescale(operator: QConv2d) -> Rescale:
    return Rescale.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())


sums_leave_room = room_for_sums(rescale, qconv2d.bounds, least_factor="one quarter")


def start(operator: QConv2d) -> Array:
    """Return int64[K]: bias minus the zero point times all weights, because padding is read like the input."""
    taps = operator.weight.reshape(operator.weight.shape[0], -1).astype(np.int64)
    return operator.bias.astype(np.int64) - signed_zero_point(operator.inputs[0]) * taps.sum(axis=1)


def convolution_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output = operator.inputs[0], operator.output
    kernel_rows, _, depth = operator.weight.shape[1:]
    runs = kernel_rows if _reads_in_place(operator) else 1
    product = Product.of(
        runs=runs, run_bytes=operator.weight[0].size // runs, channels=output.shape[3], rescale=rescale(operator),
        target=target, in_nibbles=isinstance(operator, PackedQConv2d),
    )  # fmt: skip
    patch = Im2col(window=operator.window, source=source, depth=depth)
    num_pixels = output.num_elements // output.shape[3]
    copied = num_pixels - _num_in_place(operator, stored)
    begin, end = _short_columns(operator)
    short = num_whole_rows(operator, stored) * (end - begin)
    copies = copied > 0
    patch_text = ""
    if copies and not _is_inside(operator, stored):
        patch_text = patch_function("tvm_ext_helium_conv2d_copy", LAYER, stored)
    members = _members(operator, stored, product, copies=copies)
    products = -(-num_pixels // 2) * (product.instructions(2) + 16)
    copying = (copied - short) * (patch.instructions + 10) + short * (SHORT_COPY + SHORT_ROW * kernel_rows)
    return Parts(
        parameters=PARAMETERS,
        constants=product.constants(operator.weight, start(operator)),
        members=members,
        functions=(product.function(2), *([patch_text] if patch_text else ())),
        leading=("$_two", "$_patch" if patch_text else "NULL"),
        scratch="scratch" if copies else "NULL",
        scratch_bytes=2 * padded(patch.num_bytes) + (STEP if _has_short_rows(operator) else 0) if copies else 0,
        instructions=products + copying,
        passes=passes(operator, copied),
        windows=SharedWindows(
            form=(LOOPS.function, source, operator.window, output.shape[:3]),
            pixels=num_pixels,
            at_once=2,
            fill=(
                f"tvm_ext_helium_conv2d_copy_two(&$_layer, {'$_patch' if patch_text else 'NULL'}, (int8_t *)scratch, "
                f"(const uint8_t *)input, first, {num_pixels});",
            ),
            compute=(
                "tvm_ext_helium_conv2d_two(&$_layer, $_two, (const int8_t *)scratch, (uint8_t *)output, weights, "
                f"factors, first, {num_pixels});",
            ),
            definitions="\n".join([LOOPS.shapes(operator, stored, members), product.function(2)]),
            fill_definitions=patch_text,
            fill_instructions=copying,
            compute_instructions=products,
        )
        if copied == num_pixels and has_whole_image(operator, stored)
        else None,
    )


def passes(operator: QConv2d, copied: int) -> Passes:
    """Return the traffic of two pixels by four channels; `copied` pixels are copied first and read from the copy."""
    channels = operator.output.shape[3]
    num_pixels, taps = operator.output.num_elements // channels, operator.weight[0].size
    blocks = -(-channels // CHANNEL_BLOCK)
    reads = taps * ((num_pixels - copied) * blocks + copied)
    return Passes(
        constants=max(1.0, num_pixels / 2),
        input=max(1.0, reads / operator.inputs[0].num_elements),
        scratch=copied / 2 * (1 + blocks),
    )


def _reads_in_place(operator: QConv2d) -> bool:
    """Return True if a window inside the input can be read in place: its rows are whole vectors of int8."""
    kernel_columns, depth = operator.weight.shape[2:]
    adjacent = kernel_columns == 1 or operator.window.dilation[1] == 1
    return adjacent and kernel_columns * depth % STEP == 0 and flip(operator.inputs[0]) == 0


def _inside(operator: QConv2d) -> tuple[int, int]:
    """Return the output columns that are read in place if the window's rows lie inside the input: pairs only."""
    if not _reads_in_place(operator):
        return 0, 0
    begin, end = inner_columns(operator.window, operator.inputs[0].shape[2], operator.output.shape[2])
    return begin, begin + (end - begin) // 2 * 2


def _has_short_rows(operator: QConv2d) -> bool:
    """Return True if a row of the window is one run of at most a vector."""
    kernel_columns, depth = operator.weight.shape[2:]
    return operator.window.dilation[1] == 1 and kernel_columns * depth <= STEP and not _reads_in_place(operator)


def _short_columns(operator: QConv2d) -> tuple[int, int]:
    """Return the output columns whose windows lie in columns of the input and are copied one row per vector."""
    if not _has_short_rows(operator):
        return 0, 0
    return inner_columns(operator.window, operator.inputs[0].shape[2], operator.output.shape[2])


def _num_in_place(operator: QConv2d, stored: StoredRows) -> int:
    """Return the number of output pixels that are read in place."""
    begin, end = _inside(operator)
    return num_whole_rows(operator, stored) * (end - begin)


def num_whole_rows(operator: QConv2d, stored: StoredRows) -> int:
    """Return the output rows of all images whose windows' rows lie inside the input and are contiguous in memory."""
    window, height = operator.window, operator.inputs[0].shape[1]
    reach = (window.kernel[0] - 1) * window.dilation[0]
    tops = np.arange(operator.output.shape[1]) * window.strides[0] - window.padding[0]
    whole = (tops >= 0) & (tops + reach < height)
    kept = stored.input(0)
    if kept is not None:
        whole &= (tops + kept.shift) % kept.stored + reach < kept.stored
    return int(whole.sum()) * operator.output.shape[0]


def _members(operator: QConv2d, stored: StoredRows, product: Product, *, copies: bool) -> dict[str, Value]:
    """Return the layer's members in tvm_ext_helium_conv2d.h for pixels in place and copied pixels."""
    begin, end = _inside(operator)
    return {
        "in_place_begin": begin,
        "in_place_end": end,
        "has_copies": copies,
        "inside_begin": _short_columns(operator)[0],
        "inside_end": _short_columns(operator)[1],
        **({"is_inside": True} if _is_inside(operator, stored) else {}),
        "product": product.members(),
    }


def _is_inside(operator: QConv2d, stored: StoredRows) -> bool:
    """Return True if all windows are copied one row per vector, so that no other copy is needed."""
    begin, end = _short_columns(operator)
    rows, columns = operator.output.shape[1:3]
    whole = num_whole_rows(operator, stored) == rows and (begin, end) == (0, columns)
    return whole and operator.output.shape[0] == 1 and stored.output is None


CONVOLUTION = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=convolution_parts)
QCONV2D = CONVOLUTION.kernel(
    Family(
        name="qconv2d_helium",
        title="Quantized convolution, two output pixels by four channels at a time",
        operator=QConv2d,
        constraints=(qconv2d.is_ungrouped, *qconv2d.SUMS_TOO, sums_leave_room),
        blocks=step_blocks,
    )
)


# Quantized conv2d with weights of 4 bits, with Helium: two output pixels by four channels at a time.
#
# int8 or uint8[N, H, W, C], 4 bits[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32: the 8-bit kernel with the
# `S4` products of tvm_ext_helium_product.h, which take 16 instructions for 128 multiply-adds of two rows where int8's
# take 14.


def sixteenfold_sums_fit(operator: PackedQConv2d, target: Target) -> bool:
    """products of a channel must add up to less than 2^27, for every input"""
    return nibble_sums_fit(operator.weight)


QCONV2D_PACKED = CONVOLUTION.kernel(
    Family(
        name="qconv2d_packed_helium",
        title="Quantized convolution with weights of 4 bits, two output pixels by four channels at a time",
        operator=PackedQConv2d,
        constraints=(qconv2d.is_ungrouped, *QCONV2D_PACKED_CONSTRAINTS, sums_leave_room, sixteenfold_sums_fit),
    )
)


# Quantized 1x1 conv2d with Helium: a matrix product, two pixels by four channels at a time.
#
# int8 or uint8[N, H, W, C], int8[K, 1, 1, C] -> int8 or uint8[N, H, W, K], sums in int32. Pixels are contiguous, so
# pairs of them continue from row to row; the last pixel may be a pair with itself. Rounding "onnx".

POINTWISE_LOOPS = Loops(
    function="tvm_ext_helium_pointwise", layer="tvm_ext_helium_rows_layer",
    includes=("tvm_ext_helium_rows.h", *PRODUCT_INCLUDES),
    accumulation="products with c ascending in vectors of 16, then bias", has_window=False, row_pitched=False,
)  # fmt: skip


def is_pointwise(operator: QConv2d, target: Target) -> bool:
    """the window must be 1x1, without stride, padding or groups"""
    return operator.window.is_pointwise and operator.groups == 1


def pointwise_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    output = operator.output
    depth, channels = operator.inputs[0].shape[3], output.shape[3]
    product = Product.of(
        runs=1, run_bytes=depth, channels=channels, rescale=rescale(operator), target=target,
        in_nibbles=isinstance(operator, PackedQConv2d),
    )  # fmt: skip
    copies = needs_copy(operator)
    pairs = -(-output.num_elements // channels // 2)
    copying = 2 * (8 + depth // 4) if copies else 0
    spans = output.shape[0] == 1 and stored.output is None and stored.input(0) is None
    return Parts(
        parameters=PARAMETERS,
        constants=product.constants(operator.weight, start(operator)),
        members={"product": product.members()},
        functions=(product.function(2),),
        leading=("$_two",),
        scratch="scratch" if copies else "NULL",
        scratch_bytes=2 * padded(depth) if copies else 0,
        instructions=pairs * (product.instructions(2) + copying + 14),
        passes=passes(operator, 2 * pairs if copies else 0),
        rows_still_read=1 if spans else 0,  # a pair of pixels may span two rows
    )


def needs_copy(operator: QConv2d) -> bool:
    """Return True if pixels must be converted to int8, or padded to a multiple of 16 channels."""
    depth = operator.inputs[0].shape[3]
    return depth != padded(depth) or flip(operator.inputs[0]) != 0


POINTWISE = ProductKernel(loops=POINTWISE_LOOPS, reference=qconv2d.reference, parts=pointwise_parts)
QPOINTWISE = POINTWISE.kernel(
    Family(
        name="qpointwise_helium",
        title="Quantized 1x1 convolution, two pixels by four channels at a time",
        operator=QConv2d,
        constraints=(is_pointwise, *qconv2d.SUMS_TOO, sums_leave_room),
        blocks=step_blocks,
    )
)
# Weights of 4 bits: the `S4` products of tvm_ext_helium_product.h take 16 instructions for 128 multiply-adds of two
# rows where int8's take 14.
QPOINTWISE_PACKED = POINTWISE.kernel(
    Family(
        name="qpointwise_packed_helium",
        title="Quantized 1x1 convolution with weights of 4 bits, two pixels by four channels at a time",
        operator=PackedQConv2d,
        constraints=(is_pointwise, *QCONV2D_PACKED_CONSTRAINTS, sums_leave_room, sixteenfold_sums_fit),
    )
)


# Quantized 1x1 conv2d with Helium, of up to 16 input channels: weights stay in registers for a row of pixels.
#
# int8[N, H, W, C], int8[K, 1, 1, C] -> int8 or uint8[N, H, W, K], sums in int32. For each four output channels, whose
# weights are four vectors, pixels of a row are read in pairs, 16 bytes each; zero weights match the bytes after a
# pixel. Pixels at the end of a row, after which these bytes do not exist, are read from a copy. Rounding "onnx".

KEPT_LOOPS = Loops(
    function="tvm_ext_helium_kept", layer="tvm_ext_helium_kept_layer",
    includes=("tvm_ext_helium_kept.h", *PRODUCT_INCLUDES),
    accumulation="products with c ascending in vectors of 16, then bias", has_window=False,
)  # fmt: skip


def is_narrow(operator: QConv2d, target: Target) -> bool:
    """pixels must be int8 of at most 16 channels, and rows must have at least two pixels"""
    source = operator.inputs[0]
    return source.shape[3] <= STEP and source.shape[2] >= 2 and flip(source) == 0


def kept_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    output = operator.output
    depth, channels, columns = operator.inputs[0].shape[3], output.shape[3], output.shape[2]
    finish = rescale(operator)
    product = Product.of(runs=1, run_bytes=depth, channels=channels, rescale=finish, target=target)
    rows, blocks, in_place = output.shape[0] * output.shape[1], -(-channels // CHANNEL_BLOCK), _in_place(operator)
    pairs = in_place // 2 + -(-(columns - in_place) // 2)
    copied = columns - in_place
    return Parts(
        parameters=PARAMETERS,
        constants=product.constants(operator.weight, start(operator)),
        members={"in_place": in_place, "product": product.members()},
        scratch="scratch" if copied else "NULL",
        scratch_bytes=(copied + 1) * depth + STEP if copied else 0,
        instructions=rows * (40 + blocks * (18 + pairs * (34 + 2 * (finish.instructions - 2)))),
        passes=Passes(constants=max(1.0, rows), input=max(1.0, blocks), scratch=rows * (1 + blocks) if copied else 0.0),
    )


def _in_place(operator: QConv2d) -> int:
    """Return the pixels of a row after whose first byte the row has at least 16 bytes; an even number."""
    columns, depth = operator.inputs[0].shape[2:]
    return max(0, (columns * depth - STEP) // depth + 1) // 2 * 2


KEPT = ProductKernel(loops=KEPT_LOOPS, reference=qconv2d.reference, parts=kept_parts)
QPOINTWISE_KEPT = KEPT.kernel(
    Family(
        name="qpointwise_kept_helium",
        title="Quantized 1x1 convolution of up to 16 input channels, with the weights kept in registers",
        operator=QConv2d,
        constraints=(is_pointwise, is_narrow, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)


KERNELS = (QCONV2D, QCONV2D_PACKED, QPOINTWISE, QPOINTWISE_PACKED, QPOINTWISE_KEPT)
