"""One operator of each kind and corner that the Helium kernels treat by code of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import Kernel
from codegen_c.operators.kinds import Operator, QBinary, QConv2d, QDense, QPool2d, Quantization, TensorType, Window
from codegen_c.targets.helium.kernels import convolution as convolution_helium
from codegen_c.targets.helium.kernels import dense as dense_helium
from codegen_c.targets.helium.kernels import depthwise as depthwise_helium
from codegen_c.targets.helium.kernels import depthwise_squares as depthwise_squares_helium
from codegen_c.targets.helium.kernels import depthwise_taps as depthwise_taps_helium
from codegen_c.targets.helium.kernels import elementwise as elementwise_helium
from codegen_c.targets.helium.kernels import groups as groups_helium
from codegen_c.targets.helium.kernels import pooling as pooling_helium

SAME = Window(kernel=(3, 3), padding=(1, 1, 1, 1))
POINT = Window(kernel=(1, 1))


def tensor(*shape: int, scale: float = 0.02, zero_point: int = 3, dtype: str = "int8") -> TensorType:
    return TensorType(shape=shape, dtype=dtype, quantization=Quantization(scale=scale, zero_point=zero_point))


def conv(source: TensorType, output: TensorType, window: Window, *, groups: int = 1, has_ties: bool = False) -> QConv2d:
    random, channels = np.random.default_rng(5), output.shape[3]
    scales = np.full(channels, 2.0**-9) if has_ties else np.exp2(random.uniform(-10, -8, channels))
    depth = source.shape[3] // groups
    info = np.iinfo(output.dtype)
    return QConv2d(
        inputs=(source,),
        outputs=(output,),
        weight=random.integers(-127, 128, (channels, *window.kernel, depth)).astype(np.int8),
        weight_scale=scales.astype(np.float32),
        bias=random.integers(-500, 500, channels).astype(np.int32),
        window=window,
        low=int(info.min),
        high=int(info.max),
        groups=groups,
    )


def dense(source: TensorType, output: TensorType) -> QDense:
    random = np.random.default_rng(6)
    depth, channels = source.shape[-1], output.shape[-1]
    return QDense(
        inputs=(source,),
        outputs=(output,),
        weight=random.integers(-127, 128, (channels, depth)).astype(np.int8),
        weight_scale=np.exp2(random.uniform(-10, -8, channels)).astype(np.float32),
        bias=random.integers(-500, 500, channels).astype(np.int32),
        low=-128,
        high=127,
    )


def pool(source: TensorType, output: TensorType, window: Window, method: str) -> QPool2d:
    info = np.iinfo(output.dtype)
    limits = {"low": int(info.min), "high": int(info.max)}
    return QPool2d(inputs=(source,), outputs=(output,), method=method, window=window, **limits)


def binary(function: str, a: TensorType, b: TensorType, output: TensorType) -> QBinary:
    info = np.iinfo(output.dtype)
    return QBinary(inputs=(a, b), outputs=(output,), function=function, low=int(info.min), high=int(info.max))


BYTES = tensor(1, 5, 4, 12, scale=0.03, zero_point=130, dtype="uint8")
POOLED_BYTES = tensor(1, 2, 1, 12, scale=0.03, zero_point=130, dtype="uint8")
POINTWISE = (convolution_helium.QPOINTWISE, tensor(1, 5, 5, 32), tensor(1, 5, 5, 8, scale=0.3))
KEPT = convolution_helium.QPOINTWISE_KEPT
WIDE_BYTES = tensor(1, 5, 7, 12, scale=0.03, zero_point=130, dtype="uint8")
WIDEST_BYTES = tensor(1, 11, 27, 24, zero_point=130, dtype="uint8")
TAPS = depthwise_taps_helium.KERNEL
SQUARES = depthwise_squares_helium.KERNEL
LIMITED = conv(tensor(1, 7, 8, 16), tensor(1, 7, 8, 16, scale=0.2, zero_point=-128), SAME, groups=16)
GROUPS = groups_helium.KERNEL
GROUPED = conv(tensor(1, 7, 9, 16), tensor(1, 7, 9, 16, scale=0.2), SAME, groups=4)
STRIDED = Window(kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1))
WIDE = Window(kernel=(5, 5), padding=(2, 2, 2, 2))
WIDE_STRIDED = Window(kernel=(5, 5), strides=(2, 2), padding=(2, 2, 2, 2))
WIDEST = Window(kernel=(7, 7), padding=(3, 3, 3, 3))
SAMPLES: dict[str, tuple[Kernel, Operator]] = {
    "pointwise": (POINTWISE[0], conv(*POINTWISE[1:], POINT)),
    "pointwise_bytes": (POINTWISE[0], conv(BYTES, tensor(1, 5, 4, 7, scale=0.3), POINT)),
    "pointwise_kept": (KEPT, conv(tensor(1, 3, 9, 16), tensor(1, 3, 9, 12, scale=0.3), POINT)),
    "pointwise_kept_narrow": (KEPT, conv(tensor(1, 3, 7, 8), tensor(1, 3, 7, 10, scale=0.3), POINT)),
    "conv": (convolution_helium.QCONV2D, conv(tensor(1, 7, 6, 16), tensor(1, 7, 6, 5, scale=0.5), SAME)),
    "conv_deep": (convolution_helium.QCONV2D, conv(tensor(1, 4, 4, 64), tensor(1, 4, 4, 4, scale=0.5), SAME)),
    "conv_bytes": (convolution_helium.QCONV2D, conv(BYTES, tensor(1, 5, 4, 4, dtype="uint8", scale=0.5), SAME)),
    "conv_ties": (
        convolution_helium.QCONV2D,
        conv(tensor(1, 9, 9, 3, scale=0.5), tensor(1, 9, 9, 8, scale=0.25), SAME, has_ties=True),
    ),
    "conv_left_shift": (convolution_helium.QCONV2D, conv(tensor(1, 3, 3, 4), tensor(1, 3, 3, 4, scale=0.0001), SAME)),
    "groups": (GROUPS, GROUPED),
    "groups_twice": (GROUPS, replace(GROUPED, rounding="tflite")),
    "groups_deep": (GROUPS, conv(tensor(1, 7, 6, 48), tensor(1, 4, 3, 12, scale=0.2), STRIDED, groups=2)),
    "groups_joined": (GROUPS, conv(BYTES, tensor(1, 5, 4, 12, scale=0.2, dtype="uint8"), SAME, groups=6)),
    "groups_odd": (GROUPS, conv(tensor(1, 6, 5, 10), tensor(1, 6, 5, 14, scale=0.2), SAME, groups=2)),
    "depthwise": (
        depthwise_helium.KERNEL,
        conv(tensor(1, 6, 5, 32), tensor(1, 6, 5, 32, scale=0.2), SAME, groups=32),
    ),
    "depthwise_tail": (
        depthwise_helium.KERNEL,
        conv(BYTES, tensor(1, 5, 4, 12, scale=0.2, dtype="uint8"), SAME, groups=12),
    ),
    "depthwise_overlapping": (
        depthwise_helium.KERNEL,
        conv(tensor(1, 6, 5, 40), tensor(1, 6, 5, 40, scale=0.2), SAME, groups=40),
    ),
    "depthwise_narrow": (
        depthwise_helium.KERNEL,
        conv(tensor(1, 6, 5, 8), tensor(1, 6, 5, 8, scale=0.2), SAME, groups=8),
    ),
    "depthwise_inside": (
        depthwise_helium.KERNEL,
        conv(tensor(1, 6, 5, 16), tensor(1, 4, 3, 16, scale=0.2), Window(kernel=(3, 3)), groups=16),
    ),
    "taps": (TAPS, conv(tensor(1, 7, 6, 32), tensor(1, 7, 6, 32, scale=0.2), SAME, groups=32)),
    "taps_overlapping": (TAPS, conv(tensor(1, 4, 8, 24), tensor(1, 4, 8, 24, scale=0.2), SAME, groups=24)),
    "taps_bytes": (TAPS, conv(WIDE_BYTES, tensor(1, 5, 7, 12, scale=0.2, dtype="uint8"), SAME, groups=12)),
    "taps_ties": (
        TAPS,
        conv(tensor(1, 5, 9, 8, scale=0.5), tensor(1, 5, 9, 8, scale=0.25), SAME, groups=8, has_ties=True),
    ),
    "taps_strided": (TAPS, conv(tensor(1, 9, 13, 16), tensor(1, 5, 7, 16, scale=0.2), STRIDED, groups=16)),
    "taps_5x5": (TAPS, conv(tensor(1, 5, 7, 16), tensor(1, 5, 7, 16, scale=0.2), WIDE, groups=16)),
    "taps_5x5_strided": (TAPS, conv(tensor(1, 9, 11, 20), tensor(1, 5, 6, 20, scale=0.2), WIDE_STRIDED, groups=20)),
    "taps_7x7": (TAPS, conv(tensor(1, 5, 44, 16), tensor(1, 5, 44, 16, scale=0.2), WIDEST, groups=16)),
    "squares": (SQUARES, conv(tensor(1, 9, 6, 136), tensor(1, 9, 6, 136, scale=0.2), SAME, groups=136)),
    "squares_five": (SQUARES, conv(tensor(1, 25, 5, 64), tensor(1, 25, 5, 64, scale=0.2), SAME, groups=64)),
    "squares_halves": (SQUARES, conv(tensor(1, 17, 9, 32), tensor(1, 17, 9, 32, scale=0.2), SAME, groups=32)),
    "squares_run": (SQUARES, conv(tensor(1, 7, 9, 12), tensor(1, 7, 9, 12, scale=0.2), SAME, groups=12)),
    "squares_shifts": (SQUARES, conv(tensor(1, 6, 8, 16), tensor(1, 6, 8, 16, scale=0.002), SAME, groups=16)),
    "squares_twice": (SQUARES, replace(LIMITED, rounding="tflite")),
    "squares_wide": (SQUARES, conv(WIDEST_BYTES, tensor(1, 11, 27, 24, scale=0.2), SAME, groups=24)),
    "conv_inside": (
        convolution_helium.QCONV2D,
        conv(tensor(1, 6, 6, 16), tensor(1, 4, 4, 4, scale=0.5), Window(kernel=(3, 3))),
    ),
    "dense": (dense_helium.QDENSE, dense(tensor(1, 320), tensor(1, 10, scale=0.5))),
    "dense_rows": (dense_helium.QDENSE, dense(tensor(3, 20), tensor(3, 6, scale=0.5))),
    "max_pool": (
        pooling_helium.KERNEL,
        pool(tensor(1, 6, 6, 20), tensor(1, 3, 3, 20), Window(kernel=(2, 2), strides=(2, 2)), "max"),
    ),
    "average_pool": (pooling_helium.KERNEL, pool(tensor(1, 5, 5, 16), tensor(1, 5, 5, 16), SAME, "average")),
    "average_pool_of_integers": (
        pooling_helium.KERNEL,
        replace(pool(tensor(1, 5, 5, 20), tensor(1, 5, 5, 20), SAME, "average"), rounding="tflite"),
    ),
    "average_pool_of_bytes": (
        pooling_helium.KERNEL,
        replace(pool(BYTES, POOLED_BYTES, Window(kernel=(4, 4)), "average"), rounding="tflite"),
    ),
    "average_pool_ties": (
        pooling_helium.KERNEL,
        pool(BYTES, tensor(1, 2, 1, 12, scale=0.03), Window(kernel=(4, 4)), "average"),
    ),
    "add": (
        elementwise_helium.QBINARY,
        binary("add", tensor(1, 3, 3, 5, scale=0.031), tensor(1, 3, 3, 5), tensor(1, 3, 3, 5, scale=0.037)),
    ),
    "add_ties": (elementwise_helium.QBINARY, binary("add", BYTES, BYTES, tensor(1, 5, 4, 12, scale=0.06))),
    "subtract": (
        elementwise_helium.QBINARY,
        binary("subtract", tensor(40), tensor(40, scale=0.5), tensor(40, scale=0.6)),
    ),
    "multiply": (elementwise_helium.QBINARY, binary("multiply", tensor(37), tensor(37), tensor(37, scale=0.01))),
}
