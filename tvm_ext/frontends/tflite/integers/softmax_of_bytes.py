"""SOFTMAX of int8 over the last axis to int16, or with a factor beta: exponentials by a table, one reciprocal for each.

The kernel of softmax has int8 outputs and no beta; the arithmetic is the same (tvm_ext_softmax_tflite.h).
"""

from __future__ import annotations

import numpy as np
import tflite
from tvm import relax, te, tirx

from codegen_c.kernels.softmax.qsoftmax_tflite import MAX_LENGTH, exponentials_of
from codegen_c.kernels.softmax.tflite_exponential import SUM_BITS
from relay_passes.dataflow import constant
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode, wide

_BITS = {"int8": 8, "int16": 16}
_MOST_SHIFT = 31
_SCALE_ERROR = 1e-3
"""Part of an output's scale that a file may round away."""
_SMALLEST_SCALE = 2.0**-26
# 48 / 17 and 32 / 17 in units of 2^-29: where Newton's method begins.
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
    """int64 2^31 / (1 + x), where 1 + x are sums shifted to 32 bits: three steps of Newton's method."""

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
    """int64 half of a sum that is shifted to 32 bits."""
    return (tirx.Cast("int64", total) << _leading_zeros(total)) >> wide(1)


def _high(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Upper 32 bits of 2 * a * b, halves up."""
    return (a * b + wide(1 << 30)) >> wide(31)


def _divided(value: tirx.Expr, places: tirx.Expr) -> tirx.Expr:
    """value / 2^places for values from 0 on, halves up."""
    return (value + ((wide(1) << places) >> wide(1))) >> places


def _leading_zeros(total: tirx.Expr) -> tirx.Expr:
    """Places by which a sum above 0 is shifted to the left until its bit 31 is set."""
    found = wide(31)
    for bit in range(1, 31):
        found = found - tirx.Cast("int64", total >= tirx.const(1 << bit, "int32"))
    return found


def _saturated(value: tirx.Expr) -> tirx.Expr:
    return tirx.max(tirx.min(value, wide((1 << 31) - 1)), wide(-(1 << 31)))
