"""SOFTMAX of int16 over the last axis, by two tables of 512 straight lines: of exp from -10 to 0, and of 1 / (1 + x).

Each table is of int16; tables are in single precision, each line moved by half of its error in the middle.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tflite
from tvm import relax, te, tirx

from relay_passes.dataflow import constant
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode, wide
from tvm_ext.frontends.tflite.rescale import rescaled

_LINES = 512
_RANGE = 65535
_EXPONENT_RANGE = 10.0
_LONGEST_AXIS = 1 << 15
"""Elements whose exponentials, each below 2^15, add up to less than 2^30."""


def softmax(node: IntegerNode) -> relax.Expr:
    if abs(node.scale() * 32768 - 1) > 1e-3 or node.zero_point() or node.zero_point(0):
        raise Refused("its int16 output has scale 2^-15 by definition, and no zero point")
    *outer, depth = node.shape(0)
    if not 0 < depth < _LONGEST_AXIS:
        raise Refused(f"its last axis has {depth} elements; 1 to {_LONGEST_AXIS - 1} are supported")
    beta = float(np.float32(node.options(tflite.SoftmaxOptions).Beta()))
    factor = node.scale(0) * beta / (_EXPONENT_RANGE / _RANGE)

    rows = tuple(outer)

    def powers(source: te.Tensor, exponentials: te.Tensor) -> te.Tensor:
        axis = te.reduce_axis((0, depth), "c")
        largest = te.compute(rows, lambda *at: te.max(source(*at, axis.var), axis), "largest")

        def exponential(*at: tirx.Var) -> tirx.Expr:
            below = tirx.Cast("int64", source(*at)) - tirx.Cast("int64", largest(*at[:-1]))
            steps = tirx.max(tirx.min(rescaled(below, factor) + wide(32767), wide(32767)), wide(-32768))
            return _looked_up(tirx.Cast("int32", steps), exponentials)

        return te.compute((*rows, depth), exponential, "powers")

    def shares(powers: te.Tensor, sums: te.Tensor, reciprocals: te.Tensor) -> te.Tensor:
        inverse = te.compute(rows, lambda *at: _reciprocal(sums(*at), reciprocals), "inverse")

        def element(*at: tirx.Var) -> tirx.Expr:
            # The shift is at least 14: the largest element's exponential is 2^15 - 1 alone.
            shift = tirx.Cast("int64", _bits(sums(*at[:-1])) - 1)
            product = tirx.Cast("int64", powers(*at)) * tirx.Cast("int64", inverse(*at[:-1]))
            value = (product + (wide(1) << (shift - 1))) >> shift
            return tirx.Cast("int16", tirx.max(tirx.min(value, wide(32767)), wide(0)))

        return te.compute((*rows, depth), element, "softmax")

    given = node.builder.emit_te(powers, node.values[0], constant(_EXPONENTIALS), primfunc_name_hint="exponentials")
    sums = node.builder.emit(relax.op.sum(given, -1))
    return node.builder.call_te(shares, given, sums, constant(_RECIPROCALS), primfunc_name_hint="softmax_i16")


def _reciprocal(total: tirx.Expr, table: te.Tensor) -> tirx.Expr:
    """2^15 / (1 + x), where 1 + x is a sum shifted to 17 bits."""
    shifted = (tirx.Cast("int64", total) << tirx.Cast("int64", 31 - _bits(total))) + wide(1 << 13)
    centred = tirx.Cast("int32", shifted >> wide(14)) - _narrow((1 << 15) + (1 << 16))
    return _looked_up(tirx.max(tirx.min(centred, _narrow(32767)), _narrow(-32768)), table)


def _bits(total: tirx.Expr) -> tirx.Expr:
    """Bits of a sum from 2^14 to 2^31."""
    found = _narrow(15)
    for bit in range(15, 31):
        found = found + tirx.Cast("int32", total >= _narrow(1 << bit))
    return found


def _looked_up(steps: tirx.Expr, table: te.Tensor) -> tirx.Expr:
    """A table's value for int32 steps within int16: 128 steps for each line, halves up."""
    index = _narrow(_LINES // 2) + (steps >> _narrow(7))
    base = table[index]
    slope = table[index + 1] - base
    return base + ((slope * (steps & _narrow(127)) + _narrow(64)) >> _narrow(7))


def _table(function: Callable[[np.ndarray], np.ndarray], first: int, scale: float) -> np.ndarray:
    """int32[513] of int16 results at the ends of lines, for a function over `scale` a step from `first - 32768` on."""
    single = np.float32
    step_in, step_out = single(single(scale) / single(_RANGE)), single(single(2) / single(_RANGE))
    low, high = (step_in * single(bound - first) for bound in (-32768, 32767))
    step = single((high - low) / single(_LINES))
    inverse = single(_RANGE + 1) / single(step_out * single(32767) - step_out * single(-32768))

    def rounded(values: np.ndarray) -> np.ndarray:
        return np.copysign(np.floor(np.abs(values) + single(0.5)), values).astype(single)

    def real(values: np.ndarray) -> np.ndarray:
        return function(values.astype(np.float64)).astype(single)

    places = np.arange(_LINES, dtype=single)
    begins = low + places * step
    values, middles = real(begins), real(begins + single(step / single(2)))
    ends = real(low + (places + single(1)) * step)
    sampled = rounded(values * inverse)
    drawn = rounded((ends * inverse + sampled) / single(2))
    bias = rounded((drawn - rounded(middles * inverse)) / single(2))
    last = rounded(real(np.array([high])) * inverse)
    return np.concatenate([sampled - bias, last]).clip(-32768, 32767).astype(np.int32)


def _narrow(number: int) -> tirx.Expr:
    return tirx.const(number, "int32")


_EXPONENTIALS = _table(np.exp, 32767, _EXPONENT_RANGE)
_RECIPROCALS = _table(lambda x: 1 / (1 + x), -32768, 1.0)
