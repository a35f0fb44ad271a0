"""Kernels for quantized dense layers and products of two activations with Helium.

Weights of dense layers have 8 or 4 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import (
    Parameter,
    Passes,
    StoredRows,
    Target,
)
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.dense.dense_rows import num_calls
from codegen_c.kernels.dense.qdense import QDENSE_PACKED_CONSTRAINTS, DenseKernel, DenseParts
from codegen_c.kernels.matmul import qmatmul
from codegen_c.kernels.matmul.heads import head_by_head
from codegen_c.kernels.matmul.qmatmul import MatmulParts, matmul_kernel
from codegen_c.kernels.shared.layer import apart, image, shapes, with_rings
from codegen_c.kernels.shared.product_kernel import room_for_sums
from codegen_c.operators.kinds import Array, PackedQDense, QDense, QMatmul, TensorType
from codegen_c.targets.helium.kernels.product import (
    CHANNEL_BLOCK,
    LANES,
    PARAMETERS,
    PRODUCT_INCLUDES,
    STEP,
    Product,
    Rescale,
    flip,
    nibble_sums_fit,
    padded,
    signed_zero_point,
    step_blocks,
)

# Quantized dense layer with Helium: four output channels of two rows, or of a single row, at a time.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], int32 accumulators. Rounding "onnx".

LAYER = "tvm_ext_helium_rows_layer"
INCLUDES = ("tvm_ext_helium_rows.h", *PRODUCT_INCLUDES)
ACCUMULATION = "products with c ascending in vectors of 16, then bias"
BLOCK_INSTRUCTIONS = 12
"""Instructions per block of channels in each call that adds to the accumulators: loading, storing and the loop."""


def _rescale(operator: QDense) -> Rescale:
    return Rescale.of(qdense.requantize(operator), *qdense.products(operator).range())


sums_leave_room = room_for_sums(_rescale, qdense.bounds, least_factor="one quarter")


def _start(operator: QDense) -> Array:
    """Return int64[K]: the bias minus the zero point of the input as int8, times the sum of the weights."""
    return operator.bias.astype(np.int64) - signed_zero_point(operator.inputs[0]) * operator.weight.astype(
        np.int64
    ).sum(axis=1)


def dense_layer(operator: QDense, target: Target) -> Callable[[QDense], DenseParts]:
    source, (channels, depth) = operator.inputs[0], operator.weight.shape
    rescale, copies = _rescale(operator), depth != padded(depth) or flip(source) != 0
    num_rows = operator.output.num_elements // channels
    pairs = num_rows / min(num_rows, 2)
    passes = Passes(
        constants=max(1.0, pairs), input=1.0 if copies else -(-channels // 4), scratch=pairs * (1 + channels / 4)
    )

    def parts(part: QDense) -> DenseParts:
        channels, num_rows = part.weight.shape[0], part.output.num_elements // part.weight.shape[0]
        at_once = min(num_rows, 2)
        product = Product.of(
            runs=1, run_bytes=depth, channels=channels, rescale=rescale, target=target,
            in_nibbles=isinstance(operator, PackedQDense),
        )  # fmt: skip
        copying = at_once * (8 + depth // 4) if copies else 0
        return DenseParts(
            parameters=PARAMETERS,
            constants=product.constants(operator.weight, _start(operator)),
            body=_body(num_rows, copies=copies),
            helpers=f"{_shapes(source, num_rows, depth, product)}\n{product.function(at_once)}",
            includes=INCLUDES,
            scratch_bytes=at_once * padded(depth) if copies else 0,
            instructions=-(-num_rows // 2) * (product.instructions(at_once) + copying),
            passes=passes,
            accumulation=ACCUMULATION,
        )

    return parts


def _shapes(source: TensorType, rows: int, depth: int, product: Product) -> str:
    """Return the layer's shapes for tvm_ext_helium_rows.h, with `rows` vectors, or parts of one vector."""
    vectors = replace(source, shape=(1, rows, 1, depth))
    return shapes(LAYER, {"input": image(vectors), "product": product.members()})


def _body(num_rows: int, *, copies: bool) -> str:
    """Return a call of the loops of tvm_ext_helium_rows.h over pairs of vectors, or over the single vector."""
    scratch = "scratch" if copies else "NULL"
    name = "dense_one(&$_layer, $_one" if num_rows == 1 else "dense(&$_layer, $_two"
    return f"tvm_ext_helium_{name}, input, output, weights, factors, {scratch});"


def _in_parts(operator: QDense, target: Target, count: int, stored: StoredRows) -> DenseParts | None:
    """Add parts of the input in blocks of four channels. Portable C computes parts that are not whole steps."""
    source, (channels, depth) = operator.inputs[0], operator.weight.shape
    part, blocks = depth // count, -(-channels // CHANNEL_BLOCK)
    if part % STEP:
        return None
    product = Product.of(runs=1, run_bytes=part, channels=channels, rescale=_rescale(operator), target=target)
    rings, layer = with_rings(LAYER, stored)
    scratch = "scratch" if flip(source) else "NULL"
    call = f"tvm_ext_helium_dense_add({layer}, input, output, sums, weights, factors, {scratch}, row_begin, row_end);"
    added = num_calls(count, stored) * blocks * BLOCK_INSTRUCTIONS + (blocks * (8 + depth // 4) if flip(source) else 0)
    return DenseParts(
        parameters=PARAMETERS,
        constants=product.constants(operator.weight, _start(operator)),
        body="\n".join([*rings, call]),
        helpers=_shapes(source, count, part, product),
        includes=INCLUDES,
        scratch_bytes=part if flip(source) else 0,
        instructions=count * product.instructions(1) + added,
        accumulation=ACCUMULATION,
        num_sums=blocks * CHANNEL_BLOCK,
    )


QDENSE = DenseKernel(
    name="qdense_helium",
    title="Quantized dense layer, four output channels of two rows at a time",
    layer=dense_layer,
    in_parts=_in_parts,
).kernel((*qdense.SUMS_TOO, sums_leave_room), step_blocks)


# A dense layer with weights of 4 bits: four output channels of two rows at a time.
#
# int8 or uint8[..., C], 4 bits[K, C] -> int8 or uint8[..., K], int32 accumulators. It uses the `S4` products of
# tvm_ext_helium_product.h, which take 16 instructions for 128 multiply-adds of two rows; products of int8 take 14.


def sixteenfold_sums_fit(operator: PackedQDense, target: Target) -> bool:
    """products of a channel must add up to less than 2^27, whatever the input"""
    return nibble_sums_fit(operator.weight)


QDENSE_PACKED = DenseKernel(
    name="qdense_packed_helium",
    title="Quantized dense layer with weights of 4 bits, four output channels of two rows at a time",
    layer=dense_layer,
).packed((*QDENSE_PACKED_CONSTRAINTS, sums_leave_room, sixteenfold_sums_fit))


# Products of two quantized activations with Helium: two vectors by four columns of a matrix, 16 products at a time.
#
# int8 or uint8, int32 accumulators. The matrix of a head is packed in scratch once for all vectors of a call, so calls
# with more rows cost less per row. Rounding "onnx" or "tflite".

QMATMUL_LAYER = "tvm_ext_helium_matmul_layer"
TWO_VECTORS = [
    "const int8_t *x0", "const int8_t *x1", "uint8_t *y0", "uint8_t *y1", "const int8_t *matrix",
    "const int32_t *start", "const int32_t *restrict factors",
]  # fmt: skip
LONGEST_STEP = 8191
"""Largest distance of adjacent elements of a column: eight of them are gathered with 16-bit offsets."""
PACK_INSTRUCTIONS, PAIR_INSTRUCTIONS = 14, 60


def qmatmul_sums_leave_room(operator: QMatmul, target: Target) -> bool:
    """if the factor is one quarter or more, sums must be small enough to be scaled up"""
    return _qmatmul_rescale(operator).fits(*qmatmul.bounds(operator))


def columns_are_near(operator: QMatmul, target: Target) -> bool:
    """the elements of a column of the second tensor must lie at most 8191 elements apart"""
    return operator.shape.steps[2] <= LONGEST_STEP


def _qmatmul_rescale(operator: QMatmul) -> Rescale:
    return Rescale.of(qmatmul.requantize(operator), *qmatmul.bounds(operator))


def matmul_parts(operator: QMatmul, stored: StoredRows, target: Target) -> MatmulParts:
    shape, (first, second) = operator.shape, operator.inputs
    product = Product.of(
        runs=1, run_bytes=shape.depth, channels=shape.columns, rescale=_qmatmul_rescale(operator), target=target
    )
    columns, depth = -(-shape.columns // CHANNEL_BLOCK) * CHANNEL_BLOCK, padded(shape.depth)
    is_copied = depth != shape.depth or flip(first) != 0
    return MatmulParts(
        layer=QMATMUL_LAYER,
        members={"product": product.members()},
        first={"zero_point": signed_zero_point(first)},
        second={"zero_point": signed_zero_point(second)},
        functions=(
            apart(
                "$_two", TWO_VECTORS,
                ["tvm_ext_helium_matmul_two(&$_layer, x0, x1, y0, y1, matrix, start, factors);"],
            ),
        ),
        call="tvm_ext_helium_matmul($layer, $_two, input, second, output, factors, scratch, row_begin, row_end);",
        includes=("tvm_ext_helium_matmul.h", "tvm_ext_matrices.h", *PRODUCT_INCLUDES),
        parameters=(Parameter(name="factors", ctype="int32_t", role="constant"),),
        constants=(("factors", product.rescale.table(np.zeros(LANES, np.int64), np.arange(LANES))),),
        scratch_bytes=4 * columns + columns * depth + (2 * depth if is_copied else 0),
        instructions=_instructions(operator, product, stored),
        accumulation="products with c ascending in vectors of 16",
        spatial=replace(head_by_head(shape), rows_still_read=2 * shape.rows if shape.heads_inside else 1),
    )  # fmt: skip


def _instructions(operator: QMatmul, product: Product, stored: StoredRows) -> int:
    """Return the modelled instructions. If heads are the inner dimension, each call packs all matrices."""
    shape = operator.shape
    at_once = min(stored.at_once or shape.rows, shape.rows)
    calls = -(-shape.rows // at_once) if shape.heads_inside else 1
    packed = calls * shape.heads * shape.columns * (10 + product.steps * PACK_INSTRUCTIONS)
    pairs = shape.heads * (calls * -(-at_once // 2) if shape.heads_inside else -(-shape.rows // 2))
    return packed + pairs * (PAIR_INSTRUCTIONS + product.instructions(2))


QMATMUL = matmul_kernel(
    "qmatmul_helium",
    "Product of two quantized activations, two vectors by four columns of a matrix at a time",
    matmul_parts,
    (*qmatmul.CONSTRAINTS, qmatmul_sums_leave_room, columns_are_near),
)


KERNELS = (QDENSE, QDENSE_PACKED, QMATMUL)
