"""Our own converters of layers with weights, which keep the layout that kernels read, [K, R, S, C].

TVM's own converters permute it to HWIO, and give matrices the shape of their input where TensorFlow Lite flattens it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tflite
from tvm import relax

from relay_passes.dataflow import array_of, constant, infer, static_shape
from tvm_ext.core.wide_biases import HIGH_SCALE, LARGEST, split_bias
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite import dynamic_range
from tvm_ext.frontends.tflite.read_file import Scales
from tvm_ext.frontends.tflite.rescale import check_sums

_WIDEST = {"int8": 255, "uint8": 255, "int16": 1 << 15}
"""Largest distance of an element from the zero point, by element type. The zero point of int16 is 0."""
MOST_BIAS_ERROR = 1e-4
"""Relative error of a bias's scale that comes of rounding in the file."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerInput:
    """An input of a layer: its value in the graph, and for a quantized constant also its integers and their scales."""

    value: relax.Expr
    scales: Scales | None = None

    def real(self, *, axes: tuple[int, ...] | None = None) -> relax.Expr:
        """Return the real numbers of the input, optionally with permuted axes.

        Constants are permuted at compile time.
        """
        array, value, axis = array_of(self.value), self.value, self.scales.axis if self.scales else 0
        if axes is not None:
            moved = None if array is None else constant(np.ascontiguousarray(array.transpose(axes)))
            value = moved or infer(relax.op.permute_dims(value, list(axes)))
            axis = axes.index(axis)
        return value if self.scales is None else dequantized(value, self.scales, axis)


def dequantized(value: relax.Expr, scales: Scales, axis: int) -> relax.Expr:
    """Return the real numbers of a quantized value."""
    return relax.op.dequantize(value, scale_constant(scales), zero_point_constant(scales, value), axis=axis)


def quantized(value: relax.Expr, scales: Scales, dtype: str) -> relax.Expr:
    """Return a real value as integers with a single scale."""
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
    """Return the operator's options, with defaults for options that a file leaves out."""
    union = table.BuiltinOptions()
    if union is None:
        raise Refused("its options are missing from the file")
    options = kind()
    options.Init(union.Bytes, union.Pos)
    return options


def activated(value: relax.Expr, function: int) -> relax.Expr:
    """Apply the activation that is fused into a layer, on real numbers."""
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
    """Convert CONV_2D, whose weights are [K, R, S, C / groups] in the file."""
    data, weight = _given(operands[0]), _given(operands[1])
    options = options_of(table, tflite.Conv2DOptions)
    depth, per_group = static_shape(data.value)[3], static_shape(weight.value)[3]
    if per_group == 0 or depth % per_group:
        raise Refused(f"{depth} input channels do not divide into groups of {per_group}")
    kernel = static_shape(weight.value)[1:3]
    _check_sums(data, weight, operands[2:], axis=0)
    groups = depth // per_group
    real = dynamic_range.of_convolution(data.value, weight.scales, groups) if is_dynamic(data, weight) else data.real()
    rest = _in_steps(data, weight, operands[2:])
    return _convolve(data, real, weight.real(), kernel, rest, options, groups=groups)


def depthwise(table: tflite.Operator, operands: list[LayerInput | None]) -> relax.Expr:
    """Convert DEPTHWISE_CONV_2D, whose weights are [1, R, S, C * multiplier] in the file."""
    data, weight = _given(operands[0]), _given(operands[1])
    options = options_of(table, tflite.DepthwiseConv2DOptions)
    depth, num_outputs = static_shape(data.value)[3], static_shape(weight.value)[3]
    if static_shape(weight.value)[0] != 1 or depth == 0 or num_outputs % depth:
        raise Refused(f"{num_outputs} output channels are not a multiple of {depth} input channels")
    kernel = static_shape(weight.value)[1:3]
    _check_sums(data, weight, operands[2:], axis=3)
    real = dynamic_range.of_depthwise(data.value) if is_dynamic(data, weight) else data.real()
    rest = _in_steps(data, weight, operands[2:])
    return _convolve(data, real, weight.real(axes=(3, 1, 2, 0)), kernel, rest, options, groups=depth)


def is_dynamic(data: LayerInput, weight: LayerInput) -> bool:
    """Return True if the layer has integer weights and quantizes its real activations at run time."""
    return data.scales is None and weight.scales is not None


def _convolve(
    data: LayerInput,
    real: relax.Expr,
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
        real, weight, strides=strides, padding=padding, dilation=dilation, groups=groups,
        data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC",
    )  # fmt: skip
    return activated(_biased(result, rest), options.FusedActivationFunction())


def transposed_convolution(table: tflite.Operator, operands: list[LayerInput | None]) -> relax.Expr:
    """Convert TRANSPOSE_CONV, whose operands are the output's shape, weights [K, R, S, C], data and bias.

    A fused activation is computed, as LiteRT does and converters mean it. TensorFlow Lite Micro ignores it.
    """
    size, weight, data = (_given(operand) for operand in operands[:3])
    options = options_of(table, tflite.TransposeConvOptions)
    shape = array_of(size.value)
    if shape is None or shape.size != 4:
        raise Refused("the shape of its output depends on data")
    wanted, strides = [int(extent) for extent in shape[1:3]], (options.StrideH(), options.StrideW())
    if int(shape[3]) != static_shape(weight.value)[0] or static_shape(weight.value)[3] != static_shape(data.value)[3]:
        raise Refused("its weights fit neither its input's channels nor its output's")
    _check_sums(data, weight, operands[3:], axis=0)
    is_same = options.Padding() == tflite.Padding.SAME
    result = transposed(data, weight, (wanted[0], wanted[1]), strides=strides, is_same=is_same)
    return activated(_biased(result, _in_steps(data, weight, operands[3:])), options.FusedActivationFunction())


def transposed(
    data: LayerInput, weight: LayerInput, wanted: tuple[int, int], *, strides: tuple[int, int], is_same: bool
) -> relax.Expr:
    """Return a transposed convolution of data [N, H, W, C] by weights [K, R, S, C]. Raises Refused.

    wanted: rows and columns of its output. is_same: pad as SAME padding does for this output, otherwise not at all.
    """
    extents, kernel = static_shape(data.value)[1:3], static_shape(weight.value)[1:3]
    padding, beyond = [0, 0, 0, 0], [0, 0]
    for axis in (0, 1):
        if is_same:
            padding[axis] = same_padding(wanted[axis], kernel[axis], strides[axis], 1)[0]
        # Elements that the transposed convolution computes after the wanted output; a negative number are missing ones.
        excess = (extents[axis] - 1) * strides[axis] + kernel[axis] - padding[axis] - wanted[axis]
        padding[axis + 2], beyond[axis] = max(excess, 0), max(-excess, 0)
        if beyond[axis] >= strides[axis]:
            raise Refused(f"its input does not reach all of its output {list(wanted)}")
    return relax.op.nn.conv2d_transpose(
        data.real(), weight.real(), strides=strides, padding=padding, output_padding=beyond, data_layout="NHWC",
        kernel_layout="OHWI", out_layout="NHWC",
    )  # fmt: skip


def same_padding(extent: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the padding before and after an axis for ceil(extent / stride) outputs. An odd element is put after."""
    outputs = -(-extent // stride)
    total = max((outputs - 1) * stride + (kernel - 1) * dilation + 1 - extent, 0)
    return total // 2, total - total // 2


def fully_connected(table: tflite.Operator, operands: list[LayerInput | None]) -> relax.Expr:
    """Convert FULLY_CONNECTED, whose weights are [K, C] in the file. The input is reshaped to rows of C elements."""
    data, weight = _given(operands[0]), _given(operands[1])
    options = options_of(table, tflite.FullyConnectedOptions)
    if options.WeightsFormat() != 0:
        raise Refused("its weights are in a shuffled format for one processor")
    _check_sums(data, weight, operands[2:], axis=0)
    shape, depth = static_shape(data.value), static_shape(weight.value)[1]
    num_elements = int(np.prod(shape))
    if depth == 0 or num_elements % depth:
        raise Refused(f"{num_elements} inputs do not divide into rows of {depth}")
    keeps = options.KeepNumDims() and shape[-1:] == (depth,)
    rows = data.value
    if not keeps and shape != (num_elements // depth, depth):
        rows = infer(relax.op.reshape(rows, (num_elements // depth, depth)))
    given = LayerInput(value=rows, scales=data.scales)
    real = dynamic_range.of_rows(rows, options) if is_dynamic(data, weight) else given.real()
    result = relax.op.matmul(real, weight.real(axes=(1, 0)))
    return activated(_biased(result, _in_steps(data, weight, operands[2:])), options.FusedActivationFunction())


def batch_matmul(table: tflite.Operator, operands: list[LayerInput | None]) -> relax.Expr:
    """Convert BATCH_MATMUL of real numbers. The last two axes of either input may be swapped."""
    options = options_of(table, tflite.BatchMatMulOptions)
    given = [_given(operand) for operand in operands]
    swaps = (options.AdjX(), options.AdjY())
    first, second = (_swapped(one) if swap else one.real() for one, swap in zip(given, swaps, strict=True))
    return relax.op.matmul(first, second)


def _swapped(operand: LayerInput) -> relax.Expr:
    *outer, row, column = range(len(static_shape(operand.value)))
    return operand.real(axes=(*outer, column, row))


def _biased(result: relax.Expr, rest: list[LayerInput | None]) -> relax.Expr:
    bias = rest[0] if rest else None
    if bias is None:
        return result
    for part in _bias_parts(bias):
        result = relax.op.add(result, part.real())
    return result


def _in_steps(data: LayerInput, weight: LayerInput, rest: list[LayerInput | None]) -> list[LayerInput | None]:
    """Return a bias in the scale in which runtimes add it, which is that of the sums of products."""
    bias = rest[0] if rest else None
    if bias is None or bias.scales is None or data.scales is None or weight.scales is None:
        return rest
    steps = steps_of_sums(data.scales, weight.scales)
    if np.allclose(bias.scales.scale, steps, rtol=MOST_BIAS_ERROR, atol=0):
        return rest
    scales = Scales(scale=steps.astype(np.float32), zero_point=np.zeros(steps.size, np.int64), axis=0)
    return [replace(bias, scales=scales), *rest[1:]]


def steps_of_sums(data: Scales, weight: Scales) -> np.ndarray:
    """Return the real number that a step of a layer's sums stands for, or one for each channel, in double precision."""
    return data.scale[0].astype(np.float64) * weight.scale


def _bias_parts(bias: LayerInput) -> tuple[LayerInput, ...]:
    """Return the bias, or two parts with different scales for a bias of 64 bits. Raises Refused above 62 bits."""
    array = array_of(bias.value)
    if bias.scales is None or array is None or array.dtype != np.int64:
        return (bias,)
    if np.abs(array).max(initial=0) > LARGEST:
        raise Refused("its bias has more than 62 bits")
    high, low = split_bias(array)
    larger = replace(bias.scales, scale=bias.scales.scale * np.float32(HIGH_SCALE))
    return LayerInput(value=constant(high), scales=larger), LayerInput(value=constant(low), scales=bias.scales)


def _check_sums(data: LayerInput, weight: LayerInput, rest: list[LayerInput | None], axis: int) -> None:
    """Raise Refused if accumulators may overflow, as they would in TensorFlow Lite.

    Accumulators of int16 activations have 64 bits unless the bias has 32 bits. axis: output channels of the weights.
    """
    array, bias = array_of(weight.value), array_of(rest[0].value) if rest and rest[0] else None
    dtype = str(data.value.ty.dtype)
    if weight.scales is None or array is None or array.dtype != np.int8 or dtype not in _WIDEST:
        return
    if dtype == "int16" and (bias is None or bias.dtype != np.int32):
        return
    each = np.abs(np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1).astype(np.int64)).sum(1) * _WIDEST[dtype]
    check_sums(each + (0 if bias is None else np.abs(bias.astype(np.int64))), 1 / 2)


def _given(operand: LayerInput | None) -> LayerInput:
    if operand is None:
        raise Refused("a required input is left out")
    return operand


LAYERS: dict[str, Callable[[tflite.Operator, list[LayerInput | None]], relax.Expr]] = {
    "BATCH_MATMUL": batch_matmul,
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": depthwise,
    "FULLY_CONNECTED": fully_connected,
    "TRANSPOSE_CONV": transposed_convolution,
}
