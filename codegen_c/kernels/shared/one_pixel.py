"""Convolutions of one pixel as the dense layers they are, so that kernels of either kind may compute them."""

from __future__ import annotations

from math import prod

from codegen_c.operators.kinds import Operator, QConv2d, QDense


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
