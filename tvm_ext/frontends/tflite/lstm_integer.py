"""One step of an int8 LSTM with a cell of int16, in TensorFlow Lite Micro's arithmetic.

Each gate is two products, each rescaled to int16 in units of 2^-12, added with saturation, and looked up: sigmoid and
tanh in units of 2^-15, by a table of sigmoid(i / 24) and straight lines between its entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, frexp

import numpy as np
from tvm import relax, te, tirx

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.tflite.read_file import TfliteTensor
from tvm_ext.frontends.tflite.rescale import check_sums, clamped, rescaled

_INPUT, _HIDDEN, _CELL = 0, 18, 19
_GATES = 4
_GATE_SCALE, _UNIT_SCALE = 2.0**-12, 2.0**-15


def _entry(x: float) -> int:
    """sigmoid(x) in units of 2^-16, raised by half of what a line between entries stays below the curve at most."""
    value = 1 / (1 + exp(-x))
    bend = value * (1 - value) * (2 * value - 1)
    return round(65536 * (value + bend / (24 * 24 * 16)))


_TABLE = np.array([*(_entry(index / 24) for index in range(255)), 65535], np.uint16)


class IntegerCell:
    """Steps of one operator. tensors: its inputs by place, as the file has them; clip: of the cell, 0 for none."""

    def __init__(
        self,
        tensors: Mapping[int, TfliteTensor],
        matrices: list[np.ndarray],
        biases: list[np.ndarray],
        clip: float,
        builder: relax.BlockBuilder,
    ) -> None:
        self._tensors, self._builder = tensors, builder
        self._matrices, self._biases = matrices, biases
        self._given = [constant(array) for array in (*matrices, *biases)]
        self._table = constant(_TABLE)
        scale = _scale(tensors[_CELL])
        self._cell_scale, self._power = scale, frexp(scale)[1] - 1
        self._clip = int(min(max(clip / scale, -32768.0), 32767.0)) if clip > 0 else 0

    def step(self, row: relax.Expr, hidden: relax.Expr, cell: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
        kept, forget, new, out = (self._gate(gate, row, hidden) for gate in range(_GATES))
        cell = self._call(self._cell, [kept, forget, new, cell], "lstm_cell")
        return self._call(self._hidden, [cell, out, self._table], "lstm_hidden"), cell

    def _call(self, compute: object, arguments: list[relax.Expr], name: str) -> relax.Expr:
        return self._builder.emit(self._builder.call_te(compute, *arguments, primfunc_name_hint=name))

    def _gate(self, gate: int, row: relax.Expr, hidden: relax.Expr) -> relax.Expr:
        """int16[B, H] in units of 2^-15: sigmoid, of the cell's own gate tanh."""
        places, matrices = (1 + gate, 1 + _GATES + gate), (self._matrices[gate], self._matrices[_GATES + gate])
        factors, zero_points = [], []
        for place, other, matrix in zip((_INPUT, _HIDDEN), places, matrices, strict=True):
            one, weights = self._tensors[place], self._tensors[other]
            assert one.scales is not None and weights.scales is not None, "refused before"
            factors.append(float(one.scales.scale[0] * weights.scales.scale[0]) / _GATE_SCALE)
            zero_points.append(int(one.scales.zero_point[0]))
            bias = np.abs(self._biases[gate].astype(np.int64)) if place == _INPUT else 0
            check_sums(np.abs(matrix.astype(np.int64)).sum(1) * 255 + bias, factors[-1])
        shape = (static_shape(row)[0], self._biases[gate].size)
        activation = _tanh if gate == 2 else _sigmoid

        def compute(
            x: te.Tensor, h: te.Tensor, of_x: te.Tensor, of_h: te.Tensor, bias: te.Tensor, table: te.Tensor
        ) -> te.Tensor:
            first, second = (
                _product(values, matrix, zero_point, shape)
                for values, matrix, zero_point in zip((x, h), (of_x, of_h), zero_points, strict=True)
            )

            def element(b: tirx.Var, u: tirx.Var) -> tirx.Expr:
                parts = (first[b, u] + bias[u], second[b, u])
                one, other = (
                    clamped(rescaled(_wide(part), factor), "int16") for part, factor in zip(parts, factors, strict=True)
                )
                return clamped(_wide(one) + _wide(other), "int16")

            total = te.compute(shape, element, "total")
            return te.compute(shape, lambda b, u: activation(total[b, u], table, -12), "gate")

        weights = [self._given[gate], self._given[_GATES + gate], self._given[2 * _GATES + gate]]
        return self._call(compute, [row, hidden, *weights, self._table], f"lstm_gate_{gate}")

    def _cell(self, kept: te.Tensor, forget: te.Tensor, new: te.Tensor, cell: te.Tensor) -> te.Tensor:
        def element(b: tirx.Var, u: tirx.Var) -> tirx.Expr:
            left = clamped(rescaled(_wide(forget[b, u]) * _wide(cell[b, u]), _UNIT_SCALE), "int16")
            added = rescaled(_wide(kept[b, u]) * _wide(new[b, u]), _UNIT_SCALE * _UNIT_SCALE / self._cell_scale)
            total = clamped(_wide(left) + _wide(clamped(added, "int16")), "int16")
            if not self._clip:
                return total
            limit = tirx.const(self._clip, "int16")
            return tirx.max(tirx.min(total, limit), tirx.const(-self._clip, "int16"))

        return te.compute(cell.shape, element, "cell")

    def _hidden(self, cell: te.Tensor, out: te.Tensor, table: te.Tensor) -> te.Tensor:
        tensor = self._tensors[_HIDDEN]
        assert tensor.scales is not None, "refused before"
        zero_point = int(tensor.scales.zero_point[0])
        factor = _UNIT_SCALE * _UNIT_SCALE / _scale(tensor)

        def element(b: tirx.Var, u: tirx.Var) -> tirx.Expr:
            product = _wide(_tanh(cell[b, u], table, self._power)) * _wide(out[b, u])
            return clamped(rescaled(product, factor) + tirx.const(zero_point, "int64"), "int8")

        return te.compute(cell.shape, element, "hidden")


def _scale(tensor: TfliteTensor) -> float:
    assert tensor.scales is not None, "refused before"
    return float(tensor.scales.scale[0])


def _wide(value: tirx.Expr) -> tirx.Expr:
    return tirx.Cast("int64", value)


def _number(value: int) -> tirx.Expr:
    return tirx.const(value, "int32")


def _product(values: te.Tensor, matrix: te.Tensor, zero_point: int, shape: tuple[int, int]) -> te.Tensor:
    """int32[B, H]: each row of the matrix times the values without their zero point."""
    axis = te.reduce_axis((0, matrix.shape[1]), "c")

    def product(b: tirx.Var, u: tirx.Var) -> tirx.Expr:
        value = tirx.Cast("int32", values[b, axis.var]) - _number(zero_point)
        return te.sum(value * tirx.Cast("int32", matrix[u, axis.var]), axis)

    return te.compute(shape, product, "sums")


def _sigmoid(steps: tirx.Expr, table: te.Tensor, _power: int) -> tirx.Expr:
    """int16 in units of 2^-15 of int16 in units of 2^-12."""
    scaled = tirx.Cast("int32", steps) * _number(3)  # 24 entries of the table for each 1, in units of 2^-9
    line = _line(tirx.abs(scaled), table, bits=9)
    half = _number(1 << 9)
    result = tirx.Select(scaled >= _number(0), line + half, _number(1 << 25) - line + half - _number(1))
    return tirx.Cast("int16", result >> _number(10))


def _tanh(steps: tirx.Expr, table: te.Tensor, power: int) -> tirx.Expr:
    """int16 in units of 2^-15 of int16 in units of 2^power: 2 sigmoid(2 x) - 1."""
    left, right = max(power + 12, 0), max(-power - 12, 0)
    scaled = tirx.Cast("int32", steps) * _number(3 << left)
    if right:
        scaled = (scaled + _number(1 << (right - 1))) >> _number(right)
    size = tirx.abs(scaled)
    line = tirx.Select((size >> _number(8)) >= _number(255), _number(0xFFFF << 8), _line(size, table, bits=8))
    one, half = _number(1 << 23), _number(1 << 7)
    result = tirx.Select(scaled >= _number(0), line - one + half, one - line + half - _number(1))
    return tirx.Cast("int16", result >> _number(8))


def _line(size: tirx.Expr, table: te.Tensor, *, bits: int) -> tirx.Expr:
    """Value between two entries of the table. bits: of the fraction."""
    index = tirx.min(size >> _number(bits), _number(254))
    low, high = (tirx.Cast("int32", table[index + _number(step)]) for step in (0, 1))
    return (low << _number(bits)) + (size & _number((1 << bits) - 1)) * (high - low)
