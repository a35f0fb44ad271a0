"""ADD_N and CUMSUM of bytes: the real sums, rounded once, halves away from zero.

TensorFlow Lite Micro rounds each input of ADD_N, and has no scale for the result of CUMSUM but its input's.
"""

from __future__ import annotations

import math

from tvm import relax, tirx

from codegen_c.kernels.shared.requantize import fixed_point
from relay_passes.dataflow import static_shape
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode, wide
from tvm_ext.frontends.tflite.movement import Moved, cumulative_sum
from tvm_ext.frontends.tflite.rescale import clamped

_LARGEST_RATIO = 1 << 20
"""Steps of the output in a step of an input, times how many are added up: sums stay in int64."""


def add_n(node: IntegerNode) -> relax.Expr:
    """The sum of tensors of one shape, each of its own scale. Raises Refused for scales too far apart."""
    ratios = [node.scale(place) / node.scale() for place in range(len(node.inputs))]
    shift = _shift(max(ratios), sum(ratios))
    factors = [round(ratio * 2.0**shift) for ratio in ratios]

    def element(*steps: tirx.Expr) -> tirx.Expr:
        total = sum((step * wide(factor) for step, factor in zip(steps, factors, strict=True)), wide(0))
        return _finished(node, total, shift)

    return node.elementwise(element, *range(len(node.inputs)))


def sums_along(node: IntegerNode) -> relax.Expr:
    """Sums of all elements up to each one along an axis. Raises Refused for scales too far apart."""
    axis = int(node.array(1, "axis").reshape(()))
    ratio = node.scale(0) / node.scale()
    shift = _shift(ratio, ratio * static_shape(node.values[0])[axis])
    whole = node.builder.emit(relax.op.astype(node.values[0], "int32"))
    distances = node.builder.emit(relax.op.subtract(whole, relax.const(node.zero_point(0), "int32")))
    values = (distances, node.values[1])
    summed = node.builder.emit(cumulative_sum(Moved(table=node.table, values=values, zero=0, builder=node.builder)))
    factor = round(ratio * 2.0**shift)
    return node.of_integers(summed, lambda steps: _finished(node, steps * wide(factor), shift))


def _shift(ratio: float, total: float) -> int:
    """Bits after the point of factors: 31 bits of the largest one, as long as sums leave room."""
    if not math.isfinite(total) or total >= _LARGEST_RATIO:
        raise Refused(f"its sums reach {total:.3g} steps of its result for one of its inputs; the limit is 2^20")
    return min(fixed_point(ratio)[1], 50)


def _finished(node: IntegerNode, total: tirx.Expr, shift: int) -> tirx.Expr:
    half = wide(1 << (shift - 1))
    sign = tirx.Cast("int64", total < wide(0))
    return clamped(((total + half - sign) >> wide(shift)) + wide(node.zero_point()), node.dtype)
