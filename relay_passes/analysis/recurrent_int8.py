"""A float recurrent layer as integers: the numbers of an `IntegerRecurrentLayer` from its weights and its ranges.

Each row of the weights, which gives one gate of one unit, has a scale of its own. It covers the products of the input
and of the hidden state alike, because both are summed in the same integer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relay_passes.analysis.int8_parameters import INT16, AffineQuantization
from relay_passes.dataflow import array_of, op_name, static_shape
from tvm_ext.core.decisions.composites import IntegerRecurrentLayer, RecurrentLayer, RepeatedStep
from tvm_ext.core.recurrent_cells import RECURRENT_CELLS, UNIT_POWER, CellProduct, RecurrentCell

Array = np.ndarray

_LARGEST_WEIGHT = 127
_MOST_SUM = 1 << 31
_HEADROOM = 2.0
"""Factor by which a state may exceed its range on the samples. It costs one of 16 bits."""
_MOST_LEFT, _MOST_SHIFT = 14, 30
INT32_MAX = np.iinfo("int32").max
TABLE = np.round((1 << UNIT_POWER) / (1 + np.exp(8 - np.arange(257) / 16))).astype(np.int16)
"""Sigmoid of i / 16 - 8 in units of 2^-15."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatRecurrent:
    """A standard recurrent layer as a call of its PrimFunc.

    sequence, states: operands of the call; a state may be a constant.
    input_weight, hidden_weight: float32[G H, C] and [G H, H]; input_bias, hidden_bias: float32[G H].
    """

    layer: RecurrentLayer
    cell: RecurrentCell
    is_backward: bool
    sequence: relax.Var
    states: tuple[relax.Expr, ...]
    input_weight: Array
    hidden_weight: Array
    input_bias: Array
    hidden_bias: Array

    @property
    def units(self) -> int:
        return int(self.hidden_weight.shape[1])

    @property
    def operands(self) -> tuple[relax.Expr, ...]:
        """The operands that the PrimFunc on integers takes in the same positions."""
        return (*self.states, self.sequence)


def recurrent_of(value: relax.Expr, mod: tvm.IRModule) -> FloatRecurrent | None:
    """Return the standard float32 layer that an expression calls, or None for everything else."""
    if op_name(value) != "relax.call_tir":
        return None
    function = mod[value.args[0]] if value.args[0] in mod.functions else None
    layer = RecurrentLayer.read(function)
    if not layer.cell:
        return None
    cell, operands = RECURRENT_CELLS[layer.cell], list(value.args[1].fields[:])
    states, (sequence, *weights) = operands[: len(cell.states)], operands[len(cell.states) :]
    arrays = [array_of(weight) for weight in weights[: 3 if layer.has_biases else 2]]
    if not isinstance(sequence, relax.Var) or any(array is None for array in arrays):
        return None
    input_weight, hidden_weight, *biases = (array[0] for array in arrays if array is not None)
    bias = biases[0].reshape(2, -1) if biases else np.zeros((2, len(hidden_weight)), np.float32)
    return FloatRecurrent(
        layer=layer, cell=cell, is_backward=RepeatedStep.read(function).is_backward, sequence=sequence,
        states=tuple(states), input_weight=input_weight, hidden_weight=hidden_weight, input_bias=bias[0],
        hidden_bias=bias[1],
    )  # fmt: skip


def state_of_range(low: float, high: float) -> AffineQuantization:
    """Return the parameters of a wide state, int16 with a power of two as scale."""
    most = max(-low, high, 2.0**-14)
    # A hidden state that tanh bounds needs no headroom: its range ends at 1.
    wanted = 1.0 if most <= 1.0 else most * _HEADROOM
    power = min(math.floor(math.log2((INT16.max + 1) / wanted)), UNIT_POWER)
    return AffineQuantization(scale=2.0**-power, zero_point=0, dtype="int16")


def wide_range(own: FloatRecurrent, sequence: Array, states: Sequence[Array], hidden: Array) -> tuple[float, float]:
    """Return the range of the wide state over all steps, or (0, 0) if the cell has none.

    sequence, states: what the layer reads. hidden: the hidden state of each step, float32[T, B, H].
    """
    if own.cell.wide_state is None:
        return 0.0, 0.0
    begin = states[own.cell.wide_state]
    found = hidden if own.cell.wide_state == 0 else _cells(own, sequence, states[0], begin, hidden)
    return float(min(begin.min(), found.min())), float(max(begin.max(), found.max()))


def _cells(own: FloatRecurrent, sequence: Array, first: Array, cell: Array, hidden: Array) -> Array:
    """Return the cell of an LSTM at each step, float32[T, B, H]."""
    products = sequence @ own.input_weight.T + (own.input_bias + own.hidden_bias)
    order = range(len(sequence))
    found, before = np.empty_like(hidden), first
    for t in reversed(order) if own.is_backward else order:
        i, _, f, c = np.split(products[t] + before @ own.hidden_weight.T, 4, axis=1)
        cell = cell / (1 + np.exp(-f)) + np.tanh(c) / (1 + np.exp(-i))
        limit = own.layer.cell_limit
        found[t] = cell = np.clip(cell, -limit, limit) if limit else cell
        before = hidden[t]
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerRecurrent:
    """A recurrent layer on integers.

    layer: its decision. constants: weights, biases, multipliers and table in the order of its PrimFunc.
    sequence: parameters of the sequence. states: of each state. output: of the int8 hidden state.
    """

    layer: IntegerRecurrentLayer
    constants: tuple[Array, ...]
    sequence: AffineQuantization
    states: tuple[AffineQuantization, ...]
    output: AffineQuantization


def quantize_recurrent(
    own: FloatRecurrent,
    sequence: AffineQuantization,
    states: tuple[AffineQuantization, ...],
    output: AffineQuantization,
) -> IntegerRecurrent | None:
    """Return a layer on integers, or None if its sums do not fit int32.

    sequence, states, output: parameters of the sequence, of each state, and of the hidden state of each step.
    """
    parts = [_product(own, form, sequence, output) for form in own.cell.products]
    factors = np.concatenate([factor for _, _, factor in parts])
    # The smallest shift leaves the most bits to the multipliers, which must be below 2^31.
    left = max(0, math.ceil(math.log2(max(float(factors.max()), 2.0**-40) * 2.0)) + 1)
    multiplier = np.rint(factors * 2.0 ** (32 - left)).astype(np.int64)
    if (
        left > _MOST_LEFT
        or multiplier.max() >= _MOST_SUM
        or any(_most(*part[:2]) << left >= _MOST_SUM for part in parts)
    ):
        return None
    wide = states[own.cell.wide_state] if own.cell.wide_state is not None else None
    power = -round(math.log2(wide.scale)) if wide else 0
    result_scale = wide.scale if wide and own.cell.wide_state == 0 else 2.0**-UNIT_POWER
    layer = IntegerRecurrentLayer(
        cell=own.layer.cell,
        left=left,
        state_power=power,
        hidden_factor=_fifteen_bits(result_scale / output.scale),
        zero_point=output.zero_point,
        limit=min(round(own.layer.cell_limit / wide.scale), INT16.max) if wide else 0,
        is_backward=own.is_backward,
    )
    arrays = [array for weight, bias, _ in parts for array in (weight, bias)]
    return IntegerRecurrent(
        layer=layer, constants=(*arrays, multiplier.astype(np.int32), TABLE), sequence=sequence, states=states,
        output=output,
    )  # fmt: skip


def _fifteen_bits(factor: float) -> tuple[int, int]:
    """Return a factor as a multiplier below 2^15 and a shift from 0 to 30: multiplier / 2^shift."""
    shift = min(max(15 - math.frexp(factor)[1], 0), _MOST_SHIFT)
    return min(round(factor * 2.0**shift), INT16.max), shift


def _most(weight: Array, bias: Array) -> int:
    """Return a bound of the magnitude of all sums."""
    return int((np.abs(weight.astype(np.int64)).sum(axis=1) * 128 + np.abs(bias.astype(np.int64))).max())


def _product(
    own: FloatRecurrent, form: CellProduct, sequence: AffineQuantization, hidden: AffineQuantization
) -> tuple[Array, Array, Array]:
    """Return weights int8[rows, depth], biases int32[rows] and factors float64[rows] from sums to gates."""
    rows = np.concatenate([np.arange(gate * own.units, (gate + 1) * own.units) for gate in form.gates])
    of_input, of_hidden = form.reads in ("input", "both"), form.reads in ("hidden", "both")
    scaled, zero_points, bias = list[Array](), list[Array](), np.zeros(len(rows))
    for is_read, weight, parameters, added in (
        (of_input, own.input_weight, sequence, own.input_bias),
        (of_hidden, own.hidden_weight, hidden, own.hidden_bias),
    ):
        if is_read:
            scaled.append(weight[rows].astype(np.float64) * parameters.scale)
            zero_points.append(np.full(weight.shape[1], parameters.zero_point, np.int64))
            bias = bias + added[rows]
    whole = np.concatenate(scaled, axis=1)
    step = np.abs(whole).max(axis=1, initial=0.0) / _LARGEST_WEIGHT
    # A bias has room for a quarter of int32.
    step = np.maximum(step, np.abs(bias) / (1 << 29))
    step = np.where(step > 0, step, 1.0)
    weight = np.clip(np.rint(whole / step[:, np.newaxis]), -_LARGEST_WEIGHT, _LARGEST_WEIGHT).astype(np.int8)
    offset = weight.astype(np.int64) @ np.concatenate(zero_points)
    powers = np.repeat(form.powers, own.units)
    units = np.where(powers > 0, 2.0**-powers, hidden.scale)
    return weight, (np.rint(bias / step).astype(np.int64) - offset).astype(np.int32), step / units


def result_shapes(own: FloatRecurrent) -> list[tuple[int, ...]]:
    """Return the shapes of the next states and of the outputs."""
    steps, batch, _ = static_shape(own.sequence)
    return [(batch, own.units)] * len(own.states) + [(steps, batch, own.units)]


def constant_states(own: FloatRecurrent, made: IntegerRecurrent) -> list[Array | None]:
    """Return each state that is a constant as integers, and None for the others."""
    arrays = [array_of(state) for state in own.states]
    return [None if a is None else p.quantize(a) for a, p in zip(arrays, made.states, strict=True)]
