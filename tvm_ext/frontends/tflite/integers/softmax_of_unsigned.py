"""SOFTMAX of uint8 over the last axis, as LiteRT computes it: exponentials by a table, sums in single precision.

The table has exp(-d * scale * beta) for each distance d from the largest element, so that no exponential is computed at
run time. LiteRT adds up and divides real numbers here; integers would give other elements.
"""

from __future__ import annotations

import numpy as np
import tflite
from tvm import relax, te, tirx

from relay_passes.dataflow import constant
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode

_SCALE_ERROR = 1e-3
"""Part of the output's scale that a file may round away."""


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
