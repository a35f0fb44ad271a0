"""Recurrent layers of TensorFlow Lite on integers with the DSP extension."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.recurrent import qlstm, qsvdf
from codegen_c.kernels.recurrent.qlstm import LstmGates
from codegen_c.kernels.recurrent.qsvdf import SumLoops
from codegen_c.kernels.shared.requantize import Requantize, wrapped
from codegen_c.operators.kinds import LSTM_GATES, Array, QLstm, QSvdfSum, Quantization
from codegen_c.targets.dsp.kernels.product import HEADERS, FastRequantize

# Weighted sums over time of an SVDF: four features at a time, one product an instruction.
#
# int8 or int16[B, M, 1, F], [F, M] -> int8[B, U]. The features of a step are next to each other, so a load has four of
# int8 or two of int16, and a sum needs one product of each step.

BLOCK = 4
STEP_INSTRUCTIONS = {"int8": 10, "int16": 8}
"""Modelled instructions of four features of a step."""
BLOCK_INSTRUCTIONS = 12
"""Modelled instructions of four features, besides their steps and outputs."""


def fills_blocks(operator: QSvdfSum, target: Target) -> bool:
    """features must be a multiple of four, and each output must have one, two or four of them"""
    features = len(operator.weight)
    return features % BLOCK == 0 and features // len(operator.bias) in (1, 2, BLOCK)


def _requantize(operator: QSvdfSum) -> FastRequantize:
    mantissa, shift = operator.factor
    output = replace(operator.output, quantization=Quantization(scale=1.0, zero_point=operator.zero_point))
    exact = Requantize(
        mantissa=np.array([mantissa], np.int32), shift=np.array([shift], np.uint8), output=output, low=-128, high=127,
        rounding="tflite",
    )  # fmt: skip
    return FastRequantize.of(exact, *_bounds(operator))


def _bounds(operator: QSvdfSum) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest sum of each output before it wraps, int64[U] each."""
    weight, limits = operator.weight.astype(np.int64), np.iinfo(operator.weight.dtype)
    products = np.stack([weight * int(limits.min), weight * int(limits.max)])
    low, high = (
        ends.sum(axis=1).reshape(len(operator.bias), -1).sum(axis=1) + operator.bias
        for ends in (products.min(axis=0), products.max(axis=0))
    )
    return low, high


def implement_sum(operator: QSvdfSum, target: Target, stored: StoredRows) -> Implementation:
    finish, (features, memory) = _requantize(operator), operator.weight.shape
    blocks, units = features // BLOCK, len(operator.bias)
    step = STEP_INSTRUCTIONS[operator.weight.dtype.name]
    return SumLoops(
        kernel=SVDF_SUM.name,
        function="tvm_ext_dsp_svdf_sum",
        layer="tvm_ext_dsp_svdf_layer",
        members={"requantize": finish.members()},
        includes=("tvm_ext_dsp_svdf.h", *HEADERS),
        statements=tuple(finish.tables()),
        tables=("multiplier", "shift"),
        instructions=blocks * (memory * step + BLOCK_INSTRUCTIONS) + units * (finish.instructions + 4),
    ).implement(operator)


SVDF_SUM = Kernel(
    name="qsvdf_sum_dsp",
    title="Weighted sums over time of an SVDF of TensorFlow Lite on integers, four features at a time",
    operator=QSvdfSum,
    implement=implement_sum,
    constraints=(fills_blocks, *qsvdf.SUM.constraints),
)

# Gates and states of an LSTM: activations by lines between entries of a table that has both signs.
#
# An entry is the line from a value of the sigmoid to the next one, as its value at 0 and its slope, so that one load
# and one dual product give a point of it. sigmoid(-x) = 1 - sigmoid(x) holds for the entries and for the lines between
# them exactly; only halves are rounded to the other side, which the sign of x corrects.

TABLE_ENTRIES = 256
"""Entries of each sign."""
GATE_POWER = 12
"""Gates before their functions have units of 2^-12."""
MOST_CELL_POWER = 14
"""The most bits by which units of the cell are shifted to units of the gates, so that an int16 still fits 32 bits."""
LARGEST = (1 << 31) - 1
LEAST_SHIFT = 2
"""Sums are multiplied by 2^(32 - shift), which is an int32."""


def line_table(table: Array) -> Array:
    """Return lines between the values 2^16 * sigmoid(i / 24) - 2^15 for i from -256 to 255, int32[512].

    A line is a function of x = 8 j / 3 * 64 at value j, in units of 2^-12: in the upper half is its value at x = 0,
    in the lower half three times its slope from value to value. From 255 on, and from -255 down, lines are level, as
    tanh is at its ends.
    """
    positive = table.astype(np.int64) - (1 << 15)
    values = np.concatenate([[-positive[-1]], -positive[:0:-1], positive])
    slopes = np.diff(values, append=values[-1])
    starts = values - np.arange(-TABLE_ENTRIES, TABLE_ENTRIES) * slopes
    return wrapped(starts << 16 | 3 * slopes)


def has_a_sigmoid(operator: QLstm, target: Target) -> bool:
    """the table of the sigmoid must begin at a half and end at its largest entry"""
    table = operator.table
    return len(table) == TABLE_ENTRIES and table[0] == 1 << 15 and table[-1] == np.iinfo(np.uint16).max


def is_not_for_size(operator: QLstm, target: Target) -> bool:
    """a build for size has the table of one sign, a fourth of the bytes"""
    return target.optimize != "size" and not target.least_flash


def sums_can_be_scaled_up(operator: QLstm, target: Target) -> bool:
    """where a gate's factor is 1 / 2 or more, its sums must be small enough to be doubled after they are scaled up"""
    largest = [
        int(bound)
        for layer in qlstm.layers(operator)
        for bound in np.max(np.abs(qdense.bounds(layer)), axis=0).reshape(LSTM_GATES, -1).max(axis=1)
    ]
    shifts = [shift for _, shift in operator.factors[: 2 * LSTM_GATES]]
    fit = [bound << max(32 - shift, 1) <= LARGEST for bound, shift in zip(largest, shifts, strict=True)]
    return min(shifts) >= LEAST_SHIFT and all(fit)


def cell_is_not_coarse(operator: QLstm, target: Target) -> bool:
    """the cell must have units of 2^-12 or more"""
    return 0 <= operator.cell_power + GATE_POWER <= MOST_CELL_POWER


def products_are_scaled_down(operator: QLstm, target: Target) -> bool:
    """the factors from products of gates to the cell and to the output must be below 1 / 2"""
    return all(shift >= 32 for _, shift in operator.factors[2 * LSTM_GATES :])


GATES = LstmGates(
    kernel="qlstm_dsp", function="tvm_ext_dsp_lstm_step",
    includes=("tvm_ext_dsp_lstm.h", "tvm_ext_dsp.h", *qlstm.INCLUDES), instructions=125, table=line_table,
)  # fmt: skip
LSTM = Kernel(
    name=GATES.kernel,
    title="Quantized LSTM of TensorFlow Lite: gates by one load and one dual product of a table, around dense kernels",
    operator=QLstm,
    implement=GATES.implement,
    constraints=(
        has_a_sigmoid,
        is_not_for_size,
        sums_can_be_scaled_up,
        products_are_scaled_down,
        cell_is_not_coarse,
        *qlstm.KERNEL.constraints,
    ),
)
KERNELS = (SVDF_SUM, LSTM)
