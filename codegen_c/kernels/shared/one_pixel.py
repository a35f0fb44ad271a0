"""Convolutions of one pixel as the dense layers they are, and back, so that kernels of either kind may compute them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from codegen_c.operators.kinds import Operator, QConv2d, QDense, TensorType, Window


def as_dense(operator: Operator) -> QDense | None:
    """A quantized convolution from one pixel to one pixel as a dense layer; None for any other operator."""
    if type(operator) is not QConv2d or operator.groups != 1 or operator.weight.shape[1:3] != (1, 1):
        return None
    if any(prod(tensor.shape[:3]) != 1 for tensor in (operator.inputs[0], operator.output)):
        return None
    return QDense(
        inputs=operator.inputs, outputs=operator.outputs,
        weight=operator.weight.reshape(operator.weight.shape[0], -1), weight_scale=operator.weight_scale,
        bias=operator.bias, low=operator.low, high=operator.high, rounding=operator.rounding,
        scale_product="double",
    )  # fmt: skip


def as_pointwise(operator: Operator) -> QConv2d | None:
    """A quantized dense layer on several vectors [1, N, C] as the 1x1 convolution of an image of one column.

    None for any other operator, and where TensorFlow Lite rounds the two differently.
    """
    if type(operator) is not QDense or (operator.rounding != "onnx" and operator.scale_product == "single"):
        return None
    shape = operator.output.shape
    if len(shape) != 3 or shape[0] != 1 or shape[1] < 2:
        return None

    def image(tensor: TensorType) -> TensorType:
        return replace(tensor, shape=(1, shape[1], 1, tensor.shape[-1]))

    return QConv2d(
        inputs=(image(operator.inputs[0]),), outputs=(image(operator.output),),
        weight=operator.weight[:, None, None, :], weight_scale=operator.weight_scale, bias=operator.bias,
        window=Window(kernel=(1, 1)), low=operator.low, high=operator.high, rounding=operator.rounding,
    )  # fmt: skip
