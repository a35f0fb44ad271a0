"""Layers for the tests of the host's integer kernels, and the kernels that are to take them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TypeVar

import numpy as np

from codegen_c.kernels.contract import Kernel
from codegen_c.operators.kinds import (
    Operator,
    PackedQConv2d,
    PackedQDense,
    QBinary,
    QConv2d,
    QDense,
    QPool2d,
    Quantization,
    Window,
)
from codegen_c.targets.host.kernels import depthwise as depthwise_host
from codegen_c.targets.host.kernels import elementwise as elementwise_host
from codegen_c.targets.host.kernels import pooling as pooling_host
from codegen_c.targets.host.kernels import products as products_host
from codegen_c.targets.host.kernels import winograd as winograd_host
from tests.kernels.test_q_refusals import CONV, DENSE, byte_tensor

Layer = TypeVar("Layer", QConv2d, QDense)


def pointwise(channels: int, factor: float, rounding="onnx") -> QConv2d:
    """Sums of 8 products times a factor, for each of so many channels."""
    random = np.random.default_rng(channels)
    return replace(
        CONV,
        inputs=(byte_tensor(1, 4, 5, 8, scale=1.0, zero_point=-3),),
        outputs=(byte_tensor(1, 4, 5, channels, scale=1.0, zero_point=-20),),
        weight=random.integers(-128, 128, (channels, 1, 1, 8)).astype(np.int8),
        weight_scale=np.full(channels, factor, np.float32),
        bias=random.integers(-500, 500, channels).astype(np.int32),
        rounding=rounding,
    )


def by_nines(channels: int, depth: int, **changes: object) -> QConv2d:
    """Windows of 3 by 3 over an image of 5 by 6 with padding."""
    random = np.random.default_rng(depth)
    plain = replace(
        pointwise(channels, 2.0**-9),
        inputs=(byte_tensor(1, 5, 6, depth, scale=1.0, zero_point=-3),),
        outputs=(byte_tensor(1, 5, 6, channels, scale=1.0, zero_point=4),),
        weight=random.integers(-128, 128, (channels, 3, 3, depth)).astype(np.int8),
        weight_scale=np.exp2(random.integers(-13, -8, channels)).astype(np.float32),
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
    )
    return replace(plain, **changes)


def symmetric(operator: QConv2d) -> QConv2d:
    """The layer with weights from -127 to 127."""
    return replace(operator, weight=np.maximum(operator.weight, -127))


def single_channels(channels: int, **changes: object) -> QConv2d:
    """A depthwise layer."""
    whole = by_nines(channels, 1)
    return replace(whole, inputs=(replace(whole.inputs[0], shape=(1, 5, 6, channels)),), groups=channels, **changes)


def in_four_bits(operator: QConv2d | QDense) -> PackedQConv2d | PackedQDense:
    """The layer with the lower four bits of its weights."""
    kind = PackedQConv2d if isinstance(operator, QConv2d) else PackedQDense
    members = {field.name: getattr(operator, field.name) for field in fields(operator)}
    return kind(**members | {"weight": ((operator.weight + 8) % 16 - 8).astype(np.int8)})


def dense(channels: int, depth: int) -> QDense:
    weight = np.random.default_rng(depth).integers(-128, 128, (channels, depth)).astype(np.int8)
    return replace(
        DENSE, inputs=(byte_tensor(2, depth, dtype="uint8"),), outputs=(byte_tensor(2, channels, scale=900.0),),
        weight=weight, weight_scale=np.full(channels, 0.25, np.float32), bias=np.arange(channels, dtype=np.int32),
    )  # fmt: skip


def mean(channels: int, **changes: object) -> QPool2d:
    """Averages of windows of 3 by 3."""
    window = replace(Window(kernel=(3, 3)), **changes)
    height, columns = (
        (size - (2 * dilation + 1)) // stride + 1
        for size, dilation, stride in zip((6, 7), window.dilation, window.strides, strict=True)
    )
    return QPool2d(
        inputs=(byte_tensor(1, 6, 7, channels, dtype="uint8", scale=0.7, zero_point=200),),
        outputs=(byte_tensor(1, height, columns, channels, scale=0.5, zero_point=-7),),
        window=window, method="average", low=-128, high=120,
    )  # fmt: skip


def of_zeros(layer: Layer, weight: int, element: int) -> Layer:
    """The layer with one weight everywhere, a factor of 0.75, and biases that make its elements the zero point if the
    whole window has that element.
    """
    (source,) = layer.inputs
    taps = layer.weight[0].size
    return replace(
        layer,
        inputs=(replace(source, quantization=Quantization(scale=1.0, zero_point=5)),),
        outputs=(replace(layer.outputs[0], quantization=Quantization(scale=1.0, zero_point=-20)),),
        weight=np.full_like(layer.weight, weight),
        weight_scale=np.full(len(layer.bias), 0.75, np.float32),
        bias=np.full(len(layer.bias), -taps * weight * (element - 5), np.int32),
    )


OPERANDS = (byte_tensor(1, 3, 7, 5, scale=0.3), byte_tensor(1, 3, 7, 5, dtype="uint8", scale=0.011, zero_point=9))
DIFFERENCE = QBinary(
    inputs=OPERANDS, outputs=(byte_tensor(1, 3, 7, 5, scale=0.2),), function="subtract", low=-128, high=127
)
LAYERS: tuple[tuple[Kernel, tuple[Operator, ...]], ...] = (
    (
        products_host.QCONV2D,
        (
            by_nines(20, 3), pointwise(24, 0.125), pointwise(70, 0.75), pointwise(16, 2.0**-8, "tflite"),
            pointwise(40, 0.013), symmetric(by_nines(33, 6)),
        ),
    ),
    (products_host.QCONV2D_PACKED, (in_four_bits(by_nines(36, 5)),)),
    (winograd_host.KERNEL, (by_nines(8, 20, rounding="tflite", low=-100, high=90), by_nines(70, 17))),
    (depthwise_host.QDEPTHWISE, (single_channels(20), symmetric(single_channels(33, rounding="tflite")))),
    (depthwise_host.QDEPTHWISE_PACKED, (in_four_bits(single_channels(20)),)),
    (products_host.QDENSE, (dense(18, 35),)),
    (products_host.QDENSE_PACKED, (in_four_bits(dense(18, 35)),)),
    (pooling_host.KERNEL, (mean(32), mean(16, strides=(1, 2), dilation=(2, 1)))),
    (elementwise_host.KERNEL, (DIFFERENCE,)),
)  # fmt: skip
"""Ties, factors that scale sums up first, channels beyond four units, odd depths, many elements of a sum, weights
without -128."""
