"""Layers whose result is the int32 sums of their products, which another kernel finishes."""

from __future__ import annotations

from codegen_c.kernels.contract import Target
from codegen_c.kernels.shared.requantize import BYTES, channel_factors, is_quantized_integer
from codegen_c.operators.kinds import QConv2d, QDense, TensorType


def holds_sums(tensor: TensorType) -> bool:
    """Return True for a result of sums of products, before any scale."""
    return tensor.dtype == "int32"


def bytes_or_sums(operator: QConv2d | QDense, target: Target) -> bool:
    """activations must be int8 or uint8 with one scale, finite and above zero, and a zero point of that type"""
    if not all(is_quantized_integer(tensor, BYTES) for tensor in operator.inputs):
        return False
    if holds_sums(operator.output):  # unchanged, without a factor or an offset
        known = operator.output.quantization
        return known is not None and known.zero_point == 0 and bool((channel_factors(operator) == 1).all())
    return is_quantized_integer(operator.output, BYTES)
