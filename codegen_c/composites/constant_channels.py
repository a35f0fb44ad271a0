"""Channels of a quantized layer whose elements no input changes: their factors, biases and weights made plain.

Training with a penalty on weights leaves such channels, and converters write them with biases and factors at the ends
of their ranges: sums near 2^30 times factors below 2^-26. One such channel keeps a whole layer from kernels that need
small sums or common shifts. Each becomes a channel without weights, whose bias alone gives the same element.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.shared.requantize import SCALES, Requantize, is_quantized_integer, quantization, scale_of
from codegen_c.operators.kinds import Array, PackedQConv2d, PackedQDense, QConv2d, QDense

Layer = TypeVar("Layer", QConv2d, QDense)

STEP_BITS = 9
"""Bits of the sum that is one step of the output in a channel without weights: sums stay below 2^17."""


def plain_constant_channels(operator: Layer) -> Layer:
    """Return the layer with plain constant channels; the same elements for every input, and other channels as they are.

    The layer itself is returned if it has none, or activations, weights or sums of other types than 8 and 32 bits.
    """
    if type(operator) not in (QConv2d, PackedQConv2d, QDense, PackedQDense) or not _is_of_bytes(operator):
        return operator
    low, high = _bounds(operator)
    if low.min() < -(1 << 31) or high.max() >= 1 << 31:
        return operator
    exact = _requantize(operator)
    least, most = exact.run(low[np.newaxis])[0], exact.run(high[np.newaxis])[0]
    constant = least == most
    if not constant.any():
        return operator
    step = scale_of(operator.output) / scale_of(operator.inputs[0]) / (1 << STEP_BITS)
    bias = (least.astype(np.int64) - quantization(operator.output).zero_point) << STEP_BITS
    plain = replace(
        operator,
        weight=np.where(_by_channel(constant, operator.weight), np.int8(0), operator.weight),
        weight_scale=np.where(constant, np.float32(step), operator.weight_scale).astype(operator.weight_scale.dtype),
        bias=np.where(constant, bias, operator.bias).astype(operator.bias.dtype),
    )
    return plain if _same_elements(plain, exact, least, constant) else operator


def _is_of_bytes(operator: QConv2d | QDense) -> bool:
    bytes_ = ("int8", "uint8")
    types, scales = (operator.weight.dtype, operator.bias.dtype), operator.weight_scale.dtype
    tensors = (*operator.inputs, operator.output)
    return (
        types == ("int8", "int32")
        and scales in SCALES
        and all(is_quantized_integer(tensor, bytes_) for tensor in tensors)
    )


def _same_elements(plain: QConv2d | QDense, exact: Requantize, element: Array, constant: Array) -> bool:
    """Return True if constant channels have their elements, and the others the factors they had.

    TensorFlow Lite multiplies scales in another precision if all channels share them, so that one channel's scale can
    change the factors of all.
    """
    found = _requantize(plain)
    same = [
        np.array_equal(
            np.broadcast_to(after, constant.shape)[~constant], np.broadcast_to(before, constant.shape)[~constant]
        )
        for after, before in ((found.mantissa, exact.mantissa), (found.shift, exact.shift))
    ]
    return all(same) and np.array_equal(
        found.run(plain.bias.astype(np.int64)[np.newaxis])[0][constant], element[constant]
    )


def _by_channel(values: Array, weight: Array) -> Array:
    return values.reshape(-1, *(1,) * (weight.ndim - 1))


def _bounds(operator: QConv2d | QDense) -> tuple[Array, Array]:
    return qconv2d.bounds(operator) if isinstance(operator, QConv2d) else qdense.bounds(operator)


def _requantize(operator: QConv2d | QDense) -> Requantize:
    return qconv2d.requantize(operator) if isinstance(operator, QConv2d) else qdense.requantize(operator)
