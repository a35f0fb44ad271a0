"""Operators on quantized tensors, including onnxruntime's (domain com.microsoft) and products with packed weights.

Where possible they become the form that kernels take as a whole. Otherwise they are exact integer arithmetic with a
single rounding at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter, get_type, onnx_input

from relay_passes.dataflow import array_of, constant, static_shape
from relay_passes.own_operators import extreme, onnx_scale, onnx_zero_point
from tvm_ext.core.decisions.composites import RangePart
from tvm_ext.frontends.emitter import Emitter, dtype_name, number, padded
from tvm_ext.frontends.onnx.operators.pooling import AveragePool, MaxPool, windows
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


def _all_known(*values: relax.Expr | None) -> bool:
    return all(value is None or array_of(value) is not None for value in values)


def _convolution(emit: Emitter, x: relax.Expr, weight: relax.Expr, attr: Attributes, out_dtype: str) -> relax.Expr:
    shape, kernel = static_shape(x), static_shape(weight)[2:]
    how = windows(shape[2:], {**attr, "kernel_shape": kernel})
    ends = [
        (o - 1) * s + (k - 1) * d + 1 - extent - begin
        for o, s, k, d, extent, begin in zip(
            how.output, how.strides, kernel, how.dilations, shape[2:], how.begins, strict=True
        )
    ]
    convolve = {1: emit.nn.conv1d, 2: emit.nn.conv2d, 3: emit.nn.conv3d}.get(len(kernel))
    if convolve is None:
        raise Refused(f"a convolution over {len(kernel)} axes")
    # A window that does not reach the end leaves elements unread. Its negative padding counts as none.
    return convolve(
        x, weight, strides=list(how.strides), padding=[*how.begins, *(max(end, 0) for end in ends)],
        dilation=list(how.dilations), groups=int(attr.get("group", 1)), out_dtype=out_dtype,
    )  # fmt: skip


def _centred(emit: Emitter, x: relax.Expr, zero_point: relax.Expr | None, axis: int) -> relax.Expr:
    """Return x - zero point as int32. Zero points per slice lie along `axis`."""
    wide = emit.cast(x, "int32")
    if zero_point is None:
        return wide
    zero = emit.cast(zero_point, "int32")
    if len(static_shape(zero)) == 1:
        shape = [1] * len(static_shape(x))
        shape[axis] = static_shape(zero)[0]
        zero = emit.reshaped(zero, shape)
    return emit.subtract(wide, zero)


def _requantized(
    emit: Emitter, total: relax.Expr, scale: relax.Expr, y_scale: relax.Expr, y_zero: relax.Expr
) -> relax.Expr:
    """Requantize int32 accumulators to y's type: one multiplication, rounded half to even."""
    dtype = dtype_name(y_zero)
    real = emit.divide(
        emit.multiply(emit.cast(total, "float32"), emit.cast(scale, "float32")), emit.cast(y_scale, "float32")
    )
    shifted = emit.add(emit.round(real), emit.cast(y_zero, "float32"))
    limits = np.iinfo(dtype)
    return emit.cast(emit.clip(shifted, int(limits.min), int(limits.max)), dtype)


class QLinearConv(OnnxOpConverter):
    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit = Emitter(bb)
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = inputs[:8]
        bias = inputs[8] if len(inputs) > 8 else None
        channels = [1, -1] + [1] * (len(static_shape(x)) - 2)
        if _all_known(x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias):
            data = emit.dequantize(x, _scalar(x_scale), _scalar(x_zero), axis=1)
            weight = emit.dequantize(w, _scalar(w_scale), _scalar(w_zero), axis=0)
            y = _convolution(emit, data, weight, attr, "float32")
            if bias is not None:
                scale = (array_of(x_scale).reshape(-1) * array_of(w_scale).reshape(-1)).astype("float32")
                real = emit.dequantize(bias, _scalar(constant(scale)), number(0, "int32"), axis=0)
                y = emit.add(y, emit.reshape(real, channels))
            return emit.quantize(y, _scalar(y_scale), _scalar(y_zero), axis=1, out_dtype=dtype_name(y_zero))
        total = _convolution(emit, _centred(emit, x, x_zero, 1), _centred(emit, w, w_zero, 0), attr, "int32")
        if bias is not None:
            total = emit.add(total, emit.reshape(bias, channels))
        scale = emit.multiply(x_scale, w_scale)
        if len(static_shape(scale)) == 1 and static_shape(scale) != (1,):
            scale = emit.reshape(scale, channels)
        return _requantized(emit, total, scale, y_scale, y_zero)


class QLinearMatMul(OnnxOpConverter):
    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit = Emitter(bb)
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
        parameters = (a_scale, a_zero, b_scale, b_zero, y_scale, y_zero)
        if _all_known(b, *parameters) and all(array_of(value).size == 1 for value in parameters):
            left = emit.dequantize(a, _scalar(a_scale), _scalar(a_zero))
            right = emit.dequantize(b, _scalar(b_scale), _scalar(b_zero))
            y = emit.matmul(left, right)
            return emit.quantize(y, _scalar(y_scale), _scalar(y_zero), out_dtype=dtype_name(y_zero))
        rows, columns = len(static_shape(a)) - 2, len(static_shape(b)) - 1
        left, right = _centred(emit, a, a_zero, rows), _centred(emit, b, b_zero, columns)
        total = emit.matmul(left, right, out_dtype="int32")
        rank = len(static_shape(total))
        scale = emit.multiply(_along(emit, a_scale, rank, rank - 2), _along(emit, b_scale, rank, rank - 1))
        return _requantized(emit, total, scale, y_scale, y_zero)


def _along(emit: Emitter, x: relax.Expr, rank: int, axis: int) -> relax.Expr:
    """Return a vector of several elements along an axis of a tensor of the given rank."""
    if len(static_shape(x)) != 1 or static_shape(x) == (1,):
        return x
    return emit.reshape(x, [static_shape(x)[0] if index == axis else 1 for index in range(rank)])


def _scalar(x: relax.Expr | None) -> relax.Expr:
    """Return a constant of one element without axes, so that it applies to the whole tensor."""
    if x is None:
        return number(0, "int8")
    array = array_of(x)
    return constant(array.reshape(())) if array is not None and array.size == 1 else x


class ConvInteger(OnnxOpConverter):
    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit = Emitter(bb)
        x, w, x_zero, w_zero = (*inputs[:4], *[None] * (4 - len(inputs[:4])))
        return _convolution(emit, _centred(emit, x, x_zero, 1), _centred(emit, w, w_zero, 0), attr, "int32")


class QuantizeLinear(onnx_frontend.QuantizeLinear):
    """Blocks along an axis have a scale each, so the scales are repeated."""

    @classmethod
    def _impl_v21(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        block = int(attr.get("block_size", 0))
        if attr.get("precision", 0):
            raise Refused("a precision of its own for the division")
        if not block:
            return super()._impl_v21(bb, inputs, attr, params)
        emit, x, axis = Emitter(bb), inputs[0], int(attr.get("axis", 1))
        dtype = get_type(attr["output_dtype"]) if attr.get("output_dtype", 0) else "uint8"
        zero = inputs[2] if len(inputs) > 2 else None
        dtype = dtype if zero is None else dtype_name(zero)
        if dtype not in ("int8", "uint8", "int16", "uint16"):
            raise Refused(f"its element type {dtype} is not supported")
        rounded = emit.round(emit.divide(x, _repeated(emit, inputs[1], x, axis, block)))
        if zero is not None:
            rounded = emit.add(rounded, emit.cast(_repeated(emit, zero, x, axis, block), dtype_name(x)))
        limits = np.iinfo(dtype)
        return emit.cast(emit.clip(rounded, int(limits.min), int(limits.max)), dtype)

    @classmethod
    def _impl_v23(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return cls._impl_v21(bb, inputs, attr, params)


class DequantizeLinear(onnx_frontend.DequantizeLinear):
    @classmethod
    def _impl_v21(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        block = int(attr.get("block_size", 0))
        if not block:
            return super()._impl_v21(bb, inputs, attr, params)
        emit, x, axis = Emitter(bb), inputs[0], int(attr.get("axis", 1))
        scale = _repeated(emit, inputs[1], x, axis, block)
        zero = None if len(inputs) < 3 or inputs[2] is None else _repeated(emit, inputs[2], x, axis, block)
        wide = emit.cast(x, "int32")
        whole = wide if zero is None else emit.subtract(wide, emit.cast(zero, "int32"))
        return emit.multiply(emit.cast(whole, dtype_name(scale)), scale)

    @classmethod
    def _impl_v23(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        if attr.get("output_dtype", 0) and get_type(attr["output_dtype"]) != dtype_name(inputs[1]):
            raise Refused("an output of another type than its scale")
        return cls._impl_v21(bb, inputs, attr, params)


class DynamicQuantizeLinear(OnnxOpConverter):
    """Scale and zero point from the range of the finite numbers, extended to 0. A range of zeros has scale 1."""

    @classmethod
    def _impl_v11(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        high, low = (
            emit.te(partial(extreme, is_max=part == "high"), x, name="range", says=RangePart(part=part))
            for part in ("high", "low")
        )
        scale = emit.te(_range_scale, high, low, name="scale", says=RangePart(part="scale"))
        zero_point = emit.te(_range_zero_point, low, scale, name="zero_point", says=RangePart(part="zero_point"))
        return relax.Tuple([emit.quantize(x, scale, zero_point, axis=0, out_dtype="uint8"), scale, zero_point])


def _range_scale(high: te.Tensor, low: te.Tensor) -> te.Tensor:
    return te.compute((), lambda: onnx_scale(low(), high()), "scale")


def _range_zero_point(low: te.Tensor, scale: te.Tensor) -> te.Tensor:
    return te.compute((), lambda: tirx.Cast("uint8", onnx_zero_point(low(), scale())), "zero_point")


def _repeated(emit: Emitter, x: relax.Expr, like: relax.Expr, axis: int, block: int) -> relax.Expr:
    axis %= len(static_shape(like))
    return emit.slice(emit.repeat(x, block, axis=axis), axis, 0, static_shape(like)[axis])


Unary = Callable[[Emitter, relax.BlockBuilder, relax.Expr, Attributes], relax.Expr]


def _real(
    emit: Emitter, x: relax.Expr, scale: relax.Expr | None, zero_point: relax.Expr | None, axis: int = 0
) -> relax.Expr:
    """Return the real numbers of a quantized tensor."""
    return emit.dequantize(x, _scale(scale), _zero_point(zero_point, dtype_name(x)), axis=axis)


def _quantized(
    emit: Emitter, x: relax.Expr, scale: relax.Expr | None, zero_point: relax.Expr | None, dtype: str
) -> relax.Expr:
    """Return integers of real numbers, in the zero point's type, or in `dtype` without a zero point."""
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


def _unary(function: Unary) -> type[OnnxOpConverter]:
    """Return a converter for the inputs X, scale and zero point of X, scale and zero point of Y."""

    class Converter(OnnxOpConverter):
        @classmethod
        def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
            emit = Emitter(bb)
            x, x_scale, x_zero, y_scale, y_zero = padded(inputs, 5)
            y = bb.normalize(function(emit, bb, _real(emit, x, x_scale, x_zero), attr))
            return _quantized(emit, y, y_scale, y_zero, dtype_name(x))

    return Converter


def _binary(name: str) -> type[OnnxOpConverter]:
    """Return a converter for the inputs A and B, each with scale and zero point, and scale and zero point of C."""

    class Converter(OnnxOpConverter):
        @classmethod
        def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
            emit = Emitter(bb)
            a, a_scale, a_zero, b, b_scale, b_zero, c_scale, c_zero = padded(inputs, 8)
            c = getattr(emit, name)(_real(emit, a, a_scale, a_zero), _real(emit, b, b_scale, b_zero))
            return _quantized(emit, c, c_scale, c_zero, dtype_name(a))

    return Converter


def _leaky_relu(emit: Emitter, bb: relax.BlockBuilder, x: relax.Expr, attr: Attributes) -> relax.Expr:
    return emit.nn.leakyrelu(x, alpha=float(attr.get("alpha", 0.01)))


def _softmax(emit: Emitter, bb: relax.BlockBuilder, x: relax.Expr, attr: Attributes) -> relax.Expr:
    """Apply softmax. Below opset 13 of ONNX it covers all axes from `axis` on."""
    rank = len(static_shape(x))
    axis = int(attr.get("axis", -1)) % rank
    if int(attr.get("opset", 13)) < 13 and axis != rank - 1:
        raise Refused("a softmax over several axes")
    return emit.nn.softmax(x, axis=axis)


def _average_pool(emit: Emitter, bb: relax.BlockBuilder, x: relax.Expr, attr: Attributes) -> relax.Expr:
    def pooled(first: relax.Expr) -> relax.Expr:
        return bb.normalize(AveragePool._impl_v1(bb, [first], attr, [{}, {}]))

    return _channels_first(emit, x, pooled, bool(attr.get("channels_last", 0)))


def _global_average_pool(emit: Emitter, bb: relax.BlockBuilder, x: relax.Expr, attr: Attributes) -> relax.Expr:
    first = 1 if attr.get("channels_last", 0) else 2
    return emit.mean(x, axis=list(range(first, first + len(static_shape(x)) - 2)), keepdims=True)


def _channels_first(
    emit: Emitter, x: relax.Expr, function: Callable[[relax.Expr], relax.Expr], is_last: bool
) -> relax.Expr:
    """Apply a function of [N, C, ...] to x, which is [N, ..., C] if `is_last`. The result has the order of x."""
    rank = len(static_shape(x))
    if not is_last:
        return function(x)
    y = function(emit.transposed(x, [0, rank - 1, *range(1, rank - 1)]))
    return emit.transposed(y, [0, *range(2, rank), 1])


class QLinearConvOfImages(QLinearConv):
    """QLinearConv of onnxruntime, whose input and output may have their channels last. Weights are [O, I, ...]."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        def convolved(first: relax.Expr) -> relax.Expr:
            return bb.normalize(cls._impl_v10(bb, [first, *inputs[1:]], attr, params))

        return _channels_first(Emitter(bb), inputs[0], convolved, bool(attr.get("channels_last", 0)))


class NhwcMaxPool(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        def pooled(first: relax.Expr) -> relax.Expr:
            return bb.normalize(MaxPool._impl_v1(bb, [first], attr, params))

        return _channels_first(Emitter(bb), inputs[0], pooled, True)


class QLinearWhere(OnnxOpConverter):
    """Condition, then X and Y with their scales and zero points, then scale and zero point of Z."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (condition, x, x_scale, x_zero, y, y_scale, y_zero, z_scale, z_zero) = Emitter(bb), padded(inputs, 9)
        z = emit.where(condition, _real(emit, x, x_scale, x_zero), _real(emit, y, y_scale, y_zero))
        return _quantized(emit, z, z_scale, z_zero, dtype_name(x))


Quantized = tuple[relax.Expr, relax.Expr, relax.Expr | None]
"""Integers, their scale and their zero point."""


def product_of_integers(bb: relax.BlockBuilder, a: Quantized, b: Quantized) -> relax.Expr:
    """Return the real product of two quantized tensors, where data may decide scales and zero points.

    It has the form of MatMulInteger, Cast and Mul, from which passes recognize layers that are quantized at run time.
    """
    emit, ((left, left_scale, left_zero), (right, right_scale, right_zero)) = Emitter(bb), (a, b)
    given = onnx_input([left, right, left_zero, right_zero])
    total = bb.normalize(onnx_frontend.MatMulInteger._impl_v10(bb, given, {}, [{}, {}]))
    scales = (value if static_shape(value) != (1,) else emit.reshaped(value, ()) for value in (left_scale, right_scale))
    return emit.multiply(emit.cast(total, "float32"), emit.multiply(*scales))


class MatMulIntegerToFloat(OnnxOpConverter):
    """A, B, their scales, their zero points, bias."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        a, b, a_scale, b_scale, a_zero, b_zero, bias = padded(inputs, 7)
        y = product_of_integers(bb, (a, a_scale, a_zero), (b, b_scale, b_zero))
        return y if bias is None else Emitter(bb).add(y, bias)


class DynamicQuantizeMatMul(OnnxOpConverter):
    """A, B, scale of B, zero point of B, bias: A is quantized as by DynamicQuantizeLinear."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        a, b, b_scale, b_zero, bias = padded(inputs, 5)
        integers, scale, zero = DynamicQuantizeLinear._impl_v11(bb, [a], {}, params)
        y = product_of_integers(bb, (integers, scale, zero), (b, b_scale, b_zero))
        return y if bias is None else Emitter(bb).add(y, bias)


class QLinearConcat(OnnxOpConverter):
    """The inputs are scale and zero point of Y, then X with its scale and zero point for each part."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit = Emitter(bb)
        y_scale, y_zero, *rest = inputs
        if len(rest) % 3:
            raise Refused(f"it has {len(inputs)} inputs; two, and three for each tensor, are needed")
        fields = [_real(emit, *rest[place : place + 3]) for place in range(0, len(rest), 3)]
        return _quantized(emit, emit.concat(fields, axis=int(attr.get("axis", 0))), y_scale, y_zero, "uint8")


class QGemm(OnnxOpConverter):
    """alpha * A B + C, where C is in units of alpha times both scales. Real numbers where Y has no scale."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit = Emitter(bb)
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = padded(inputs, 9)
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


Array = np.ndarray


class MatMulNBits(OnnxOpConverter):
    """A float32[..., K], B uint8[N, blocks, block_size * bits / 8], lowest bits first -> float32[..., N]."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        a, b, scales, zero_points, order, bias = (*inputs, *[None] * (6 - len(inputs)))
        if a is None or dtype_name(a) != "float32":
            raise Refused("its activations are not float32")
        if order is not None:
            raise Refused("an order of its own for input channels (g_idx)")
        bits, block = int(attr.get("bits", 4)), int(attr["block_size"])
        if bits not in (2, 4, 8):
            raise Refused(f"weights of {bits} bits; 2, 4 and 8 are read")
        depth, channels = int(attr["K"]), int(attr["N"])
        blocks = -(-depth // block)
        integers = _unpacked(_known(b).reshape(channels, -1), bits, blocks * block)
        weight = integers.reshape(channels, blocks, block) - _zero_points(zero_points, bits, channels, blocks)
        weight = weight * _known(scales).reshape(channels, blocks, 1)
        emit = Emitter(bb)
        whole = weight.reshape(channels, -1)[:, :depth].T.astype("float32")
        product = emit.matmul(a, constant(np.ascontiguousarray(whole)))
        return product if bias is None else emit.add(product, bias)


def _known(value: relax.Expr | None) -> Array:
    array = None if value is None else array_of(value)
    if array is None:
        raise Refused("its weights, scales or zero points depend on data")
    return array


def _zero_points(value: relax.Expr | None, bits: int, channels: int, blocks: int) -> Array:
    """Return zero points as [N, blocks, 1]: packed like weights, or numbers, or by default the middle of the range."""
    if value is None:
        return np.full((1, 1, 1), 1 << (bits - 1), "float32")
    given = _known(value)
    if given.dtype == np.uint8:
        given = _unpacked(given.reshape(channels, -1), bits, blocks)
    return given.reshape(channels, blocks, 1).astype("float32")


def _unpacked(rows: Array, bits: int, count: int) -> Array:
    """Return the first `count` numbers of each row of bytes, float32[N, count]."""
    parts = [(rows >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(len(rows), -1)[:, :count].astype("float32")


CONVERTERS = {
    ("", "QLinearConv"): QLinearConv,
    ("", "QLinearMatMul"): QLinearMatMul,
    ("", "ConvInteger"): ConvInteger,
    ("", "QuantizeLinear"): QuantizeLinear,
    ("", "DequantizeLinear"): DequantizeLinear,
    ("", "DynamicQuantizeLinear"): DynamicQuantizeLinear,
    (_DOMAIN, "QLinearAdd"): _binary("add"),
    (_DOMAIN, "QLinearMul"): _binary("multiply"),
    (_DOMAIN, "QLinearSigmoid"): _unary(lambda emit, bb, x, attr: emit.sigmoid(x)),
    (_DOMAIN, "QLinearLeakyRelu"): _unary(_leaky_relu),
    (_DOMAIN, "QLinearSoftmax"): _unary(_softmax),
    (_DOMAIN, "QLinearAveragePool"): _unary(_average_pool),
    (_DOMAIN, "QLinearGlobalAveragePool"): _unary(_global_average_pool),
    (_DOMAIN, "QLinearConcat"): QLinearConcat,
    (_DOMAIN, "QLinearConv"): QLinearConvOfImages,
    (_DOMAIN, "QLinearWhere"): QLinearWhere,
    (_DOMAIN, "QGemm"): QGemm,
    (_DOMAIN, "NhwcMaxPool"): NhwcMaxPool,
    (_DOMAIN, "MatMulIntegerToFloat"): MatMulIntegerToFloat,
    (_DOMAIN, "DynamicQuantizeMatMul"): DynamicQuantizeMatMul,
    (_DOMAIN, "MatMulNBits"): MatMulNBits,
}
