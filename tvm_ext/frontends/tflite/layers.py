"""Converters of our own: layers with weights, which stay in the layout the kernels read, [K, R, S, C].

TVM's own converters turn them to HWIO, and give matrices the shape of their input where TensorFlow Lite flattens it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from tvm import relax

from relay_passes.dataflow import array_of, constant, infer, static_shape
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.check_scales import Scales
from tvm_ext.frontends.tflite.rescale import check_sums

_WIDEST = 255
"""The largest difference of two elements of 8 bits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerInput:
    """An input of a layer: its value in the graph; for a quantized constant its integers and their scales too."""

    value: relax.Expr
    scales: Scales | None = None

    def real(self, *, axes: tuple[int, ...] | None = None) -> relax.Expr:
        """Real numbers of the input, its axes in another order if given: moved at compile time where it is constant."""
        array, value, axis = array_of(self.value), self.value, self.scales.axis if self.scales else 0
        if axes is not None:
            moved = None if array is None else constant(np.ascontiguousarray(array.transpose(axes)))
            value = moved or infer(relax.op.permute_dims(value, list(axes)))
            axis = axes.index(axis)
        return value if self.scales is None else dequantized(value, self.scales, axis)


def dequantized(value: relax.Expr, scales: Scales, axis: int) -> relax.Expr:
    """Real numbers of a quantized value."""
    return relax.op.dequantize(value, scale_constant(scales), zero_point_constant(scales, value), axis=axis)


def quantized(value: relax.Expr, scales: Scales, dtype: str) -> relax.Expr:
    """A real value as integers with one scale."""
    if scales.scale.size != 1:
        raise Refused("its output has a scale for each channel")
    zero_point = constant(scales.zero_point.astype(dtype)[0])
    return relax.op.quantize(value, scale_constant(scales), zero_point, axis=scales.axis, out_dtype=dtype)


def scale_constant(scales: Scales) -> relax.Expr:
    return constant(scales.scale if scales.scale.size > 1 else scales.scale[0])


def zero_point_constant(scales: Scales, value: relax.Expr) -> relax.Expr:
    dtype = np.dtype(str(value.ty.dtype))
    limits = np.iinfo(dtype)
    if (scales.zero_point < limits.min).any() or (scales.zero_point > limits.max).any():
        raise Refused(f"a zero point lies outside {dtype}")
    numbers = scales.zero_point.astype(dtype)
    return constant(numbers if numbers.size > 1 else numbers[0])


def options_of(table: tflite.Operator, kind: type) -> Any:
    """The operator's options; those a file leaves out have their defaults."""
    union = table.BuiltinOptions()
    if union is None:
        raise Refused("its options are missing from the file")
    options = kind()
    options.Init(union.Bytes, union.Pos)
    return options


def activated(value: relax.Expr, function: int) -> relax.Expr:
    """The activation fused into a layer, on real numbers."""
    kinds = tflite.ActivationFunctionType
    rules: dict[int, Callable[[], relax.Expr]] = {
        kinds.NONE: lambda: value,
        kinds.RELU: lambda: relax.op.nn.relu(value),
        kinds.RELU_N1_TO_1: lambda: relax.op.clip(value, -1, 1),
        kinds.RELU6: lambda: relax.op.clip(value, 0, 6),
    }
    if function not in rules:
        raise Refused(f"its fused activation {function} is not supported")
    return rules[function]()


def convolution(table: tflite.Operator, operands: list[LayerInput | None]) -> relax.Expr:
    """CONV_2D: weights [K, R, S, C / groups] in the file."""
    data, weight = _given(operands[0]), _given(operands[1])
    options = options_of(table, tflite.Conv2DOptions)
    depth, per_group = static_shape(data.value)[3], static_shape(weight.value)[3]
    if per_group == 0 or depth % per_group:
        raise Refused(f"{depth} input channels do not divide into groups of {per_group}")
    kernel = static_shape(weight.value)[1:3]
    _check_sums(weight, operands[2:], axis=0)
    return _convolve(data, weight.real(), kernel, operands[2:], options, groups=depth // per_group)


def depthwise(table: tflite.Operator, operands: list[LayerInput | None]) -> relax.Expr:
    """DEPTHWISE_CONV_2D: weights [1, R, S, C * multiplier] in the file."""
    data, weight = _given(operands[0]), _given(operands[1])
    options = options_of(table, tflite.DepthwiseConv2DOptions)
    depth, num_outputs = static_shape(data.value)[3], static_shape(weight.value)[3]
    if static_shape(weight.value)[0] != 1 or depth == 0 or num_outputs % depth:
        raise Refused(f"{num_outputs} output channels are no multiple of {depth} input channels")
    kernel = static_shape(weight.value)[1:3]
    _check_sums(weight, operands[2:], axis=3)
    return _convolve(data, weight.real(axes=(3, 1, 2, 0)), kernel, operands[2:], options, groups=depth)


def _convolve(
    data: LayerInput,
    weight: relax.Expr,
    kernel: tuple[int, ...],
    rest: list[LayerInput | None],
    options: Any,
    *,
    groups: int,
) -> relax.Expr:
    strides, dilation = (options.StrideH(), options.StrideW()), (options.DilationHFactor(), options.DilationWFactor())
    extents = static_shape(data.value)[1:3]
    if min(*strides, *dilation) < 1:
        raise Refused("its strides or dilations are below 1")
    padding = [0, 0, 0, 0]
    if options.Padding() == tflite.Padding.SAME:
        for axis in (0, 1):
            padding[axis], padding[axis + 2] = same_padding(extents[axis], kernel[axis], strides[axis], dilation[axis])
    result = relax.op.nn.conv2d(
        data.real(), weight, strides=strides, padding=padding, dilation=dilation, groups=groups,
        data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC",
    )  # fmt: skip
    return activated(_biased(result, rest), options.FusedActivationFunction())


def same_padding(extent: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """(before, after) such that there are ceil(extent / stride) outputs; the odd one goes behind."""
    outputs = -(-extent // stride)
    total = max((outputs - 1) * stride + (kernel - 1) * dilation + 1 - extent, 0)
    return total // 2, total - total // 2


def fully_connected(table: tflite.Operator, operands: list[LayerInput | None]) -> relax.Expr:
    """FULLY_CONNECTED: weights [K, C] in the file; the input is taken as rows of C, whatever its axes."""
    data, weight = _given(operands[0]), _given(operands[1])
    options = options_of(table, tflite.FullyConnectedOptions)
    if options.WeightsFormat() != 0:
        raise Refused("its weights are shuffled for one processor")
    _check_sums(weight, operands[2:], axis=0)
    shape, depth = static_shape(data.value), static_shape(weight.value)[1]
    num_elements = int(np.prod(shape))
    if depth == 0 or num_elements % depth:
        raise Refused(f"{num_elements} inputs do not divide into rows of {depth}")
    keeps = options.KeepNumDims() and shape[-1:] == (depth,)
    rows = data.value
    if not keeps and shape != (num_elements // depth, depth):
        rows = infer(relax.op.reshape(rows, (num_elements // depth, depth)))
    given = LayerInput(value=rows, scales=data.scales)
    result = relax.op.matmul(given.real(), weight.real(axes=(1, 0)))
    return activated(_biased(result, operands[2:]), options.FusedActivationFunction())


def _biased(result: relax.Expr, rest: list[LayerInput | None]) -> relax.Expr:
    bias = rest[0] if rest else None
    return result if bias is None else relax.op.add(result, bias.real())


def _check_sums(weight: LayerInput, rest: list[LayerInput | None], axis: int) -> None:
    """Raises Refused where a sum may overflow, as it does in TensorFlow Lite. axis: of the weights, output channels."""
    array, bias = array_of(weight.value), array_of(rest[0].value) if rest and rest[0] else None
    if weight.scales is None or array is None or array.dtype != np.int8:
        return
    each = np.abs(np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1).astype(np.int64)).sum(1) * _WIDEST
    check_sums(each + (0 if bias is None else np.abs(bias.astype(np.int64))), 1 / 2)


def _given(operand: LayerInput | None) -> LayerInput:
    if operand is None:
        raise Refused("an input it needs is left out")
    return operand


LAYERS: dict[str, Callable[[tflite.Operator, list[LayerInput | None]], relax.Expr]] = {
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": depthwise,
    "FULLY_CONNECTED": fully_connected,
}
