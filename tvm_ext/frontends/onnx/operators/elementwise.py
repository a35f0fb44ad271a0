"""Element-wise operators, predicates and integer operators that TVM's importer lacks or converts wrongly.

Some that TVM imports differ from onnxruntime at the edges (docs/edges.md): casts of floats that do not fit, and
extremes and signs of NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter, get_type

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.frontends.emitter import Emitter, dtype_name, number
from tvm_ext.frontends.onnx.element_types import SUPPORTED_DTYPES
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


class Clip(OnnxOpConverter):
    """minimum(maximum(x, low), high). With constant bounds it is a `relax.clip`, which kernels fuse (ReLU6)."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        bounds = [attr.get("min"), attr.get("max")]
        dtype = str(inputs[0].ty.dtype)
        low, high = (None if bound is None else constant(np.array(bound, dtype)) for bound in bounds)
        return _clip(bb, inputs[0], low, high)

    @classmethod
    def _impl_v11(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _clip(bb, inputs[0], inputs[1], inputs[2])


class Cast(onnx_frontend.Cast):
    """Cast floats to integers in a single step, because generated code defines the result of floats that do not fit."""

    @classmethod
    def _impl_v13(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        x, target = inputs[0], str(get_type(attr["to"]))
        is_tensor = isinstance(x, relax.Expr) and isinstance(x.ty, relax.TensorType)
        if is_tensor and dtype_name(x) in ("float32", "float64") and target.lstrip("u").startswith("int"):
            return relax.op.astype(x, target)
        return super()._impl_v13(bb, inputs, attr, params)


def _extreme(name: str, operator: str) -> type[OnnxOpConverter]:
    """Return pairwise extremes, which propagate NaN. TVM would stack the operands."""

    def convert(cls: type, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return reduce(getattr(Emitter(bb), operator), inputs)

    return type(name, (OnnxOpConverter,), {"_impl_v1": classmethod(convert)})


class Sign(OnnxOpConverter):
    """-1, 0 or 1. NaN stays NaN."""

    @classmethod
    def _impl_v9(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        sign = emit.sign(x)
        return emit.where(emit.isnan(x), x, sign) if dtype_name(x).startswith("float") else sign


class ThresholdedRelu(OnnxOpConverter):
    """x where it is above alpha, else 0, also for infinities and NaN."""

    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        return emit.where(emit.greater(x, float(attr.get("alpha", 1.0))), x, number(0, dtype_name(x)))


class Dropout(OnnxOpConverter):
    """The identity at inference. The mask, where requested, keeps every element."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _kept(inputs[0], str(inputs[0].ty.dtype))

    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _kept(inputs[0], "bool")

    @classmethod
    def _impl_v12(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        training, ratio = inputs[2], None if inputs[1] is None else array_of(inputs[1])
        drops = training is not None and (array_of(training) is None or array_of(training).any())
        if drops and (ratio is None or ratio.any()):
            raise Refused("it is in training mode; export the model for inference")
        return _kept(inputs[0], "bool")


def _kept(x: relax.Expr, mask_dtype: str) -> relax.Expr:
    return relax.Tuple([x, relax.op.ones(x.ty.shape, mask_dtype)])


def _clip(bb: relax.BlockBuilder, x: relax.Expr, low: relax.Expr | None, high: relax.Expr | None) -> relax.Expr:
    known = [array_of(bound) for bound in (low, high) if bound is not None]
    if len(known) == 2 and all(_is_number(bound) for bound in known):
        low_number, high_number = (bound.item() for bound in known)
        return relax.op.clip(x, min(low_number, high_number), high_number)  # the upper bound wins
    if low is not None:
        x = bb.normalize(relax.op.maximum(x, low))
    return x if high is None else relax.op.minimum(x, high)


def _is_number(bound: np.ndarray | None) -> bool:
    return bound is not None and bound.size == 1 and bool(np.isfinite(bound).all())


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
    """With fmod = 0, the remainder has the divisor's sign; with fmod = 1, the dividend's sign as in C."""

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


class BitShift(OnnxOpConverter):
    """Shifts by the width or more, or by a negative number, are undefined in C, and give 0 or the sign in ONNX."""

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
    """The result has the base's type. Whole powers of whole numbers use multiplication, which is exact and wraps."""

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
    """Return a power by seven bits of the exponent.

    Beyond 127 only powers of 0, 1 and -1 fit, and the exponent's last bit decides these.
    """
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
    """Return negative powers, rounded toward zero.

    They are 1 and -1 for these bases, the type's least number for zero, like the cast of an infinity, and 0 for all
    others.
    """
    dtype = dtype_name(base)
    zero, one, minus = (number(value, dtype) for value in (0, 1, -1 if dtype.startswith("int") else 1))
    least = number(np.iinfo(dtype).min, dtype)
    of_minus_one = emit.where(emit.logical_and(emit.equal(base, minus), odd), minus, one)
    is_unit = emit.logical_or(emit.equal(base, one), emit.equal(base, minus))
    return emit.where(is_unit, of_minus_one, emit.where(emit.equal(base, zero), least, zero))


class BitCast(OnnxOpConverter):
    """Reinterpret the bits as another type of the same size."""

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


CONVERTERS = {
    ("", "Cast"): Cast,
    ("", "Clip"): Clip,
    ("", "Dropout"): Dropout,
    ("", "Max"): _extreme("Max", "maximum"),
    ("", "Min"): _extreme("Min", "minimum"),
    ("", "Sign"): Sign,
    ("", "ThresholdedRelu"): ThresholdedRelu,
    ("", "IsInf"): IsInf,
    ("", "Mod"): Mod,
    ("", "BitShift"): BitShift,
    ("", "Pow"): Pow,
    ("", "BitCast"): BitCast,
}
