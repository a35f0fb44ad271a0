"""Kernels for float layers on an accelerator: add, conv2d, dense, depthwise and pools."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.conv_f32 import reference as offload_conv2d_f32_reference
from codegen_c.kernels.dense.dense_f32 import reference as offload_dense_f32_reference
from codegen_c.kernels.elementwise.elementwise_f32 import reference
from codegen_c.kernels.offload.driver import bound_members, bounds, entry_of, started, window_members
from codegen_c.kernels.offload.quantized import kind_of, taps_of
from codegen_c.kernels.pooling.pool2d_f32 import reference as offload_pool_f32_reference
from codegen_c.kernels.pooling.pool2d_f32 import window_holds_input
from codegen_c.operators.kinds import Conv2d, Dense, Elementwise, Pool2d
from codegen_c.operators.scalar import Instruction, Operand

# Sum of two tensors of floats by an accelerator, element by element, then two bounds.
#
# float32[...], float32[...] -> float32[...], all of one shape.

KIND = "add"


def is_sum(operator: Elementwise, target: Target) -> bool:
    """a driver's add computes the sum of two tensors of one shape, clamped to bounds and nothing else"""
    shapes = {tensor.shape for tensor in (*operator.inputs, operator.output)}
    operands = {Operand(kind="input", index=0), Operand(kind="input", index=1)}
    match operator.finish.instructions:
        case (Instruction(function="add", operands=added), *_):
            is_added = {*added} == operands and len(operator.inputs) == 2
            return is_added and len(shapes) == 1 and bounds(operator.finish, first=1) is not None
        case _:
            return False


def is_taken(operator: Elementwise, target: Target) -> bool:
    """the accelerator's driver must support a sum of floats of its shape"""
    return entry_of(KIND, operator, target) is not None


def implement(operator: Elementwise, target: Target, stored: StoredRows) -> Implementation:
    layer = {"elements": operator.output.num_elements, **bound_members(bounds(operator.finish, first=1))}
    return started(
        OFFLOAD_ADD_F32.name, operator, target, entry_of(KIND, operator, target), layer,
        reference=lambda inputs: reference(operator, inputs), taken=operator.output.num_elements,
    )  # fmt: skip


OFFLOAD_ADD_F32 = Kernel(
    name="offload_add_f32",
    title="Add in float32 on an accelerator",
    operator=Elementwise,
    implement=implement,
    constraints=(is_sum, is_taken),
    offload=True,
)


# conv2d of floats by an accelerator.
#
# float32[N, H, W, C], float32[K, R, S, C] -> float32[N, P, Q, K]: bias and products, without those outside the input,
# then two bounds.

OFFLOAD_CONV2D_F32_KIND = "conv2d"


def has_one_group(operator: Conv2d, target: Target) -> bool:
    """a driver's conv2d reads all input channels for each output channel"""
    return operator.groups == 1


def offload_conv2d_f32_is_taken(operator: Conv2d, target: Target) -> bool:
    """the accelerator's driver must support a conv2d of floats of its shape and window"""
    return entry_of(OFFLOAD_CONV2D_F32_KIND, operator, target, operator.window) is not None


def ends_in_bounds(operator: Conv2d, target: Target) -> bool:
    """a driver's layer of floats may only clamp its sums to bounds, and do nothing else"""
    return bounds(operator.finish) is not None


def offload_conv2d_f32_implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    return handed_over(OFFLOAD_CONV2D_F32.name, OFFLOAD_CONV2D_F32_KIND, operator, target, operator.weight)


def handed_over(name: str, kind: str, operator: Conv2d, target: Target, weights: np.ndarray) -> Implementation:
    """Return a convolution or depthwise convolution, with its weights in the driver's layout."""
    layer = {"window": window_members(operator, operator.window), **bound_members(bounds(operator.finish))}
    return started(
        name, operator, target, entry_of(kind, operator, target, operator.window), layer,
        (("weights", np.ascontiguousarray(weights)), ("bias", operator.bias)),
        reference=lambda inputs: offload_conv2d_f32_reference(operator, inputs),
        macs=operator.output.num_elements * operator.weight[0].size,
    )  # fmt: skip


OFFLOAD_CONV2D_F32 = Kernel(
    name="offload_conv2d_f32", title="Convolution in float32 on an accelerator",
    operator=Conv2d, implement=offload_conv2d_f32_implement,
    constraints=(has_one_group, offload_conv2d_f32_is_taken, ends_in_bounds), offload=True,
)  # fmt: skip


# Dense layer of floats by an accelerator.
#
# float32[..., C], float32[K, C] -> float32[..., K]: bias and products, then two bounds.

OFFLOAD_DENSE_F32_KIND = "dense"


def offload_dense_f32_is_taken(operator: Dense, target: Target) -> bool:
    """the accelerator's driver must support a dense layer of floats of its shape"""
    return entry_of(OFFLOAD_DENSE_F32_KIND, operator, target) is not None


def offload_dense_f32_ends_in_bounds(operator: Dense, target: Target) -> bool:
    """a driver's layer of floats may only clamp its sums to bounds, and do nothing else"""
    return bounds(operator.finish) is not None


def offload_dense_f32_implement(operator: Dense, target: Target, stored: StoredRows) -> Implementation:
    channels, depth = operator.weight.shape
    vectors = operator.output.num_elements // channels
    layer = {
        "vectors": vectors, "input_channels": depth, "output_channels": channels,
        **bound_members(bounds(operator.finish)),
    }  # fmt: skip
    return started(
        OFFLOAD_DENSE_F32.name, operator, target, entry_of(OFFLOAD_DENSE_F32_KIND, operator, target), layer,
        (("weights", np.ascontiguousarray(operator.weight)), ("bias", operator.bias)),
        reference=lambda inputs: offload_dense_f32_reference(operator, inputs), macs=vectors * operator.weight.size,
    )  # fmt: skip


OFFLOAD_DENSE_F32 = Kernel(
    name="offload_dense_f32",
    title="Dense layer in float32 on an accelerator",
    operator=Dense,
    implement=offload_dense_f32_implement,
    constraints=(offload_dense_f32_is_taken, offload_dense_f32_ends_in_bounds),
    offload=True,
)


# Depthwise conv2d of floats by an accelerator: each output channel reads one input channel.
#
# float32[N, H, W, C], float32[R, S, K] -> float32[N, P, Q, K]; output channel k reads input channel k / (K / C). Sums
# and bounds as of a conv2d.

OFFLOAD_DEPTHWISE_F32_KIND = "depthwise"


def reads_one_channel(operator: Conv2d, target: Target) -> bool:
    """every input channel must be a group of its own"""
    return operator.groups == operator.inputs[0].shape[3] and operator.weight.shape[3] == 1


def offload_depthwise_f32_is_taken(operator: Conv2d, target: Target) -> bool:
    """the accelerator's driver must support a depthwise convolution of floats of its shape and window"""
    return entry_of(OFFLOAD_DEPTHWISE_F32_KIND, operator, target, operator.window) is not None


def offload_depthwise_f32_implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    return handed_over(
        OFFLOAD_DEPTHWISE_F32.name,
        OFFLOAD_DEPTHWISE_F32_KIND,
        operator,
        target,
        operator.weight[:, :, :, 0].transpose(1, 2, 0),
    )


OFFLOAD_DEPTHWISE_F32 = Kernel(
    name="offload_depthwise_f32", title="Depthwise convolution in float32 on an accelerator",
    operator=Conv2d, implement=offload_depthwise_f32_implement,
    constraints=(reads_one_channel, offload_depthwise_f32_is_taken, ends_in_bounds), offload=True,
)  # fmt: skip


# Max and average pools of floats by an accelerator.
#
# float32[N, H, W, C] -> float32[N, P, Q, C]: the largest element of a window inside the input; or the sum of the
# elements inside, divided by their number or by the window's size; then two bounds.


def offload_pool_f32_is_taken(operator: Pool2d, target: Target) -> bool:
    """the accelerator's driver must support a pool of floats of its method, shape and window"""
    return entry_of(kind_of(operator), operator, target, operator.window) is not None


def offload_pool_f32_ends_in_bounds(operator: Pool2d, target: Target) -> bool:
    """a driver's layer of floats may only clamp its result to bounds, and do nothing else"""
    return bounds(operator.finish) is not None


def offload_pool_f32_implement(operator: Pool2d, target: Target, stored: StoredRows) -> Implementation:
    layer = {
        "window": window_members(operator, operator.window), "counts_padding": operator.count_include_pad,
        **bound_members(bounds(operator.finish)),
    }  # fmt: skip
    return started(
        OFFLOAD_POOL_F32.name, operator, target, entry_of(kind_of(operator), operator, target, operator.window), layer,
        reference=lambda inputs: offload_pool_f32_reference(operator, inputs), taken=taps_of(operator),
    )  # fmt: skip


OFFLOAD_POOL_F32 = Kernel(
    name="offload_pool_f32", title="Pooling in float32 on an accelerator",
    operator=Pool2d, implement=offload_pool_f32_implement,
    constraints=(offload_pool_f32_is_taken, window_holds_input, offload_pool_f32_ends_in_bounds), offload=True,
)  # fmt: skip


KERNELS = (OFFLOAD_ADD_F32, OFFLOAD_CONV2D_F32, OFFLOAD_DENSE_F32, OFFLOAD_DEPTHWISE_F32, OFFLOAD_POOL_F32)
