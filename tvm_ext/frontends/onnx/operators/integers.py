"""Operators on whole numbers and bits: shifts, powers, reinterpretation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import array_of, static_shape
from tvm_ext.frontends.onnx.element_types import SUPPORTED_DTYPES
from tvm_ext.frontends.onnx.operators.emitter import Emitter, dtype_name, number
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


class BitShift(OnnxOpConverter):
    """Shifts by the width or more, or by less than nothing, are C's undefined behaviour and ONNX's 0 or sign."""

    @classmethod
    def _impl_v11(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (x, count) = Emitter(bb), inputs[:2]
        dtype = dtype_name(x)
        bits = np.iinfo(dtype).bits
        is_left = attr["direction"] == b"LEFT"
        inside = emit.less(count, number(bits, dtype))
        if dtype.startswith("int"):
            inside = emit.logical_and(inside, emit.greater_equal(count, number(0, dtype)))
        plain = (emit.left_shift if is_left else emit.right_shift)(x, emit.where(inside, count, number(0, dtype)))
        beyond = number(0, dtype)
        if dtype.startswith("int") and not is_left:
            beyond = emit.where(emit.less(x, number(0, dtype)), number(-1, dtype), number(0, dtype))
        return emit.where(inside, plain, beyond)


class Pow(OnnxOpConverter):
    """The result has the base's type. Whole powers of whole numbers by multiplication, exact and wrapping."""

    @classmethod
    def _impl_v7(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (base, exponent) = Emitter(bb), inputs[:2]
        dtype, kind = dtype_name(base), dtype_name(exponent)
        known = array_of(exponent)
        if known is not None and known.size == 1 and known.item() in (2, 3) and not dtype.startswith("float"):
            square = emit.multiply(base, base)
            product = square if known.item() == 2 else emit.multiply(square, base)
            shape = np.broadcast_shapes(static_shape(base), known.shape)
            return product if shape == static_shape(base) else emit.reshaped(product, shape)
        if dtype.startswith("float"):
            return emit.power(base, emit.cast(exponent, dtype))
        if kind.startswith("float"):
            return emit.cast(emit.power(emit.cast(base, "float64"), emit.cast(exponent, "float64")), dtype)
        return _whole_power(emit, base, exponent)


def _whole_power(emit: Emitter, base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
    """Power by seven bits of the exponent: beyond 127 only powers of 0, 1 and -1 fit, which its last bit decides."""
    shape = np.broadcast_shapes(static_shape(base), static_shape(exponent))
    kind = dtype_name(exponent)
    none, one = number(0, kind), number(1, dtype_name(base))
    odd = emit.bitwise_and(exponent, number(1, kind))
    count = emit.where(emit.greater(exponent, number(127, kind)), emit.add(number(126, kind), odd), exponent)
    result, square = emit.broadcast_to(one, shape), base
    for bit in range(7):
        chosen = emit.not_equal(emit.bitwise_and(count, number(1 << bit, kind)), none)
        result = emit.multiply(result, emit.where(chosen, square, one))
        square = emit.multiply(square, square)
    if kind.startswith("uint"):
        return result
    return emit.where(emit.less(exponent, none), _reciprocal(emit, base, emit.not_equal(odd, none)), result)


def _reciprocal(emit: Emitter, base: relax.Expr, odd: relax.Expr) -> relax.Expr:
    """Negative powers, toward zero: of 1 and -1, else 0; of zero the type's least number, as of an infinity."""
    dtype = dtype_name(base)
    zero, one, minus = (number(value, dtype) for value in (0, 1, -1 if dtype.startswith("int") else 1))
    least = number(np.iinfo(dtype).min, dtype)
    of_minus_one = emit.where(emit.logical_and(emit.equal(base, minus), odd), minus, one)
    is_unit = emit.logical_or(emit.equal(base, one), emit.equal(base, minus))
    return emit.where(is_unit, of_minus_one, emit.where(emit.equal(base, zero), least, zero))


class BitCast(OnnxOpConverter):
    """The same bits as another type of the same size."""

    @classmethod
    def _impl_v26(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        source, target = dtype_name(x), str(onnx.helper.tensor_dtype_to_np_dtype(attr["to"]))
        if target not in SUPPORTED_DTYPES or np.dtype(source).itemsize != np.dtype(target).itemsize:
            raise Refused(f"bits of {source} as {target}")
        if source == "bool":
            return emit.cast(emit.cast(x, "uint8"), target)
        if target == "bool":
            raise Refused("arbitrary bytes are no truth values")
        if source == target:
            return x

        def compute(values: te.Tensor) -> te.Tensor:
            return te.compute(values.shape, lambda *at: tirx.reinterpret(target, values(*at)), "bit_cast")

        return emit.te(compute, x, name="bit_cast")


CONVERTERS = {("", "BitShift"): BitShift, ("", "Pow"): Pow, ("", "BitCast"): BitCast}
