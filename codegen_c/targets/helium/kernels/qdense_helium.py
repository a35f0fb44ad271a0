"""Dense layer of a QDQ chain with Helium: two rows, or the only one, by four output channels at a time.

int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], sums in int32. Rounding "onnx".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, block, times
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
from codegen_c.kernels.dense.dense_rows import in_rows, num_calls, over_parts
from codegen_c.kernels.shared.window import ROW_PARAMETERS, accumulated, over
from codegen_c.operators.kinds import Array, QDense, TensorType
from codegen_c.targets.helium.kernels.helium import (
    LANES,
    PRODUCT_INCLUDES,
    OutputRange,
    Rescale,
    copy,
    flip,
    signed_zero_point,
)
from codegen_c.targets.helium.kernels.product_helium import CHANNEL_BLOCK, PARAMETERS, SCRATCH, STEP, Product, padded

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
            runs=1, run_bytes=depth, channels=channels, rescale=rescale,
            limits=OutputRange(output=output, low=operator.low, high=operator.high), target=target,
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
                body=_body(part, num_rows, copies),
                helpers=product.function(at_once),
                includes=PRODUCT_INCLUDES,
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


def _body(operator: QDense, num_rows: int, copies: bool) -> str:
    """All rows, in pairs; the last one may be a pair with itself."""
    channels, depth = operator.weight.shape
    names = ["rows", f"rows + {padded(depth)}"]
    lines = ["int8_t *rows = (int8_t *)scratch;"] if copies else []
    if num_rows == 1:
        lines += [copy(operator.inputs[0], "rows", "input", depth)] if copies else []
        return "\n".join([*lines, f"$_one({'rows' if copies else 'input'}, 0, output, weights, factors);"])
    pair = [
        f"const int32_t next = m + 1 < {num_rows} ? 1 : 0;",
        f"const {C_TYPES[operator.inputs[0].dtype]} *x = &input[m * {depth}];",
        f"{C_TYPES[operator.output.dtype]} *y = &output[m * {channels}];",
    ]
    sources = ["x", f"x + next * {depth}"]
    if copies:
        pair += [copy(operator.inputs[0], name, source, depth) for name, source in zip(names, sources, strict=True)]
        sources = names
    pair += [f"$_two({', '.join(sources)}, 0, y, y + next * {channels}, weights, factors);"]
    return "\n".join([*lines, *over("m", 0, num_rows, pair, step=2)])


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
        runs=1, run_bytes=part, channels=channels, rescale=rescale,
        limits=OutputRange(output=output, low=operator.low, high=operator.high), target=target,
    )  # fmt: skip
    weights_bytes = part * CHANNEL_BLOCK
    elements = "const int8_t *x0 = x;"
    if flip(source) != 0:
        elements = f"{copy(source, 'scratch_x', 'x', part)}\nconst int8_t *x0 = scratch_x;"
    tile = [
        "tvm_ext_i32x4 sum0 = tvm_ext_i32x4_load(row_begin > 0 ? &sums[k] : factors);",
        *over_parts(count, depth, C_TYPES[source.dtype], stored, [elements, *product.sums(1)]),
        "tvm_ext_i32x4_store(&sums[k], sum0);",
        f"if (row_end == {count}) {{",
        block(product.finish(["output"])),
        "}",
    ]
    between = [
        f"factors += {3 * LANES};",
        f"weights += {times(f'({count} - (row_end - row_begin))', weights_bytes)};",
    ]
    lines = [
        *(["int8_t *scratch_x = (int8_t *)scratch;"] if flip(source) else []),
        f"weights += {times('row_begin', weights_bytes)};",
        *over("k", 0, channels, tile, step=CHANNEL_BLOCK, between=between),
    ]
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
            body="\n".join(lines),
            includes=PRODUCT_INCLUDES,
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
    constraints=(*qdense.KERNEL.constraints, sums_leave_room),
)
