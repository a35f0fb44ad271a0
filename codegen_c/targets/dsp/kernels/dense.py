"""Kernels for quantized dense layers and products of two activations with the DSP extension.

Weights of dense layers have 8 or 4 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, structure, times
from codegen_c.kernels.contract import (
    Parameter,
    Passes,
    StoredRows,
    Target,
)
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.dense.dense_rows import num_calls, over_parts
from codegen_c.kernels.dense.qdense import QDENSE_PACKED_CONSTRAINTS, DenseKernel, DenseParts
from codegen_c.kernels.matmul import qmatmul
from codegen_c.kernels.matmul.heads import head_by_head
from codegen_c.kernels.matmul.qmatmul import MatmulParts, matmul_kernel
from codegen_c.kernels.shared.sums import holds_sums
from codegen_c.operators.kinds import Array, PackedQDense, QDense, QMatmul
from codegen_c.targets.dsp.kernels import product as product_dsp
from codegen_c.targets.dsp.kernels.product import (
    CALL_INSTRUCTIONS,
    HEADERS,
    INCLUDES,
    NIBBLE_LIMIT,
    Blocks,
    FastRequantize,
    PairedWeights,
    channel_words,
    start,
)

# Quantized dense layer with the DSP extension: four output channels of one row at a time.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], int32 accumulators. A row is expanded to 16-bit pairs in
# scratch once, then each weight is read once. With few channels, or if scratch is expensive, the pairs are formed when
# they are needed ("direct"). If the build optimizes for speed, accumulators of expanded rows are requantized in
# registers where `product.py` can. The bias contains the correction for the zero point. Rounding "onnx": once,
# halves to even.

WIDTH = 4
UNIT = 4
"""Elements of the input that are multiplied together; a part of the input is a multiple of them."""
EXPAND_INSTRUCTIONS = 1.7
MOST_SCRATCH_BYTES = 2048
"""Limit for an expanded row. A longer row is often the largest tensor of its network, so it is read as bytes."""
WIDEN_INSTRUCTIONS = 2
"""Additional instructions per unit of a block if the pairs are formed from bytes."""
REST_INSTRUCTIONS = {1: 10, 2: 16, 3: 21}
"""Modelled instructions of a unit of the last channels, which are computed one by one, by their number."""
WEIGHTS = Parameter(name="weights", ctype="int8_t", role="constant")
SCRATCH = Parameter(name="scratch", ctype="uint8_t", role="scratch")
LAYER_INCLUDES = ("tvm_ext_dsp_dense.h", *INCLUDES, *HEADERS)


def dense_layer(operator: QDense, target: Target) -> Callable[[QDense], DenseParts]:
    layer, channels = _Layer.of(operator, target), operator.weight.shape[0]
    blocks = None if target.optimize == "size" else _blocks(operator, layer)
    layer = layer.at_best(channels, blocks, least_scratch=target.least_scratch)
    blocks = None if layer.is_direct else blocks
    passes = layer.passes(operator.output.num_elements // channels, channels)

    def parts(part: QDense) -> DenseParts:
        channels = part.weight.shape[0]
        rows = part.output.num_elements // channels
        scratch = "NULL" if layer.is_direct else "scratch"
        call = (
            f"tvm_ext_dsp_dense_rows(&layer, {blocks.function}, input, output, weights, {blocks.rounding}, scratch);"
            if blocks
            else f"tvm_ext_dsp_dense(&layer, input, output, weights, bias, multiplier, shift, {scratch});"
        )
        return DenseParts(
            parameters=(WEIGHTS,) if blocks else layer.constant_parameters(),
            constants=(("weights", blocks.weights),) if blocks else layer.constants(),
            body="\n".join([*_shapes(part, rows, layer, blocks), call]),
            includes=(*LAYER_INCLUDES, *product_dsp.SINGLE_INCLUDES) if blocks else LAYER_INCLUDES,
            scratch_bytes=0 if layer.is_direct else 4 * layer.paired.num_cells,
            instructions=rows * layer.row_instructions(channels, blocks),
            passes=passes,
        )

    return parts


def _blocks(operator: QDense, layer: _Layer) -> Blocks | None:
    """Return the blocks that requantize accumulators in registers, or None if the layer cannot be computed in them."""
    exact = None if holds_sums(operator.output) else qdense.requantize(operator)
    return Blocks.of(layer.paired, exact, *qdense.products(operator).range())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Layer:
    """Constants and requantization of a layer. is_direct: the input is read as bytes, without scratch.

    rest: last channels that are computed one by one, from weights without padding.
    rest_weights: int8[unit][channel][element].
    """

    depth: int
    channels: int
    rest: int
    paired: PairedWeights
    rest_weights: Array
    finish: FastRequantize
    is_direct: bool = False

    @classmethod
    def of(cls, operator: QDense, target: Target) -> Self:
        source = operator.inputs[0]
        begin = start(source, operator.weight, operator.bias)
        requantize = FastRequantize.sixteenfold if isinstance(operator, PackedQDense) else FastRequantize.of
        paired = PairedWeights.of(
            operator.weight[:, np.newaxis, :],
            begin,
            source,
            pixels=1,
            width=WIDTH,
            in_nibbles=isinstance(operator, PackedQDense),
        )
        channels, depth = operator.weight.shape
        rest = _rest(channels, paired, target)
        return cls(
            depth=depth,
            channels=channels,
            rest=rest,
            paired=paired,
            rest_weights=channel_words(operator.weight[channels - rest :]),
            finish=requantize(qdense.requantize(operator), *qdense.products(operator).range()),
        )

    def at_best(self, channels: int, blocks: Blocks | None, *, least_scratch: bool) -> _Layer:
        """Return this layer, or its direct form if that is possible and cheaper, or saves much scratch or the most.

        blocks: those of this layer, if it can be computed in them.
        """
        direct = replace(self, is_direct=True)
        least_scratch |= 4 * self.paired.num_cells > MOST_SCRATCH_BYTES
        cheaper = direct.row_instructions(channels) <= self.row_instructions(channels, blocks)
        can_be = self.depth % UNIT == 0 and not self.paired.in_nibbles
        return direct if can_be and (cheaper or least_scratch) else self

    def passes(self, rows: int, channels: int) -> Passes:
        blocks = channels / WIDTH
        if self.is_direct:
            return Passes(constants=max(1.0, rows), input=max(1.0, blocks), scratch=0.0)
        return Passes(constants=max(1.0, rows), scratch=rows * (1 + blocks))

    def constants(self) -> tuple[tuple[str, np.ndarray], ...]:
        weights, bias = self.paired.weights, self.paired.bias
        if self.rest:
            fours = (self.channels - self.rest) * self.paired.units * UNIT
            weights, bias = np.concatenate([weights[:fours], self.rest_weights]), bias[: self.channels]
        return (("weights", weights), ("bias", bias), *self.finish.constants())

    @property
    def num_sums(self) -> int:
        """Number of sums that are computed. Without single channels at the end, it is a multiple of a block."""
        return self.channels if self.rest else len(self.paired.bias)

    def constant_parameters(self) -> tuple[Parameter, ...]:
        return (
            WEIGHTS,
            Parameter(name="bias", ctype="int32_t", role="constant"),
            *self.finish.parameters(),
        )

    def row_instructions(self, channels: int, blocks: Blocks | None = None) -> int:
        """Return the modelled instructions of `channels` channels of one row."""
        expand = 0 if self.is_direct else int(EXPAND_INSTRUCTIONS * self.depth) + 20 + self.paired.offset_instructions
        if blocks:
            return expand + product_dsp.BLOCKS_CALL_INSTRUCTIONS + -(-channels // WIDTH) * blocks.block_instructions
        widen = WIDEN_INSTRUCTIONS * self.paired.units if self.is_direct else 0
        block_instructions = self.paired.instructions() + widen + WIDTH * (self.finish.instructions + 2)
        fours = -(-(channels - self.rest) // WIDTH) * block_instructions
        if not self.rest:
            return expand + fours
        rest = self.paired.units * REST_INSTRUCTIONS[self.rest] + self.rest * (self.finish.instructions + 2)
        return expand + fours + rest


def _rest(channels: int, paired: PairedWeights, target: Target) -> int:
    """Return how many last channels are computed one by one: those that do not fill a block.

    Three of them take more cycles than a padded block with joined weights, so they are only computed so for size.
    """
    rest = 0 if paired.in_nibbles else channels % WIDTH
    is_small = target.optimize == "size" or target.least_flash
    return rest if rest < WIDTH - 1 or not paired.joined or is_small else 0


def _shapes(operator: QDense, rows: int, layer: _Layer, blocks: Blocks | None = None) -> list[str]:
    source, (channels, depth) = operator.inputs[0], operator.weight.shape
    members: dict[str, Value] = {
        "rows": rows, "depth": depth, "channels": channels, "has_unsigned_input": source.dtype == "uint8",
    }  # fmt: skip
    members |= {"holds_sums": True} if holds_sums(operator.output) else {}
    if blocks:
        members |= {"block_bytes": blocks.block_bytes} if channels % WIDTH else {}
        return structure("tvm_ext_dsp_dense_layer", "layer", members)
    members |= layer.paired.members()
    members |= {"rest": layer.rest} if layer.rest else {}
    members |= {"is_direct": True} if layer.is_direct else {}
    members |= {"requantize": layer.finish.members()}
    return [*structure("tvm_ext_dsp_dense_layer", "layer", members), *layer.finish.tables()]


def _in_parts(operator: QDense, target: Target, count: int, stored: StoredRows) -> DenseParts | None:
    """Add parts of the input in blocks of WIDTH channels. Portable C computes parts that are not whole units."""
    layer = _Layer.of(operator, target)
    part = layer.depth // count
    if target.least_scratch or part % UNIT:
        return None
    source, num_sums, units = operator.inputs[0], layer.num_sums, part // UNIT
    lines = [
        *_shapes(operator, 1, layer),
        "uint32_t *const cells = (uint32_t *)(void *)scratch;",
        "uint32_t *cell = cells;",
        *over_parts(
            count, layer.depth, C_TYPES[source.dtype], stored,
            [f"cell = tvm_ext_dsp_dense_expand(&layer, cell, x, {part});"],
        ),
        "tvm_ext_dsp_dense_add(&layer, output, sums, weights, bias, multiplier, shift, cells, "
        f"{times('row_begin', units)}, {times('row_end', units)});",
    ]  # fmt: skip
    added = num_calls(count, stored) * -(-num_sums // WIDTH) * (CALL_INSTRUCTIONS + 8)
    return DenseParts(
        parameters=layer.constant_parameters(),
        constants=layer.constants(),
        body="\n".join(lines),
        includes=LAYER_INCLUDES,
        scratch_bytes=2 * part * min(stored.at_once or count, count),
        instructions=layer.row_instructions(operator.weight.shape[0]) + added,
        num_sums=num_sums,
    )


QDENSE = DenseKernel(
    name="qdense_dsp",
    title="Quantized dense layer, four output channels of a row at a time",
    layer=dense_layer,
    in_parts=_in_parts,
).kernel(qdense.SUMS_TOO)


# A dense layer with weights of 4 bits: four output channels of one row at a time.
#
# int8 or uint8[..., C], 4 bits[K, C] -> int8 or uint8[..., K], int32 accumulators. It uses the `s4` products of
# tvm_ext_dsp_product.h, which take 18 instructions for 16 multiply-adds; products of int8 take 14 or 18.


def sixteenfold_sums_fit(operator: PackedQDense, target: Target) -> bool:
    """bias and products must add up to less than 2^27, whatever the input"""
    low, high = qdense.products(operator).range()
    return bool((low > -NIBBLE_LIMIT).all() and (high < NIBBLE_LIMIT).all())


QDENSE_PACKED = DenseKernel(
    name="qdense_packed_dsp",
    title="Quantized dense layer with weights of 4 bits, four output channels of a row at a time",
    layer=dense_layer,
).packed((*QDENSE_PACKED_CONSTRAINTS, sixteenfold_sums_fit))


# Products of two quantized activations with the DSP extension: four columns of a matrix by one vector at a time.
#
# int8 or uint8, int32 accumulators. The matrix of a head is expanded to 16-bit pairs in scratch once for all vectors of
# a call, so calls with more rows cost less per row. Rounding "onnx" or "tflite".

LAYER = "tvm_ext_dsp_matmul_layer"
QMATMUL_WIDTH, QMATMUL_UNIT, SHORT_UNITS = 4, 4, 2
UNIT_INSTRUCTIONS, SHORT_UNIT_INSTRUCTIONS, QMATMUL_EXPAND_INSTRUCTIONS = 15, 14, 2.5


def matmul_parts(operator: QMatmul, stored: StoredRows, target: Target) -> MatmulParts:
    finish, shape = FastRequantize.of(qmatmul.requantize(operator), *qmatmul.bounds(operator)), operator.shape
    columns, units = -(-shape.columns // QMATMUL_WIDTH) * QMATMUL_WIDTH, -(-shape.depth // QMATMUL_UNIT)
    is_copied = shape.depth % QMATMUL_UNIT > 0
    return MatmulParts(
        layer=LAYER,
        members={"requantize": finish.members()},
        statements=finish.tables(),
        call="tvm_ext_dsp_matmul($layer, input, second, output, multiplier, shift, scratch, row_begin, row_end);",
        includes=("tvm_ext_dsp_matmul.h", "tvm_ext_dsp_matrix.h", "tvm_ext_matrices.h", *INCLUDES, *HEADERS),
        scratch_bytes=4 * columns + 8 * units * columns + (QMATMUL_UNIT * units if is_copied else 0),
        instructions=_instructions(operator, finish, stored),
        spatial=head_by_head(shape),
    )


def _instructions(operator: QMatmul, finish: FastRequantize, stored: StoredRows) -> int:
    """Return the modelled instructions. If heads are the inner dimension, each call expands all matrices."""
    shape = operator.shape
    blocks, units = -(-shape.columns // QMATMUL_WIDTH), -(-shape.depth // QMATMUL_UNIT)
    is_short = units <= SHORT_UNITS
    one = units * SHORT_UNIT_INSTRUCTIONS + 8 if is_short else CALL_INSTRUCTIONS + units * UNIT_INSTRUCTIONS
    calls = -(-shape.rows // min(stored.at_once or shape.rows, shape.rows)) if shape.heads_inside else 1
    expanded = int(calls * shape.heads * blocks * units * QMATMUL_WIDTH * QMATMUL_UNIT * QMATMUL_EXPAND_INSTRUCTIONS)
    return expanded + shape.heads * shape.rows * (20 + blocks * (one + QMATMUL_WIDTH * finish.instructions))


QMATMUL = matmul_kernel(
    "qmatmul_dsp",
    "Product of two quantized activations, four columns of a matrix by a vector at a time",
    matmul_parts,
    qmatmul.CONSTRAINTS,
)


KERNELS = (QDENSE, QDENSE_PACKED, QMATMUL)
