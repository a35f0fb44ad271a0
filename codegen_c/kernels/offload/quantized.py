"""Kernels for quantized layers on an accelerator: add, conv2d, dense, depthwise and pools."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.elementwise.qbinary import (
    common_shift,
    reference,
    results_in_range,
    same_shape,
    tflite_factors,
    tflite_shift,
)
from codegen_c.kernels.offload.driver import FIXED_POINT_BITS, entry_of, factors, scales, started, window_members
from codegen_c.kernels.pooling.qpool2d import WINDOWS, average, counted_taps
from codegen_c.kernels.pooling.qpool2d import reference as offload_pool_reference
from codegen_c.kernels.shared.requantize import integer_weights, quantization, quantized_bytes
from codegen_c.operators.kinds import Pool2d, QBinary, QConv2d, QDense, QPool2d

# Sum of two quantized tensors by an accelerator, element by element; bounds of the result are an activation.
#
# int8 or uint8[...], the same[...] -> the same[...]: rounded once, or twice as in TensorFlow Lite.

KIND = "add"


def is_sum(operator: QBinary, target: Target) -> bool:
    """a driver's add computes sums, not differences or products"""
    return operator.function == "add"


def is_taken(operator: QBinary, target: Target) -> bool:
    """the accelerator's driver must support a sum of its type, shape and rounding"""
    return entry_of(KIND, operator, target) is not None


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    first, second = (quantization(tensor).zero_point for tensor in operator.inputs)
    layer = {
        "elements": operator.output.num_elements, "first_zero_point": first, "second_zero_point": second,
        "output_zero_point": quantization(operator.output).zero_point, "low": operator.low, "high": operator.high,
        "is_unsigned": operator.output.dtype == "uint8", "rounds_twice": operator.rounding == "tflite",
        **_factors(operator),
    }  # fmt: skip
    return started(
        OFFLOAD_ADD.name, operator, target, entry_of(KIND, operator, target), layer,
        reference=lambda inputs: reference(operator, inputs), taken=operator.output.num_elements,
    )  # fmt: skip


def _factors(operator: QBinary) -> dict[str, int]:
    """Return factors as multiplier * 2^(shift - 31): of both elements, and of their sum if it is rounded again."""
    if operator.rounding != "tflite":
        first, second, shift = common_shift(operator)
        shift = FIXED_POINT_BITS - shift
        return {"first_multiplier": first, "first_shift": shift, "second_multiplier": second, "second_shift": shift}
    members = {"bits": tflite_shift(operator)}
    for name, (multiplier, shift) in zip(("first_", "second_", ""), tflite_factors(operator), strict=True):
        members |= {f"{name}multiplier": multiplier, f"{name}shift": FIXED_POINT_BITS - shift}
    return members


OFFLOAD_ADD = Kernel(
    name="offload_add", title="Quantized add on an accelerator", operator=QBinary, implement=implement,
    constraints=(is_sum, is_taken, quantized_bytes, same_shape, results_in_range), offload=True,
)  # fmt: skip


# conv2d of a quantized network by an accelerator.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K]: a sum is its bias and all (x - zero point) *
# w, without products outside the input; either rounding.

OFFLOAD_CONV2D_KIND = "conv2d"


def has_one_group(operator: QConv2d, target: Target) -> bool:
    """a driver's conv2d reads all input channels for each output channel"""
    return operator.groups == 1


def offload_conv2d_is_taken(operator: QConv2d, target: Target) -> bool:
    """the accelerator's driver must support a conv2d of its type, shape, window and rounding"""
    return entry_of(OFFLOAD_CONV2D_KIND, operator, target, operator.window) is not None


def offload_conv2d_implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    return handed_over(OFFLOAD_CONV2D.name, OFFLOAD_CONV2D_KIND, operator, target, operator.weight)


def handed_over(name: str, kind: str, operator: QConv2d, target: Target, weights: np.ndarray) -> Implementation:
    """Return a convolution or depthwise convolution, with its weights in the driver's layout."""
    finish, channels = qconv2d.requantize(operator), operator.output.shape[3]
    layer = {"window": window_members(operator, operator.window), **scales(operator.inputs[0], finish)}
    constants = (("weights", np.ascontiguousarray(weights)), ("bias", operator.bias), *factors(finish, channels))
    return started(
        name, operator, target, entry_of(kind, operator, target, operator.window), layer, constants,
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        macs=operator.output.num_elements * operator.weight[0].size,
    )  # fmt: skip


SUMS = (quantized_bytes, integer_weights, qconv2d.sums_fit, qconv2d.rescaled_sums_fit)
OFFLOAD_CONV2D = Kernel(
    name="offload_conv2d", title="Quantized convolution on an accelerator",
    operator=QConv2d, implement=offload_conv2d_implement,
    constraints=(has_one_group, offload_conv2d_is_taken, *SUMS),
    offload=True,
)  # fmt: skip


# Dense layer of a quantized network by an accelerator.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K]: a sum is its bias and all (x - zero point) * w; either
# rounding.

OFFLOAD_DENSE_KIND = "dense"


def offload_dense_is_taken(operator: QDense, target: Target) -> bool:
    """the accelerator's driver must support a dense layer of its type, shape and rounding"""
    return entry_of(OFFLOAD_DENSE_KIND, operator, target) is not None


def offload_dense_implement(operator: QDense, target: Target, stored: StoredRows) -> Implementation:
    finish, (channels, depth) = qdense.requantize(operator), operator.weight.shape
    vectors = operator.output.num_elements // channels
    layer = {
        "vectors": vectors, "input_channels": depth, "output_channels": channels, **scales(operator.inputs[0], finish)
    }  # fmt: skip
    weights = np.ascontiguousarray(operator.weight)
    constants = (("weights", weights), ("bias", operator.bias), *factors(finish, channels))
    return started(
        OFFLOAD_DENSE.name, operator, target, entry_of(OFFLOAD_DENSE_KIND, operator, target), layer, constants,
        reference=lambda inputs: qdense.reference(operator, inputs),
        macs=vectors * operator.weight.size,
    )  # fmt: skip


OFFLOAD_DENSE = Kernel(
    name="offload_dense", title="Quantized dense layer on an accelerator",
    operator=QDense, implement=offload_dense_implement,
    constraints=(
        offload_dense_is_taken, quantized_bytes, integer_weights, qdense.sums_fit, qdense.rescaled_sums_fit,
    ),
    offload=True,
)  # fmt: skip


# Depthwise conv2d of a quantized network by an accelerator: each output channel reads one input channel.
#
# int8 or uint8[N, H, W, C], int8[R, S, K] -> int8 or uint8[N, P, Q, K]; output channel k reads input channel k / (K /
# C). Sums and rounding as in conv2d.

OFFLOAD_DEPTHWISE_KIND = "depthwise"


def reads_one_channel(operator: QConv2d, target: Target) -> bool:
    """every input channel must be a group of its own"""
    return operator.groups == operator.inputs[0].shape[3] and operator.weight.shape[3] == 1


def offload_depthwise_is_taken(operator: QConv2d, target: Target) -> bool:
    """the accelerator's driver must support a depthwise convolution of its type, shape, window and rounding"""
    return entry_of(OFFLOAD_DEPTHWISE_KIND, operator, target, operator.window) is not None


def offload_depthwise_implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    return handed_over(
        OFFLOAD_DEPTHWISE.name, OFFLOAD_DEPTHWISE_KIND, operator, target, operator.weight[:, :, :, 0].transpose(1, 2, 0)
    )


OFFLOAD_DEPTHWISE = Kernel(
    name="offload_depthwise", title="Quantized depthwise convolution on an accelerator",
    operator=QConv2d, implement=offload_depthwise_implement,
    constraints=(reads_one_channel, offload_depthwise_is_taken, *SUMS),
    offload=True,
)  # fmt: skip


# Max and average pools of a quantized network by an accelerator.
#
# int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]: the largest element of a window inside the input; or a sum of
# all (x - zero point) there, with a factor for each number of elements, or the average of the integers.


def kind_of(operator: QPool2d | Pool2d) -> str:
    return f"{operator.method}_pool"


def offload_pool_is_taken(operator: QPool2d, target: Target) -> bool:
    """the accelerator's driver must support a pool of its method, type, shape, window and rounding"""
    return entry_of(kind_of(operator), operator, target, operator.window) is not None


def offload_pool_implement(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    finish, source = average(operator) if operator.has_factor else None, operator.inputs[0]
    num_factors = finish.mantissa.size if finish else 0
    layer = {
        "window": window_members(operator, operator.window),
        "input_zero_point": quantization(source).zero_point,
        "output_zero_point": quantization(operator.output).zero_point,
        "low": operator.low, "high": operator.high, "fewest": int(counted_taps(operator).min()),
        "num_factors": num_factors, "is_unsigned": source.dtype == "uint8",
        "rounds_twice": finish is not None and finish.rounding == "tflite",
    }  # fmt: skip
    return started(
        OFFLOAD_POOL.name, operator, target, entry_of(kind_of(operator), operator, target, operator.window), layer,
        factors(finish, num_factors) if finish else (),
        reference=lambda inputs: offload_pool_reference(operator, inputs),
        taken=taps_of(operator),
    )  # fmt: skip


def taps_of(operator: QPool2d | Pool2d) -> int:
    """Return the number of elements in all windows."""
    return operator.output.num_elements * operator.window.kernel[0] * operator.window.kernel[1]


OFFLOAD_POOL = Kernel(
    name="offload_pool", title="Quantized pooling on an accelerator",
    operator=QPool2d, implement=offload_pool_implement,
    constraints=(offload_pool_is_taken, quantized_bytes, *WINDOWS),
    offload=True,
)  # fmt: skip


KERNELS = (OFFLOAD_ADD, OFFLOAD_CONV2D, OFFLOAD_DENSE, OFFLOAD_DEPTHWISE, OFFLOAD_POOL)
