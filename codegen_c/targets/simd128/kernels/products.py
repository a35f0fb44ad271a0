"""Kernels for quantized convolutions and dense layers: 8 output channels of four pixels at a time.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], int32 sums modulo 2^32. The rows that windows
read are copied to scratch as numbers of 16 bits, with the zero point as padding. Any rounding. Weights of 9 bits, from
-255 to 255, are stored as int8 less an offset, which is added after they are widened to 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.dense.qdense import DenseKernel, DenseParts
from codegen_c.kernels.shared import requantize_tflite
from codegen_c.kernels.shared.bit_widths import NINE_BITS, UINT8_MAX
from codegen_c.kernels.shared.layer import row_of_vectors, shapes
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel, room_for_sums
from codegen_c.kernels.shared.requantize import INCLUDES as REQUANTIZE_INCLUDES
from codegen_c.kernels.shared.requantize import quantized_bytes
from codegen_c.operators.kinds import Array, QConv2d, QDense, TensorType, Window
from codegen_c.targets.simd128.kernels.rescale import UNIT, UnitRescale

INCLUDES = (
    "tvm_ext_layer.h", "tvm_ext_simd128.h", "tvm_ext_simd128_rescale.h",
    *sorted({*REQUANTIZE_INCLUDES, *requantize_tflite.INCLUDES}),
)  # fmt: skip
PARAMETERS = (
    Parameter(name="weights", ctype="int8_t", role="constant"),
    Parameter(name="factors", ctype="int32_t", role="constant"),
)
LAYER = "tvm_ext_simd128_conv2d_layer"
LOOPS = Loops(
    function="tvm_ext_simd128_conv2d", layer=LAYER, includes=("tvm_ext_simd128_conv2d.h", *INCLUDES),
    accumulation="products with r, s, c ascending in pairs, modulo 2^32", is_read_first=True,
)  # fmt: skip
PIXELS = 4
STORED_AT_ONCE = 16
"""Numbers that copies and pairs may reach beyond the last element of the copied rows."""
NUMBER_BYTES = 2
INT8 = np.iinfo(np.int8)
PAIR_INSTRUCTIONS = {1: 7, 2: 12, 3: 17, 4: 22}
"""Instructions of a pair of elements of a unit, by the number of pixels."""
UNIT_INSTRUCTIONS = 12
"""Instructions around the runs of a unit, for each group of pixels."""


def nine_bits(operator: QConv2d | QDense, target: Target) -> bool:
    """weights must need 9 bits and come from bytes with one zero point, their scales be float32 and the bias int32"""
    types = (operator.weight.dtype, operator.weight_scale.dtype, operator.bias.dtype)
    return types == (NINE_BITS, "float32", "int32") and int(np.ptp(operator.weight)) <= UINT8_MAX


def stored_weights(weight: Array) -> tuple[Array, int]:
    """Return weights less an offset, int8, and the offset: 0 for weights of int8."""
    if weight.dtype == np.int8:
        return weight, 0
    offset = max(int(weight.max()) - INT8.max, 0) + min(int(weight.min()) - INT8.min, 0)  # one of them is 0
    return (weight - offset).astype(np.int8), offset


def offset_member(weight: Array) -> dict[str, Value]:
    """Return the member of a layer's structure for the offset of its weights, if they have one."""
    _, offset = stored_weights(weight)
    return {"weight_offset": offset} if offset else {}


def rescale(operator: QConv2d) -> UnitRescale:
    """Return the requantization of a convolution."""
    return UnitRescale.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())


sums_leave_room = room_for_sums(rescale, qconv2d.bounds, least_factor="one half")


def copied_numbers(window: Window, source: TensorType) -> int:
    """Return the numbers of the copied rows."""
    columns = window.padding[1] + source.shape[2] + window.padding[3]
    return window.kernel[0] * columns * source.shape[3]


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowRuns:
    """Contiguous elements of a window: `rows` times `turn` runs of `length` elements, for K channels."""

    rows: int
    turn: int
    length: int

    @property
    def pairs(self) -> int:
        """Return the pairs of elements of a run."""
        return -(-self.length // 2)

    def pack(self, weight: Array) -> Array:
        """Pack weights[K, ...] as int8[units, runs, pairs, 8, 2] less their offset, padded with weights of 0."""
        channels, runs, (stored, offset) = len(weight), self.rows * self.turn, stored_weights(weight)
        full = np.full((-(-channels // UNIT) * UNIT, runs, 2 * self.pairs), -offset, dtype=np.int8)
        full[:channels, :, : self.length] = stored.reshape(channels, runs, self.length)
        packed = full.reshape(-1, UNIT, runs, self.pairs, 2).transpose(0, 2, 3, 1, 4)
        return np.ascontiguousarray(packed)

    def members(self, finish: UnitRescale) -> dict[str, Value]:
        """Return the members of the layer's structure."""
        return {"turn": self.turn, "pairs": self.pairs, "rescale": finish.members()}

    def instructions(self, columns: int, channels: int, finish: UnitRescale) -> int:
        """Return the modelled instructions of a row of pixels."""
        whole, rest = divmod(columns, PIXELS)
        groups = [PIXELS] * whole + ([rest] if rest else [])
        pairs = self.rows * self.turn * self.pairs
        each = sum(
            UNIT_INSTRUCTIONS + pairs * PAIR_INSTRUCTIONS[pixels] + pixels * finish.finish_instructions
            for pixels in groups
        )
        return -(-channels // UNIT) * each


def convolution_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output, window = operator.inputs[0], operator.output, operator.window
    depth, channels, finish = source.shape[3], output.shape[3], rescale(operator)
    turn = 1 if window.dilation[1] == 1 else window.kernel[1]
    runs = WindowRuns(rows=window.kernel[0], turn=turn, length=window.kernel[1] // turn * depth)
    rows, copied = output.shape[0] * output.shape[1], copied_numbers(window, source)
    return Parts(
        parameters=PARAMETERS,
        constants=(("weights", runs.pack(operator.weight)), ("factors", finish.table(qconv2d.start_of(operator)))),
        members={**runs.members(finish), **offset_member(operator.weight)},
        scratch_bytes=NUMBER_BYTES * (copied + STORED_AT_ONCE),
        instructions=rows * (runs.instructions(output.shape[2], channels, finish) + copied * 3 // 8),
        passes=Passes.of_product(
            output.num_elements * operator.weight[0].size, source.num_elements, output.num_elements // channels,
            pixels=PIXELS, channels=UNIT,
        ),
    )  # fmt: skip


CONVOLUTION = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=convolution_parts)
QCONV2D = CONVOLUTION.kernel(
    Family(
        name="qconv2d_simd128",
        title="Quantized convolution, 8 channels of four output pixels at a time",
        operator=QConv2d,
        constraints=(qconv2d.is_ungrouped, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)


# Quantized dense layer: the same loops on an image of one row, whose pixels are the vectors.


def _rescale(operator: QDense) -> UnitRescale:
    return UnitRescale.of(qdense.requantize(operator), *qdense.products(operator).range())


qdense_sums_leave_room = room_for_sums(_rescale, qdense.bounds, least_factor="one half")


def dense_layer(operator: QDense, target: Target) -> Callable[[QDense], DenseParts]:
    source, output, (channels, depth) = operator.inputs[0], operator.output, operator.weight.shape
    vectors, finish = output.num_elements // channels, _rescale(operator)
    runs = WindowRuns(rows=1, turn=1, length=depth)
    layer = shapes(LAYER, {
        **row_of_vectors(operator),
        **runs.members(finish),
        **offset_member(operator.weight),
    })  # fmt: skip
    parts = DenseParts(
        parameters=PARAMETERS,
        constants=(
            ("weights", runs.pack(operator.weight)), ("factors", finish.table(qdense.products(operator).start)),
        ),
        body="tvm_ext_simd128_conv2d(&$_layer, input, output, weights, factors, scratch, 0, 1);",
        helpers=layer,
        includes=LOOPS.includes,
        scratch_bytes=NUMBER_BYTES * (vectors * depth + STORED_AT_ONCE),
        instructions=runs.instructions(vectors, channels, finish) + vectors * depth * 3 // 8,
        passes=Passes.of_product(
            output.num_elements * depth, source.num_elements, vectors, pixels=PIXELS, channels=UNIT
        ),
        accumulation="products with c ascending in pairs, modulo 2^32",
    )  # fmt: skip
    return lambda _: parts


QDENSE = DenseKernel(
    name="qdense_simd128",
    title="Quantized dense layer, 8 output channels of four vectors at a time",
    layer=dense_layer,
    has_rows=lambda _: False,
).kernel((*qdense.CONSTRAINTS, qdense_sums_leave_room))


# Weights of 9 bits: the same loops, which add an offset to the weights.

QCONV2D_NINE_BITS = CONVOLUTION.kernel(
    Family(
        name="qconv2d_simd128_nine_bits",
        title="Quantized convolution with weights of 9 bits, 8 channels of four output pixels at a time",
        operator=QConv2d,
        constraints=(
            qconv2d.is_ungrouped, quantized_bytes, nine_bits, qconv2d.sums_fit, qconv2d.rescaled_sums_fit,
            sums_leave_room,
        ),
    )
)  # fmt: skip
QDENSE_NINE_BITS = DenseKernel(
    name="qdense_simd128_nine_bits",
    title="Quantized dense layer with weights of 9 bits, 8 output channels of four vectors at a time",
    layer=dense_layer,
).whole((quantized_bytes, nine_bits, qdense.sums_fit, qdense.rescaled_sums_fit, qdense_sums_leave_room))


KERNELS = (QCONV2D, QDENSE, QCONV2D_NINE_BITS, QDENSE_NINE_BITS)
