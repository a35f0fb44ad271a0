"""LOGISTIC and TANH of int16, by linear interpolation in a table of the sigmoid at every 1/24."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx

from relay_passes.dataflow import constant
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode

_STEPS = 24
_INPUT_BITS = 12
"""Fractional bits of an input that needs no factor other than 3."""
_MOST_FACTOR = 32767 / 2

Finish = Callable[[tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr]
"""Computes the int16 result, in int32, from the scaled input, its index in the table, and the interpolated value."""


def _table() -> np.ndarray:
    """Return int32[256]: the sigmoid times 2^16, raised by half of the error of a straight line in its middle."""
    places = np.arange(257) / _STEPS
    values, middles = 65536 / (1 + np.exp(-places)), 65536 / (1 + np.exp(-places[:-1] - 0.5 / _STEPS))
    missed = middles - (values[:-1] + values[1:]) / 2
    table = np.floor(values[:-1] + missed / 2 + 0.5)
    table[-1] = 65535
    return table.astype(np.int32)


def logistic(node: IntegerNode) -> relax.Expr:
    return _sigmoid(node, bits=9, direct_shifts=(0,), finish=_finished_logistic)


def tanh(node: IntegerNode) -> relax.Expr:
    """Convert 2 sigmoid(2 x) - 1, with half as many bits between the entries of the table."""
    return _sigmoid(node, bits=8, direct_shifts=(0, 1), finish=_finished_tanh)


def _sigmoid(node: IntegerNode, *, bits: int, direct_shifts: tuple[int, ...], finish: Finish) -> relax.Expr:
    if node.scale() != 2.0**-15 or node.zero_point() or node.zero_point(0):
        raise Refused("its int16 output has scale 2^-15 by definition, and no zero point")
    factor, shift = _factor(node.scale(0), direct_shifts)
    half = (1 << (shift - 1)) if shift else 0

    def compute(source: te.Tensor, table: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            scaled = (tirx.Cast("int32", source(*at)) * _narrow(factor) + _narrow(half)) >> _narrow(shift)
            size = tirx.Select(scaled < 0, -scaled, scaled)
            place = size >> _narrow(bits)
            index = tirx.min(place, _narrow(254))
            low, high = table[index], table[index + 1]
            between = (low << _narrow(bits)) + (size & _narrow((1 << bits) - 1)) * (high - low)
            return tirx.Cast("int16", finish(scaled, place, between))

        return te.compute(node.shape(0), element, "sigmoid")

    return node.builder.call_te(compute, node.values[0], constant(_table()), primfunc_name_hint="sigmoid")


def _finished_logistic(scaled: tirx.Expr, place: tirx.Expr, between: tirx.Expr) -> tirx.Expr:
    value = tirx.Select(place >= 255, _narrow(0x7FFF << 10), between)
    half = _narrow(1 << 9)
    return tirx.Select(scaled >= 0, value + half, _narrow(1 << 25) - value + half - 1) >> _narrow(10)


def _finished_tanh(scaled: tirx.Expr, place: tirx.Expr, between: tirx.Expr) -> tirx.Expr:
    value = tirx.Select(place >= 255, _narrow(0xFFFF << 8), between)
    one, half = _narrow(1 << 23), _narrow(1 << 7)
    return tirx.Select(scaled >= 0, value - one + half, -value + one + half - 1) >> _narrow(8)


def _factor(scale: float, direct_shifts: tuple[int, ...]) -> tuple[int, int]:
    """Return (factor, shift) from steps of the input to steps of 1 / (3 * 4096)."""
    exponent = math.log2(scale)
    if exponent.is_integer() and int(exponent) + _INPUT_BITS in direct_shifts:
        return 3 << (int(exponent) + _INPUT_BITS), 0
    factor, shift = scale * (1 << _INPUT_BITS) * 3, 0
    while factor <= _MOST_FACTOR and shift <= 30:
        factor, shift = factor * 2, shift + 1
    if factor > 32767:
        raise Refused(f"its input's scale of {scale:g} is too large for int16")
    return int(factor), shift


def _narrow(number: int) -> tirx.Expr:
    return tirx.const(number, "int32")
