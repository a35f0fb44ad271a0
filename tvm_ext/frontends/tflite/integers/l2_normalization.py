"""L2_NORMALIZATION of bytes over the last axis, by an inverse root of five steps of Newton's method.

Numbers with 3 integer bits are int32, in units of 2^-28. The operations are those of gemmlowp, fixedpoint/fixedpoint.h.
"""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx

from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode, wide
from tvm_ext.frontends.tflite.rescale import clamped

_LONGEST_AXIS = (1 << 31) // (255 * 255)
"""Number of elements whose squared distances from the zero point add up to less than 2^31."""
_STEPS = 5
_THREE_HALVES = (1 << 28) + (1 << 27)
_HALF_ROOT_OF_2 = 1518500250
"""sqrt(2) / 2 in units of 2^-31."""
_FIRST_SHIFT = 11
_OUTPUT_BITS = 7
"""Fractional bits of the result."""


def l2_normalization(node: IntegerNode) -> relax.Expr:
    *outer, depth = node.shape(0)
    zero_point = 128 if node.dtype == "uint8" else 0
    if abs(node.scale() * 128 - 1) > 1e-3 or node.zero_point() != zero_point:
        raise Refused(f"its output has scale 1/128 and zero point {zero_point} by definition")
    if not 0 < depth <= _LONGEST_AXIS:
        raise Refused(f"its last axis has {depth} elements; 1 to {_LONGEST_AXIS} are supported")
    rows = tuple(outer)

    def squares(source: te.Tensor) -> te.Tensor:
        def square(*at: tirx.Var) -> tirx.Expr:
            distance = tirx.Cast("int32", source(*at)) - tirx.const(node.zero_point(0), "int32")
            return distance * distance

        return te.compute((*rows, depth), square, "squares")

    def shifts(sums: te.Tensor) -> te.Tensor:
        return te.compute(rows, lambda *at: _shift(sums(*at)), "shifts")

    def scaled(source: te.Tensor, factors: te.Tensor, shifts: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            # For uint8 the distance is multiplied by 128 first. For int8 that is part of the shift.
            places = tirx.Cast("int64", shifts(*at[:-1])) - wide(0 if node.dtype == "uint8" else _OUTPUT_BITS)
            before = wide(_OUTPUT_BITS) if node.dtype == "uint8" else tirx.max(-places, wide(0))
            high = _high(node.steps(source, 0, *at) << before, tirx.Cast("int64", factors(*at[:-1])))
            return clamped(_divided(high, tirx.max(places, wide(0))) + wide(zero_point), node.dtype)

        return te.compute((*rows, depth), element, "normalized")

    builder, data = node.builder, node.values[0]
    sums = builder.emit(relax.op.sum(builder.emit_te(squares, data, primfunc_name_hint="squares"), -1))
    given = _inverse_roots(builder, rows, sums)
    places = builder.emit_te(shifts, sums, primfunc_name_hint="shifts")
    return builder.call_te(scaled, data, given, places, primfunc_name_hint="l2_normalized")


def _pairs(total: tirx.Expr) -> tirx.Expr:
    """Return the pairs of bits that shift a sum above 1 left into 2^27 to 2^29; negative counts shift right."""
    pairs = tirx.const(13, "int32")
    for bits in range(3, 30, 2):
        pairs = pairs - tirx.Cast("int32", total >= tirx.const(1 << bits, "int32"))
    return pairs


def _shift(total: tirx.Expr) -> tirx.Expr:
    """Return the bits by which the product with the factor is divided, which is 0 for sums up to 1."""
    return tirx.Select(total <= 1, tirx.const(0, "int32"), tirx.const(_FIRST_SHIFT, "int32") - _pairs(total))


def _normalized(total: tirx.Expr) -> tirx.Expr:
    """Return int64: 0 for sums up to 1, otherwise the sum shifted to lie from 2^27 to 2^29."""
    pairs = tirx.Cast("int64", _pairs(total))
    left = tirx.Cast("int64", total) << tirx.max(pairs * wide(2), wide(0))
    return tirx.Select(total <= 1, wide(0), left >> tirx.max(pairs * wide(-2), wide(0)))


def _inverse_roots(builder: relax.BlockBuilder, rows: tuple[int, ...], sums: relax.Expr) -> relax.Expr:
    """Return int32 factors of sums.

    Each step of Newton's method is its own function, because it reads its last value several times.
    """

    def normalized(sums: te.Tensor) -> te.Tensor:
        return te.compute(rows, lambda *at: _normalized(sums(*at)) >> wide(1), "values")

    def begun(values: te.Tensor) -> te.Tensor:
        return te.compute(rows, lambda *at: tirx.Select(values(*at) >= wide(0), wide(1 << 28), wide(0)), "guess")

    def cubed(guess: te.Tensor) -> te.Tensor:
        return te.compute(
            rows, lambda *at: _saturated(_high(_high(guess(*at), guess(*at)), guess(*at)) * wide(1 << 6)), "cube"
        )

    def nearer(values: te.Tensor, guess: te.Tensor, cube: te.Tensor) -> te.Tensor:
        def step(*at: tirx.Var) -> tirx.Expr:
            less = _high(_divided(values(*at), wide(1)), cube(*at))
            return _saturated((_high(wide(_THREE_HALVES), guess(*at)) - less) * wide(1 << 3))

        return te.compute(rows, step, "guess")

    def finished(values: te.Tensor, guess: te.Tensor) -> te.Tensor:
        def factor(*at: tirx.Var) -> tirx.Expr:
            root = _high(guess(*at), wide(_HALF_ROOT_OF_2))
            return tirx.Cast("int32", tirx.Select(values(*at) == wide(0), wide((1 << 31) - 1), root))

        return te.compute(rows, factor, "factor")

    values = builder.emit_te(normalized, sums, primfunc_name_hint="normalized")
    guess = builder.emit_te(begun, values, primfunc_name_hint="guess")
    for _ in range(_STEPS):
        cube = builder.emit_te(cubed, guess, primfunc_name_hint="cube")
        guess = builder.emit_te(nearer, values, guess, cube, primfunc_name_hint="nearer")
    return builder.emit_te(finished, values, guess, primfunc_name_hint="factors")


def _high(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Return the upper 32 bits of 2 * a * b, with halves up."""
    return (a * b + wide(1 << 30)) >> wide(31)


def _divided(value: tirx.Expr, places: tirx.Expr) -> tirx.Expr:
    """Return value / 2^places, with halves away from zero."""
    mask = (wide(1) << places) - wide(1)
    threshold = (mask >> wide(1)) + tirx.Cast("int64", value < wide(0))
    return (value >> places) + tirx.Cast("int64", (value & mask) > threshold)


def _saturated(value: tirx.Expr) -> tirx.Expr:
    limits = np.iinfo(np.int32)
    return tirx.max(tirx.min(value, wide(int(limits.max))), wide(int(limits.min)))
