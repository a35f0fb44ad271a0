"""SOFTMAX of int8, int16 and uint8 over the last axis, exact to TensorFlow Lite.

Tables are int16, computed in single precision, with each line moved by half of its error in the middle.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tflite
from tvm import relax, te, tirx

from codegen_c.kernels.softmax.qsoftmax_tflite import MAX_LENGTH, SUM_BITS, exponentials_of
from relay_passes.dataflow import constant
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode, wide
from tvm_ext.frontends.tflite.rescale import rescaled

_LINES = 512
_RANGE = 65535
_EXPONENT_RANGE = 10.0
_LONGEST_AXIS = 1 << 15
"""Number of elements whose exponentials, each below 2^15, add up to less than 2^30."""


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
            # The shift is at least 14, because the largest element's exponential alone is 2^15 - 1.
            shift = tirx.Cast("int64", _bits(sums(*at[:-1])) - 1)
            product = tirx.Cast("int64", powers(*at)) * tirx.Cast("int64", inverse(*at[:-1]))
            value = (product + (wide(1) << (shift - 1))) >> shift
            return tirx.Cast("int16", tirx.max(tirx.min(value, wide(32767)), wide(0)))

        return te.compute((*rows, depth), element, "softmax")

    given = node.builder.emit_te(powers, node.values[0], constant(_EXPONENTIALS), primfunc_name_hint="exponentials")
    sums = node.builder.emit(relax.op.sum(given, -1))
    return node.builder.call_te(shares, given, sums, constant(_RECIPROCALS), primfunc_name_hint="softmax_i16")


def _reciprocal(total: tirx.Expr, table: te.Tensor) -> tirx.Expr:
    """Return 2^15 / (1 + x), where 1 + x is a sum shifted to 17 bits."""
    shifted = (tirx.Cast("int64", total) << tirx.Cast("int64", 31 - _bits(total))) + wide(1 << 13)
    centred = tirx.Cast("int32", shifted >> wide(14)) - _narrow((1 << 15) + (1 << 16))
    return _looked_up(tirx.max(tirx.min(centred, _narrow(32767)), _narrow(-32768)), table)


def _bits(total: tirx.Expr) -> tirx.Expr:
    """Return the bits of a sum from 2^14 to 2^31."""
    found = _narrow(15)
    for bit in range(15, 31):
        found = found + tirx.Cast("int32", total >= _narrow(1 << bit))
    return found


def _looked_up(steps: tirx.Expr, table: te.Tensor) -> tirx.Expr:
    """Return a table's value for int32 steps within int16: 128 steps for each line, with halves up."""
    index = _narrow(_LINES // 2) + (steps >> _narrow(7))
    base = table[index]
    slope = table[index + 1] - base
    return base + ((slope * (steps & _narrow(127)) + _narrow(64)) >> _narrow(7))


def _table(function: Callable[[np.ndarray], np.ndarray], first: int, scale: float) -> np.ndarray:
    """Return int32[513] of int16 results at line ends, of a function over `scale` a step from `first - 32768` on."""
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


_BITS = {"int8": 8, "int16": 16}
_MOST_SHIFT = 31
_SCALE_ERROR = 1e-3
"""Fraction of an output's scale that a file may round away."""
_SMALLEST_SCALE = 2.0**-26
# 48 / 17 and 32 / 17 in units of 2^-29, the initial values of Newton's method.
_FIRST, _SLOPE = 1515870810, -1010580540


def softmax_of_bytes(node: IntegerNode) -> relax.Expr:
    bits, (*outer, depth) = _BITS.get(node.dtype, 0), node.shape(0)
    if not bits or abs(node.scale() * (1 << bits) - 1) > _SCALE_ERROR or node.zero_point() != -(1 << (bits - 1)):
        raise Refused("its output has scale 1/256 and zero point -128, of int16 1/65536 and -32768, by definition")
    beta = float(np.float32(node.options(tflite.SoftmaxOptions).Beta()))
    if not 0 < depth <= MAX_LENGTH or beta * node.scale(0) < _SMALLEST_SCALE:
        raise Refused(f"its last axis has {depth} elements, 1 to {MAX_LENGTH} are supported, or its scale is too small")
    rows = tuple(outer)

    def powers(source: te.Tensor, exponentials: te.Tensor) -> te.Tensor:
        axis = te.reduce_axis((0, depth), "c")
        largest = te.compute(rows, lambda *at: te.max(source(*at, axis.var), axis), "largest")

        def power(*at: tirx.Var) -> tirx.Expr:
            return exponentials[tirx.Cast("int32", largest(*at[:-1])) - tirx.Cast("int32", source(*at))]

        return te.compute((*rows, depth), power, "powers")

    def rounded(powers: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            return tirx.Cast("int32", _divided(tirx.Cast("int64", powers(*at)), wide(SUM_BITS)))

        return te.compute((*rows, depth), element, "rounded")

    def shares(powers: te.Tensor, sums: te.Tensor, factors: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            shift = wide(SUM_BITS + 31 - bits) - _leading_zeros(sums(*at[:-1]))
            factor = tirx.Select(shift > wide(_MOST_SHIFT), wide(0), factors(*at[:-1]))
            product = _high(tirx.Cast("int64", powers(*at)), factor)
            value = _divided(product, tirx.max(tirx.min(shift, wide(_MOST_SHIFT)), wide(0)))
            low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
            return tirx.Cast(node.dtype, tirx.max(tirx.min(value + wide(low), wide(high)), wide(low)))

        return te.compute((*rows, depth), element, "softmax")

    table, builder = constant(exponentials_of(beta * node.scale(0))), node.builder
    given = builder.emit_te(powers, node.values[0], table, primfunc_name_hint="exponentials")
    sums = builder.emit(relax.op.sum(builder.emit_te(rounded, given, primfunc_name_hint="rounded"), -1))
    factors = _reciprocals(builder, rows, sums)
    return builder.call_te(shares, given, sums, factors, primfunc_name_hint="softmax_i8")


def _reciprocals(builder: relax.BlockBuilder, rows: tuple[int, ...], sums: relax.Expr) -> relax.Expr:
    """Return int64 2^31 / (1 + x), where 1 + x are sums shifted to 32 bits, by three steps of Newton's method."""

    def begun(sums: te.Tensor) -> te.Tensor:
        return te.compute(rows, lambda *at: wide(_FIRST) + _high(_half(sums(*at)), wide(_SLOPE)), "guess")

    def nearer(sums: te.Tensor, guess: te.Tensor) -> te.Tensor:
        def step(*at: tirx.Var) -> tirx.Expr:
            error = wide(1 << 29) - _high(_half(sums(*at)), guess(*at))
            return guess(*at) + _saturated(_high(guess(*at), error) * wide(4))

        return te.compute(rows, step, "guess")

    guess = builder.emit_te(begun, sums, primfunc_name_hint="guess")
    for _ in range(3):
        guess = builder.emit_te(nearer, sums, guess, primfunc_name_hint="nearer")

    def doubled(guess: te.Tensor) -> te.Tensor:
        return te.compute(rows, lambda *at: _saturated(guess(*at) * wide(2)), "factor")

    return builder.emit_te(doubled, guess, primfunc_name_hint="doubled")


def _half(total: tirx.Expr) -> tirx.Expr:
    """Return int64 half of a sum that is shifted to 32 bits."""
    return (tirx.Cast("int64", total) << _leading_zeros(total)) >> wide(1)


def _high(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Return the upper 32 bits of 2 * a * b, with halves up."""
    return (a * b + wide(1 << 30)) >> wide(31)


def _divided(value: tirx.Expr, places: tirx.Expr) -> tirx.Expr:
    """Return value / 2^places for values from 0 on, with halves up."""
    return (value + ((wide(1) << places) >> wide(1))) >> places


def _leading_zeros(total: tirx.Expr) -> tirx.Expr:
    """Return the bits by which a positive sum is shifted left until its bit 31 is set."""
    found = wide(31)
    for bit in range(1, 31):
        found = found - tirx.Cast("int64", total >= tirx.const(1 << bit, "int32"))
    return found


def _saturated(value: tirx.Expr) -> tirx.Expr:
    return tirx.max(tirx.min(value, wide((1 << 31) - 1)), wide(-(1 << 31)))


"""Fraction of the output's scale that a file may round away."""


def softmax_of_unsigned(node: IntegerNode) -> relax.Expr:
    *outer, depth = node.shape(0)
    if node.dtype != "uint8" or abs(node.scale() * 256 - 1) > _SCALE_ERROR or node.zero_point() != 0:
        raise Refused("its output is uint8 of scale 1/256 and zero point 0 by definition")
    rows, single = tuple(outer), np.float32
    step = -single(node.scale(0)) * single(node.options(tflite.SoftmaxOptions).Beta())
    table = np.exp((step * np.arange(256, dtype=np.float32)).astype(np.float64)).astype(np.float32)

    def powers(source: te.Tensor, exponentials: te.Tensor) -> te.Tensor:
        axis = te.reduce_axis((0, depth), "c")
        largest = te.compute(rows, lambda *at: te.max(source(*at, axis.var), axis), "largest")

        def power(*at: tirx.Var) -> tirx.Expr:
            return exponentials[tirx.Cast("int32", largest(*at[:-1])) - tirx.Cast("int32", source(*at))]

        return te.compute((*rows, depth), power, "powers")

    def shares(powers: te.Tensor, sums: te.Tensor) -> te.Tensor:
        one, scale, half = (tirx.const(float(number), "float32") for number in (1.0, node.scale(), 0.5))
        inverse = te.compute(rows, lambda *at: one / (sums(*at) * scale), "inverse")

        def element(*at: tirx.Var) -> tirx.Expr:
            share = tirx.Cast("int32", powers(*at) * inverse(*at[:-1]) + half)
            return tirx.Cast("uint8", tirx.min(share, tirx.const(255, "int32")))

        return te.compute((*rows, depth), element, "softmax")

    given = node.builder.emit_te(powers, node.values[0], constant(table), primfunc_name_hint="exponentials")
    sums = node.builder.emit(relax.op.sum(given, -1))
    return node.builder.call_te(shares, given, sums, primfunc_name_hint="softmax_u8")
