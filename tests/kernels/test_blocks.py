"""Blocks that kernels offer to who measures them: the bits of their own choice, in every way a kernel is run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.kernels.contract import Implementation, StoredRows, Target
from codegen_c.kernels.registry import kernels
from codegen_c.operators.kinds import Conv2d, Dense, Operator, QConv2d, QDense, Quantization, TensorType, Window
from tests.kernels.dsp import CORTEX_M4
from tests.kernels.float32 import floats
from tests.kernels.harness import PORTABLE, run_every_way
from tests.kernels.helium import M55
from tests.kernels.quantized import elements
from tests.support.sweeps import some_of

SAME = Window(kernel=(3, 3), padding=(1, 1, 1, 1))


def conv2d_f32(window: Window, depth: int, channels: int, groups: int = 1) -> Conv2d:
    random = np.random.default_rng(1)
    return Conv2d(
        inputs=(floats(1, 6, 7, depth),), outputs=(floats(1, 6, 7, channels),), window=window, groups=groups,
        weight=random.normal(size=(channels, *window.kernel, depth // groups)).astype(np.float32),
        bias=random.normal(size=channels).astype(np.float32),
    )  # fmt: skip


def dense_f32(depth: int, channels: int) -> Dense:
    random = np.random.default_rng(1)
    return Dense(
        inputs=(floats(1, 7, depth),), outputs=(floats(1, 7, channels),),
        weight=random.normal(size=(channels, depth)).astype(np.float32),
        bias=random.normal(size=channels).astype(np.float32),
    )  # fmt: skip


def int8(*shape: int, scale: float) -> TensorType:
    return TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=scale, zero_point=-5))


def qconv2d(window: Window, depth: int, channels: int, *, columns: int = 3, groups: int = 1) -> QConv2d:
    random, image = np.random.default_rng(1), (1, 9, columns)
    return QConv2d(
        inputs=(int8(*image, depth, scale=0.1),), outputs=(int8(*image, channels, scale=0.9),), window=window,
        weight=random.integers(-128, 128, (channels, *window.kernel, depth // groups)).astype(np.int8),
        weight_scale=np.linspace(0.01, 0.02, channels).astype(np.float32), bias=np.arange(channels, dtype=np.int32),
        low=-128, high=127, groups=groups,
    )  # fmt: skip


def qdense(depth: int, channels: int) -> QDense:
    random = np.random.default_rng(1)
    return QDense(
        inputs=(int8(3, depth, scale=0.1),), outputs=(int8(3, channels, scale=0.9),),
        weight=random.integers(-128, 128, (channels, depth)).astype(np.int8),
        weight_scale=np.linspace(0.01, 0.02, channels).astype(np.float32), bias=np.arange(channels, dtype=np.int32),
        low=-128, high=127,
    )  # fmt: skip


CASES: dict[str, tuple[Operator, Target]] = {
    "conv2d_f32": (conv2d_f32(SAME, 3, 13), PORTABLE),
    "pointwise_f32": (conv2d_f32(Window(kernel=(1, 1)), 5, 11), PORTABLE),
    "depthwise_f32": (conv2d_f32(SAME, 9, 9, groups=9), PORTABLE),
    "dense_f32": (dense_f32(10, 13), PORTABLE),
    "qdepthwise_dsp": (qconv2d(SAME, 4, 4, groups=4), CORTEX_M4),
    "qconv2d_helium": (qconv2d(SAME, 16, 6), M55),
    "qpointwise_helium": (qconv2d(Window(kernel=(1, 1)), 160, 6), M55),
    "qdense_helium": (qdense(330, 6), M55),
    "qdepthwise_taps_helium": (qconv2d(SAME, 4, 4, columns=8, groups=4), M55),
}


def _elements(kind: TensorType) -> np.ndarray:
    return (
        elements(kind, 3) if kind.quantization else np.random.default_rng(3).normal(size=kind.shape).astype("float32")
    )


@pytest.mark.parametrize(
    "name",
    some_of(
        ["qdepthwise_dsp", "qdepthwise_taps_helium"],
        sweep=[name for name in CASES if name not in ("qdepthwise_dsp", "qdepthwise_taps_helium")],
    ),
)
def test_every_block_gives_the_bits_of_the_own_choice(name: str) -> None:
    kernel, (operator, target) = next(kernel for kernel in kernels() if kernel.name == name), CASES[name]
    assert kernel.refuses(operator, target) is None
    offered = [(), *kernel.blocks(operator, target)]
    same = [replace(operator) for _ in offered]
    targets = {one: replace(target, block=block) for one, block in zip(same, offered, strict=True)}

    def implement(one: Operator, stored: StoredRows) -> Implementation:
        return kernel.implement(one, targets[one], stored)

    inputs = [_elements(kind) for kind in operator.inputs]
    own, *others = run_every_way(same, [inputs] * len(same), implement)
    assert any(other.implementation.function != own.implementation.function for other in others), "no block differs"
    for block, found in zip(offered[1:], others, strict=True):
        for way, result in {"whole": found.whole, **found.others}.items():
            np.testing.assert_array_equal(result, own.whole, err_msg=f"{block}, {way}")


@pytest.mark.parametrize("name", ["conv2d_f32", "depthwise_f32", "qconv2d_helium"])
def test_small_code_has_one_block(name: str) -> None:
    kernel, (operator, target) = next(kernel for kernel in kernels() if kernel.name == name), CASES[name]
    assert kernel.blocks(operator, target) and not kernel.blocks(operator, replace(target, optimize="size"))
