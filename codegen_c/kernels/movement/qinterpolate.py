"""Kernel for interpolation of quantized images, integers only: weighted sums of a few elements of a few rows.

int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]. Weights of rows and of columns have up to 11 fractional bits and
add up to exactly one; the sum of products, exact in int32, is rounded once, halves to even, and clamped. Results differ
from real arithmetic by less than a step if scales are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import (
    CFunction,
    Implementation,
    Kernel,
    Parameter,
    Spatial,
    StoredRows,
    Target,
)
from codegen_c.kernels.shared.layer import image, shapes, with_rings
from codegen_c.kernels.shared.requantize import (
    Requantize,
    quantization,
    quantized_bytes,
    results_fit,
    rounds_once,
    scale_of,
)
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import Array, Interpolate, QInterpolate
from tvm_ext.core.row_access import RowAccess

WEIGHT_BITS = (11, 10, 9)
"""Fractional bits of a weight: the first of these with which sums fit in 32 bits."""
LARGEST_WEIGHTS = 2
AT_ONCE = 4
"""Taps whose places and weights the loops keep in registers."""
HIGH_WORD_BITS = 32
LAYER = "tvm_ext_qinterpolate_layer"
INCLUDES = ("tvm_ext_qinterpolate.h", "tvm_ext_layer.h", "tvm_ext_requantize.h")


@dataclass(frozen=True, kw_only=True)
class InterpolationLoops:
    """Inner loops of the kernel: C functions that add rows and finish pixels, their headers, and their cost.

    at_once: channels that an instruction computes. row, column: modelled instructions for each tap of a row and of a
    column. kept, finished: for the sums of a column, and for a result.
    """

    add: str
    finish: str
    includes: tuple[str, ...]
    at_once: int
    row: float
    column: float
    kept: float
    finished: float


PLAIN = InterpolationLoops(
    add="tvm_ext_qinterpolate_add", finish="tvm_ext_qinterpolate_finish", includes=INCLUDES, at_once=1, row=2,
    column=2, kept=3, finished=7,
)  # fmt: skip
# Modelled instructions of a pixel, and of a column whose sums are computed.
PIXEL_INSTRUCTIONS, COLUMN_INSTRUCTIONS = 10, 20


def reference(operator: QInterpolate, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    x, bits = inputs[0].astype(np.int64), weight_bits(operator)
    rows = np.einsum("pt,nptwc->npwc", fixed(operator.rows[1], bits), x[:, operator.rows[0]])
    sums = np.einsum("qt,npqtc->npqc", fixed(operator.columns[1], bits), rows[:, :, operator.columns[0]])
    return [finish(operator).run(sums - (quantization(operator.inputs[0]).zero_point << 2 * bits))]


def adds_up_to_one(operator: QInterpolate, target: Target) -> bool:
    """weights of an element must add up to 1, and their magnitudes to at most 2"""
    weights = (operator.rows[1].astype(np.float64), operator.columns[1].astype(np.float64))
    magnitudes = max(np.abs(w).sum(axis=1).max(initial=0) for w in weights)
    return bool(all(np.allclose(w.sum(axis=1), 1.0, atol=1e-4) for w in weights) and magnitudes <= LARGEST_WEIGHTS)


def axes_are_short(operator: QInterpolate | Interpolate, target: Target) -> bool:
    """rows and columns of the input must be at most 32767"""
    return max(operator.inputs[0].shape[1:3]) <= np.iinfo(np.int16).max


def rows_in_order(operator: QInterpolate | Interpolate, target: Target) -> bool:
    """input rows must ascend with the output's rows"""
    return bool((np.diff(operator.rows[0], axis=0) >= 0).all())


def results_in_range(operator: QInterpolate, target: Target) -> bool:
    """no result may reach 2^30 steps of the output before it is clamped"""
    largest = np.array(_largest(operator, weight_bits(operator)))
    return results_fit(-largest, largest, _factors(operator))


def fixed(weights: Array, bits: int) -> Array:
    """Return weights as int64 with fractional bits; the largest of each row absorbs the rounding error."""
    whole = np.rint(weights.astype(np.float64) * (1 << bits)).astype(np.int64)
    largest = whole.argmax(axis=1)
    whole[np.arange(len(whole)), largest] += (1 << bits) - whole.sum(axis=1)
    return whole


def weight_bits(operator: QInterpolate) -> int:
    """Return the fractional bits of the weights."""
    return next((bits for bits in WEIGHT_BITS if _largest(operator, bits) < 1 << 31), WEIGHT_BITS[-1])


def _largest(operator: QInterpolate, bits: int) -> int:
    """Return a bound of every partial sum of elements minus the zero point."""
    rows, columns = (np.abs(fixed(weights, bits)).sum(axis=1).max() for _, weights in (operator.rows, operator.columns))
    limits = np.iinfo(operator.inputs[0].dtype)
    largest = max(int(limits.max), -int(limits.min))
    return largest * int(rows) * int(columns) + (abs(quantization(operator.inputs[0]).zero_point) << 2 * bits)


def _factors(operator: QInterpolate) -> np.ndarray:
    one = np.float64(1 << 2 * weight_bits(operator))
    return np.array([scale_of(operator.inputs[0]) / (scale_of(operator.output) * one)])


def finish(operator: QInterpolate) -> Requantize:
    return Requantize.of(_factors(operator), output=operator.output, low=operator.low, high=operator.high)


def scaling(operator: QInterpolate) -> dict[str, Value]:
    """Return the members of a `tvm_ext_qinterpolate_layer` that scale a sum, by the cheapest exact form."""
    requantize, largest = finish(operator), _largest(operator, weight_bits(operator))
    multiplier, shift = int(requantize.mantissa[0]), int(requantize.shift[0])
    limits: dict[str, Value] = {"low": operator.low, "high": operator.high}
    zeros = (multiplier & -multiplier).bit_length() - 1
    only_shift = shift - zeros
    if multiplier == 1 << zeros and 1 <= only_shift <= 30 and largest + (1 << (only_shift - 1)) < 1 << 31:
        return {"only_shifts": True, "shift": only_shift, **limits}
    rest = shift - HIGH_WORD_BITS
    has_ties = shift - 1 - zeros < largest.bit_length()
    if multiplier and not has_ties and 1 <= rest <= 30:
        rounding = (2 * quantization(operator.output).zero_point + 1) << (rest - 1)
        if (largest * multiplier >> HIGH_WORD_BITS) + 1 + abs(rounding) < 1 << 31:
            factors: dict[str, Value] = {"multiplier": multiplier, "shift": rest, "rounding": rounding}
            return {"by_high_product": True, **factors, **limits}
    return {"multiplier": multiplier, "shift": shift, **limits}


def _in_fours(array: Array, mode: Literal["edge", "constant"]) -> Array:
    """Return int16[target, taps] with up to four taps, or a multiple of four."""
    taps = array.shape[1]
    more = 0 if taps <= AT_ONCE else -taps % AT_ONCE
    return np.pad(array, ((0, 0), (0, more)), mode).astype(np.int16)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Columns:
    """The columns that the loops read, one output column after the other.

    slots: columns whose sums are kept at the same time; input column j is kept in slot j % the largest distance of two
    columns that one pixel reads. computed: number of sums of columns that an output row computes. table: int16, as
    tvm_ext_qinterpolate.h reads it.
    """

    slots: int
    computed: int
    table: Array

    @classmethod
    def of(cls, pair: tuple[Array, Array], bits: int) -> Self:
        places, weights = pair[0], fixed(pair[1], bits)
        span = int((places.max(axis=1) - places.min(axis=1)).max()) + 1
        slots = span if span <= AT_ONCE else -(-span // AT_ONCE) * AT_ONCE
        kept, computed = [-1] * span, 0
        table: list[int] = []
        for columns, of_columns in zip(places.tolist(), weights.tolist(), strict=True):
            fresh = [column for column in dict.fromkeys(columns) if kept[column % span] != column]
            in_slots = [0] * slots
            for column, weight in zip(columns, of_columns, strict=True):
                kept[column % span] = column
                in_slots[column % span] += weight
            table += [len(fresh), *(number for column in fresh for number in (column, column % span)), *in_slots]
            computed += len(fresh)
        return cls(slots=slots, computed=computed, table=np.array(table, np.int16))


def implement(operator: QInterpolate, target: Target, stored: StoredRows) -> Implementation:
    return implement_by(PLAIN, KERNEL.name, operator, stored)


def implement_by(loops: InterpolationLoops, kernel: str, operator: QInterpolate, stored: StoredRows) -> Implementation:
    """Return the kernel with these inner loops."""
    bits, output, channels = weight_bits(operator), operator.output, operator.inputs[0].shape[3]
    columns, kept_channels = _Columns.of(operator.columns, bits), -(-channels // loops.at_once) * loops.at_once
    in_turn = loops.at_once == 1  # the sums of a channel lie side by side, otherwise those of a column
    tables = (
        ("rows", _in_fours(operator.rows[0], "edge")),
        ("row_weights", _in_fours(fixed(operator.rows[1], bits), "constant")), ("columns", columns.table),
    )  # fmt: skip
    row_taps = tables[0][1].shape[1]
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]), "output": image(output, stored=stored), "row_taps": row_taps,
        "slots": columns.slots, "slot_stride": 1 if in_turn else kept_channels,
        "channel_stride": columns.slots if in_turn else 1, "channels": kept_channels,
        "start": -quantization(operator.inputs[0]).zero_point * (1 << bits), **scaling(operator),
    }  # fmt: skip
    return Implementation(
        kernel=kernel,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *(Parameter(name=name, ctype="int16_t", role="constant") for name, _ in tables),
                Parameter(name="scratch", ctype="uint8_t", role="scratch"),
                *ROW_PARAMETERS,
            ),
            body=_body(loops, stored, [name for name, _ in tables]),
            helpers=shapes(LAYER, members),
            includes=loops.includes,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=tuple((name, table.reshape(-1)) for name, table in tables),
        scratch_bytes=4 * kept_channels * (columns.slots + 1),
        macs=output.num_elements * (row_taps + columns.slots),
        instructions=_instructions(loops, operator, row_taps, columns),
        accumulation="rows, columns ascending",
        spatial=input_rows(operator),
        exact=True,
        pitched=True,
        row_pitched=True,
    )


def _instructions(loops: InterpolationLoops, operator: QInterpolate, row_taps: int, columns: _Columns) -> int:
    """Return the modelled instructions: of the sums of columns that are computed, and of pixels."""
    images, height, width, channels = operator.output.shape
    vectors = -(-channels // loops.at_once)
    column = COLUMN_INSTRUCTIONS + vectors * (loops.row * row_taps + loops.kept)
    pixel = PIXEL_INSTRUCTIONS + columns.slots + vectors * (loops.column * columns.slots + loops.finished)
    return round(images * height * (columns.computed * column + width * pixel))


def input_rows(operator: QInterpolate | Interpolate) -> Spatial:
    """Return which rows of the input each output row reads."""
    places = operator.rows[0]
    access = RowAccess(
        input_rows=operator.inputs[0].shape[1],
        begins=tuple(places.min(axis=1).tolist()), ends=tuple((places.max(axis=1) + 1).tolist()),
    )  # fmt: skip
    return Spatial(output_rows=operator.output.shape[1], inputs=(access,))


def _body(loops: InterpolationLoops, stored: StoredRows, tables: Sequence[str]) -> str:
    """Return a call of the loops of tvm_ext_qinterpolate.h."""
    rings, layer = with_rings(LAYER, stored)
    operands = f"{layer}, {loops.add}, {loops.finish}, input, output, {', '.join(tables)}, sums"
    sums = "int32_t *const sums = (int32_t *)(void *)scratch;"
    return "\n".join([*rings, sums, f"tvm_ext_qinterpolate({operands}, row_begin, row_end);"])


KERNEL = Kernel(
    name="qinterpolate_i8",
    title="Interpolation of quantized images: weighted sums of a few elements of a few rows",
    operator=QInterpolate,
    implement=implement,
    constraints=(rounds_once, quantized_bytes, adds_up_to_one, axes_are_short, rows_in_order, results_in_range),
)
