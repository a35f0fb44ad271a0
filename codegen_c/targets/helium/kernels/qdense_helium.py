"""Dense layer of a QDQ chain with Helium: two rows, or the only one, by four output channels at a time.

int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], sums in int32. Rounding "onnx".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import C_TYPES
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
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.dense.dense_rows import in_rows, num_calls
from codegen_c.kernels.shared.layer import image, shapes, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS, accumulated
from codegen_c.operators.kinds import Array, PackedQDense, QDense, TensorType
from codegen_c.targets.helium.kernels.helium import PRODUCT_INCLUDES, Rescale, flip, signed_zero_point
from codegen_c.targets.helium.kernels.product_helium import (
    CHANNEL_BLOCK,
    PARAMETERS,
    SCRATCH,
    STEP,
    Product,
    padded,
    step_blocks,
)

LAYER = "tvm_ext_helium_rows_layer"
BLOCK_INSTRUCTIONS = 12
"""Instructions per block of channels in each call that adds to its sums: loading and storing them, and its loop."""


def sums_leave_room(operator: QDense, target: Target) -> bool:
    """where a channel's factor is one quarter or more, its sums must be small enough to be scaled up"""
    return _rescale(operator).fits(*qdense.products(operator).range())


def _rescale(operator: QDense) -> Rescale:
    return Rescale.of(qdense.requantize(operator), *qdense.products(operator).range())


def _start(operator: QDense) -> Array:
    """int64[K]: bias less the zero point, of the input as int8, times all weights."""
    return operator.bias.astype(np.int64) - signed_zero_point(operator.inputs[0]) * operator.weight.astype(
        np.int64
    ).sum(axis=1)


def implement(operator: QDense, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    depth = operator.weight.shape[1]
    rescale, copies = _rescale(operator), depth != padded(depth) or flip(source) != 0

    def kernel(part: QDense) -> Implementation:
        """Kernel of the layer, or of one row of it, with the layer's constants."""
        channels, num_rows = part.weight.shape[0], part.output.num_elements // part.weight.shape[0]
        at_once = min(num_rows, 2)
        product = Product.of(
            runs=1, run_bytes=depth, channels=channels, rescale=rescale, target=target,
            in_nibbles=isinstance(operator, PackedQDense),
        )  # fmt: skip
        copying = at_once * (8 + depth // 4) if copies else 0
        return Implementation(
            kernel=KERNEL.name,
            function=CFunction(
                parameters=(
                    Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                    Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                    *PARAMETERS,
                    *((SCRATCH,) if copies else ()),
                ),
                body=_body(num_rows, copies=copies),
                helpers=f"{_shapes(source, num_rows, depth, product)}\n{product.function(at_once)}",
                includes=("tvm_ext_helium_rows.h", *PRODUCT_INCLUDES),
            ),
            reference=lambda inputs: qdense.reference(operator, inputs),
            constants=product.constants(operator.weight, _start(operator)),
            scratch_bytes=at_once * padded(depth) if copies else 0,
            macs=part.output.num_elements * depth,
            instructions=-(-num_rows // 2) * (product.instructions(at_once) + copying),
            passes=Passes(
                constants=max(1.0, num_rows / at_once),
                input=1.0 if copies else -(-channels // 4),
                scratch=num_rows / at_once * (1 + channels / 4),
            ),
            accumulation="products with c ascending in vectors of 16, then bias",
            exact=True,
        )

    whole = kernel(operator)
    by_rows = in_rows(operator, lambda part, rows: kernel(part))
    return replace(whole, in_rows=by_rows, accumulating=_accumulating(operator, rescale, target))


def _shapes(source: TensorType, rows: int, depth: int, product: Product) -> str:
    """The layer's shapes as tvm_ext_helium_rows.h takes them, with so many vectors, or parts of one."""
    vectors = replace(source, shape=(1, rows, 1, depth))
    return shapes(LAYER, {"input": image(vectors), "product": product.members()})


def _body(num_rows: int, *, copies: bool) -> str:
    """The loops of tvm_ext_helium_rows.h over pairs of vectors, or for the only one."""
    scratch = "scratch" if copies else "NULL"
    name = "dense_one(&$_layer, $_one" if num_rows == 1 else "dense(&$_layer, $_two"
    return f"tvm_ext_helium_{name}, input, output, weights, factors, {scratch});"


def _accumulating(operator: QDense, rescale: Rescale, target: Target) -> Accumulating | None:
    """A layer of one vector takes its elements as they come; parts that are no whole steps as in portable C."""
    portable = qdense.accumulating(operator)
    if portable is None:
        return None

    def implement(count: int, stored: StoredRows) -> Implementation:
        if operator.weight.shape[1] // count % STEP:
            return portable.implement(count, stored)
        return _in_parts(operator, rescale, target, count, stored)

    return replace(portable, implement=implement)


def _in_parts(operator: QDense, rescale: Rescale, target: Target, count: int, stored: StoredRows) -> Implementation:
    """Sums of `count` equal parts of the input, in blocks of four channels; the last call finishes them."""
    source, output, (channels, depth) = operator.inputs[0], operator.output, operator.weight.shape
    part, blocks = depth // count, -(-channels // CHANNEL_BLOCK)
    product = Product.of(
        runs=1, run_bytes=part, channels=channels, rescale=rescale, target=target
    )  # fmt: skip
    rings, layer = with_rings(LAYER, stored)
    scratch = "scratch" if flip(source) else "NULL"
    call = f"tvm_ext_helium_dense_add({layer}, input, output, sums, weights, factors, {scratch}, row_begin, row_end);"
    calls, copying = num_calls(count, stored), blocks * (8 + depth // 4) if flip(source) else 0

    def reference(inputs: list[Array]) -> list[Array]:
        result, sums = qdense.sums_reference(operator, inputs)
        return [result, np.pad(sums, ((0, 0), (0, blocks * CHANNEL_BLOCK - channels)))]

    return Implementation(
        kernel=f"{KERNEL.name}_in_parts",
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                Parameter(name="sums", ctype="int32_t", role="output"),
                *PARAMETERS,
                *((SCRATCH,) if flip(source) else ()),
                *ROW_PARAMETERS,
            ),
            body="\n".join([*rings, call]),
            helpers=_shapes(source, count, part, product),
            includes=("tvm_ext_helium_rows.h", *PRODUCT_INCLUDES),
        ),
        reference=reference,
        constants=product.constants(operator.weight, _start(operator)),
        scratch_bytes=part if flip(source) else 0,
        macs=operator.weight.size,
        instructions=count * product.instructions(1) + calls * blocks * BLOCK_INSTRUCTIONS + copying,
        accumulation="products with c ascending in vectors of 16, then bias",
        spatial=accumulated(count),
        exact=True,
        sums=TensorType(shape=(1, blocks * CHANNEL_BLOCK), dtype="int32"),
    )


KERNEL = Kernel(
    name="qdense_helium",
    operator=QDense,
    implement=implement,
    constraints=(*qdense.SUMS_TOO, sums_leave_room),
    blocks=step_blocks,
)
