"""onnxruntime's operators on quantized tensors (domain com.microsoft), as its quantizer writes them in QOperator form.

Each becomes dequantize, the float operator, quantize, which kernels take as a whole. Scales and zero points are
constants. Definitions: ContribOperators.md of onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.frontends.onnx.operators.emitter import Emitter, dtype_name, number
from tvm_ext.frontends.onnx.operators.pooling import AveragePool
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]
Unary = Callable[[Emitter, relax.BlockBuilder, relax.Expr, Attributes], relax.Expr]


def _real(
    emit: Emitter, x: relax.Expr, scale: relax.Expr | None, zero_point: relax.Expr | None, axis: int = 0
) -> relax.Expr:
    """Real numbers of a quantized tensor."""
    return emit.dequantize(x, _scale(scale), _zero_point(zero_point, dtype_name(x)), axis=axis)


def _quantized(
    emit: Emitter, x: relax.Expr, scale: relax.Expr | None, zero_point: relax.Expr | None, dtype: str
) -> relax.Expr:
    """Integers of real numbers, of the zero point's type; of `dtype` without one."""
    given = _zero_point(zero_point, dtype)
    return emit.quantize(x, _scale(scale), given, axis=0, out_dtype=dtype_name(given))


def _scale(scale: relax.Expr | None) -> relax.Expr:
    array = _scales(scale)
    return constant(array.reshape(()) if array.size == 1 else array)


def _scales(scale: relax.Expr | None) -> np.ndarray:
    array = None if scale is None else array_of(scale)
    if array is None:
        raise Refused("its scales depend on data")
    if not (np.isfinite(array) & (array > 0)).all():
        raise Refused("its scales are not all finite and above 0")
    return array


def _zero_point(zero_point: relax.Expr | None, dtype: str) -> relax.Expr:
    if zero_point is None:
        return number(0, dtype)
    array = array_of(zero_point)
    if array is None:
        raise Refused("its zero points depend on data")
    return constant(array.reshape(()) if array.size == 1 else array)


def _padded(inputs: Inputs, count: int) -> list[relax.Expr | None]:
    """Inputs, None for those left out at the end."""
    return [*inputs, *[None] * (count - len(inputs))]


def _unary(function: Unary) -> type[OnnxOpConverter]:
    """X, scale, zero point, scale and zero point of Y."""

    class Converter(OnnxOpConverter):
        @classmethod
        def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
            emit = Emitter(bb)
            x, x_scale, x_zero, y_scale, y_zero = _padded(inputs, 5)
            y = bb.normalize(function(emit, bb, _real(emit, x, x_scale, x_zero), attr))
            return _quantized(emit, y, y_scale, y_zero, dtype_name(x))

    return Converter


def _binary(name: str) -> type[OnnxOpConverter]:
    """A and B, each with scale and zero point; scale and zero point of C."""

    class Converter(OnnxOpConverter):
        @classmethod
        def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
            emit = Emitter(bb)
            a, a_scale, a_zero, b, b_scale, b_zero, c_scale, c_zero = _padded(inputs, 8)
            c = getattr(emit, name)(_real(emit, a, a_scale, a_zero), _real(emit, b, b_scale, b_zero))
            return _quantized(emit, c, c_scale, c_zero, dtype_name(a))

    return Converter


def _leaky_relu(emit: Emitter, bb: relax.BlockBuilder, x: relax.Expr, attr: Attributes) -> relax.Expr:
    return emit.nn.leakyrelu(x, alpha=float(attr.get("alpha", 0.01)))


def _softmax(emit: Emitter, bb: relax.BlockBuilder, x: relax.Expr, attr: Attributes) -> relax.Expr:
    """Before opset 13 of ONNX over all axes from `axis` on."""
    rank = len(static_shape(x))
    axis = int(attr.get("axis", -1)) % rank
    if int(attr.get("opset", 13)) < 13 and axis != rank - 1:
        raise Refused("a softmax over several axes")
    return emit.nn.softmax(x, axis=axis)


def _average_pool(emit: Emitter, bb: relax.BlockBuilder, x: relax.Expr, attr: Attributes) -> relax.Expr:
    _refuse_channels_last(attr)
    return AveragePool._impl_v1(bb, [x], attr, [{}, {}])


def _global_average_pool(emit: Emitter, bb: relax.BlockBuilder, x: relax.Expr, attr: Attributes) -> relax.Expr:
    _refuse_channels_last(attr)
    return emit.mean(x, axis=list(range(2, len(static_shape(x)))), keepdims=True)


def _refuse_channels_last(attr: Attributes) -> None:
    if attr.get("channels_last", 0):
        raise Refused("channels last, as graphs optimized for one machine have them; save the model before that")


class QLinearConcat(OnnxOpConverter):
    """Scale and zero point of Y, then X, its scale and zero point for each input."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit = Emitter(bb)
        y_scale, y_zero, *rest = inputs
        if len(rest) % 3:
            raise Refused(f"it has {len(inputs)} inputs; two, and three for each tensor, are needed")
        fields = [_real(emit, *rest[place : place + 3]) for place in range(0, len(rest), 3)]
        return _quantized(emit, emit.concat(fields, axis=int(attr.get("axis", 0))), y_scale, y_zero, "uint8")


class QGemm(OnnxOpConverter):
    """alpha * A B + C, C in units of alpha times both scales; real numbers where Y has no scale."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit = Emitter(bb)
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = _padded(inputs, 9)
        transposed = bool(attr.get("transB", 0))
        factor = np.float32(attr.get("alpha", 1.0))
        if not np.isfinite(factor) or factor <= 0:
            raise Refused(f"alpha is {factor}; it is finite and above 0")
        left = _real(emit, a, a_scale, a_zero)
        scale = (_scales(b_scale) * factor).astype(np.float32)
        right = _real(emit, b, constant(scale), b_zero, axis=0 if transposed else 1)
        left = emit.permute_dims(left, [1, 0]) if attr.get("transA", 0) else left
        y = emit.matmul(left, emit.permute_dims(right, [1, 0]) if transposed else right)
        if c is not None:
            units = _scale(constant((_scales(a_scale) * scale).astype(np.float32)))
            y = emit.add(y, emit.dequantize(c, units, number(0, "int32"), axis=-1))
        return y if y_scale is None else _quantized(emit, y, y_scale, y_zero, dtype_name(a))


_DOMAIN = "com.microsoft"
CONVERTERS = {
    (_DOMAIN, "QLinearAdd"): _binary("add"),
    (_DOMAIN, "QLinearMul"): _binary("multiply"),
    (_DOMAIN, "QLinearSigmoid"): _unary(lambda emit, bb, x, attr: emit.sigmoid(x)),
    (_DOMAIN, "QLinearLeakyRelu"): _unary(_leaky_relu),
    (_DOMAIN, "QLinearSoftmax"): _unary(_softmax),
    (_DOMAIN, "QLinearAveragePool"): _unary(_average_pool),
    (_DOMAIN, "QLinearGlobalAveragePool"): _unary(_global_average_pool),
    (_DOMAIN, "QLinearConcat"): QLinearConcat,
    (_DOMAIN, "QGemm"): QGemm,
}
