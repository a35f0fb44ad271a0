"""Questions about floats, and remainders, right for NaN, infinities and signed zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.onnx.operators.emitter import Emitter, dtype_name, number
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


class IsInf(OnnxOpConverter):
    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        negative, positive = bool(attr.get("detect_negative", 1)), bool(attr.get("detect_positive", 1))
        if negative and positive:
            return emit.isinf(x)
        if not negative and not positive:
            return emit.zeros(static_shape(x), "bool")
        return emit.equal(x, number(np.inf if positive else -np.inf, dtype_name(x)))


class Mod(OnnxOpConverter):
    """fmod 0: the remainder has the divisor's sign; fmod 1: the dividend's, as C's."""

    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (a, b) = Emitter(bb), inputs[:2]
        dtype, truncated = dtype_name(a), bool(attr.get("fmod", 0))
        if dtype == "float16":
            raise Refused("its element type float16 is not supported")
        if not dtype.startswith("float"):
            return _whole_remainder(emit, a, b, truncated)
        remainder = _fmod(emit, a, b)
        if truncated:
            return remainder
        zero = number(0, dtype)
        opposite = emit.not_equal(emit.less(remainder, zero), emit.less(b, zero))
        shifted = emit.where(opposite, emit.add(remainder, b), remainder)
        signed_zero = emit.where(emit.less(b, zero), number(-0.0, dtype), zero)
        return emit.where(emit.equal(remainder, zero), signed_zero, shifted)


def _fmod(emit: Emitter, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    shape = np.broadcast_shapes(static_shape(a), static_shape(b))

    def compute(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *at: tirx.fmod(x(*at), y(*at)), "fmod")

    return emit.te(compute, emit.broadcast_to(a, shape), emit.broadcast_to(b, shape), name="fmod")


def _whole_remainder(emit: Emitter, a: relax.Expr, b: relax.Expr, truncated: bool) -> relax.Expr:
    if not truncated:
        return emit.floor_mod(a, b)
    shape = np.broadcast_shapes(static_shape(a), static_shape(b))

    def compute(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *at: tirx.truncmod(x(*at), y(*at)), "remainder")

    return emit.te(compute, emit.broadcast_to(a, shape), emit.broadcast_to(b, shape), name="remainder")


CONVERTERS = {("", "IsInf"): IsInf, ("", "Mod"): Mod}
