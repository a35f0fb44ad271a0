"""ADD, SUB, MUL, MAXIMUM, MINIMUM by a constant, SQUARED_DIFFERENCE, PRELU, negative LEAKY_RELU, comparisons.

Inputs of int8, uint8 or int16, repeated as numpy repeats them. Sums bring both inputs to 2^-20 of twice the larger
scale, of int16 to 2^-15; squared differences to 2^-7 and 1; comparisons to 2^-8 of one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tflite
from tvm import relax, tirx

from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode, wide
from tvm_ext.frontends.tflite.rescale import check_sums, clamped, rescaled

_SUM_BITS = {"int8": 20, "uint8": 20, "int16": 15}
_DIFFERENCE_BITS = {"int8": 7, "int16": 0}
_COMPARISON_BITS = 8
_FURTHEST = {"int8": 255, "uint8": 255, "int16": 1 << 15}
"""The largest distance of an element from the zero point, which is 0 for int16."""


def _sum(node: IntegerNode, options: type, sign: int) -> relax.Expr:
    bits, common = _SUM_BITS[node.dtype], 2 * max(node.scale(0), node.scale(1))
    factor = common / (1 << bits) / node.scale()
    _check(node, 1 << bits, factor)
    limits = _limits(node, node.options(options).FusedActivationFunction())

    def element(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        first = rescaled(a * wide(1 << bits), node.scale(0) / common)
        second = rescaled(b * wide(1 << bits), node.scale(1) / common)
        return _bounded(node, rescaled(first + wide(sign) * second, factor), limits)

    return node.elementwise(element, 0, 1)


def add(node: IntegerNode) -> relax.Expr:
    return _sum(node, tflite.AddOptions, 1)


def subtract(node: IntegerNode) -> relax.Expr:
    return _sum(node, tflite.SubOptions, -1)


def multiply(node: IntegerNode) -> relax.Expr:
    factor = node.scale(0) * node.scale(1) / node.scale()
    _check(node, _FURTHEST[node.dtype], factor)
    limits = _limits(node, node.options(tflite.MulOptions).FusedActivationFunction())
    return node.elementwise(lambda a, b: _bounded(node, rescaled(a * b, factor), limits), 0, 1)


def maximum(node: IntegerNode) -> relax.Expr:
    return _chosen(node, tirx.max)


def minimum(node: IntegerNode) -> relax.Expr:
    return _chosen(node, tirx.min)


def _chosen(node: IntegerNode, choose: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]) -> relax.Expr:
    """One of two elements of the same scale and zero point."""
    return node.elementwise(lambda a, b: clamped(choose(a, b) + wide(node.zero_point()), node.dtype), 0, 1)


def squared_difference(node: IntegerNode) -> relax.Expr:
    bits, common = _DIFFERENCE_BITS[node.dtype], 2 * max(node.scale(0), node.scale(1))
    factor = common * common / ((1 << 2 * bits) * node.scale())
    _check(node, _FURTHEST[node.dtype] << 2 * bits, factor)

    def element(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        first = rescaled(a * wide(1 << bits), node.scale(0) / common)
        second = rescaled(b * wide(1 << bits), node.scale(1) / common)
        return _bounded(node, rescaled((first - second) * (first - second), factor))

    return node.elementwise(element, 0, 1)


def prelu(node: IntegerNode) -> relax.Expr:
    above, below = node.scale(0) / node.scale(), node.scale(0) * node.scale(1) / node.scale()
    _check(node, 1, above)
    _check(node, _FURTHEST["int8"], below)

    def element(value: tirx.Expr, slope: tirx.Expr) -> tirx.Expr:
        return _bounded(node, tirx.Select(value >= wide(0), rescaled(value, above), rescaled(value * slope, below)))

    return node.elementwise(element, 0, 1)


def leaky_relu(node: IntegerNode) -> relax.Expr:
    """A negative slope, which turns the sign after the rounding."""
    slope = float(np.float32(node.options(tflite.LeakyReluOptions).Alpha()))
    above, below = node.scale(0) / node.scale(), -node.scale(0) * slope / node.scale()
    _check(node, 1, max(above, below))

    def element(value: tirx.Expr) -> tirx.Expr:
        return _bounded(node, tirx.Select(value >= wide(0), rescaled(value, above), -rescaled(value, below)))

    return node.elementwise(element, 0)


def comparison(compare: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]) -> Callable[[IntegerNode], relax.Expr]:
    """A converter of a comparison of bytes."""

    def convert(node: IntegerNode) -> relax.Expr:
        if max(node.scale(0), node.scale(1)) >= 1:
            raise Refused("TensorFlow Lite compares integers with scales below 1 only")

        def element(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
            first = rescaled(a * wide(1 << _COMPARISON_BITS), node.scale(0))
            return compare(first, rescaled(b * wide(1 << _COMPARISON_BITS), node.scale(1)))

        return node.elementwise(element, 0, 1)

    return convert


def _check(node: IntegerNode, steps: int, factor: float) -> None:
    """Raises Refused where as many steps for each of an input's, times a factor, or twice as many, pass int32."""
    check_sums(np.array([_FURTHEST[node.dtype] * steps]), factor)


def _bounded(node: IntegerNode, steps: tirx.Expr, limits: tuple[int, int] | None = None) -> tirx.Expr:
    """Steps of the output as its elements, within the limits of a fused activation."""
    shifted = steps + wide(node.zero_point())
    if limits is not None:
        shifted = tirx.max(tirx.min(shifted, wide(limits[1])), wide(limits[0]))
    return clamped(shifted, node.dtype)


def _limits(node: IntegerNode, function: int) -> tuple[int, int]:
    """Least and greatest element that an activation leaves."""
    info, kinds = np.iinfo(node.dtype), tflite.ActivationFunctionType
    real = {kinds.NONE: (-np.inf, np.inf), kinds.RELU: (0, np.inf), kinds.RELU6: (0, 6), kinds.RELU_N1_TO_1: (-1, 1)}
    if function not in real:
        raise Refused(f"its fused activation {function} is not supported")
    low, high = (
        None if np.isinf(bound) else node.zero_point() + _rounded(np.float32(bound) / np.float32(node.scale()))
        for bound in real[function]
    )
    return (info.min if low is None else max(low, info.min)), (info.max if high is None else min(high, info.max))


def _rounded(number: np.float32) -> int:
    """The nearest whole number, halves away from zero."""
    return int(np.copysign(np.floor(np.abs(number) + 0.5), number))
