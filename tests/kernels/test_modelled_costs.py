"""Modelled instructions of loops that are counted: windows inside of images, and copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.convolution import depthwise_f32
from codegen_c.kernels.convolution.conv_f32 import WindowCost, best_pixels
from codegen_c.kernels.shared.copies import CALL_INSTRUCTIONS, copy_instructions, fill_instructions
from codegen_c.kernels.shared.window import taps_inside
from codegen_c.operators.kinds import Conv2d, TensorType, Window
from codegen_c.operators.scalar import ScalarProgram
from codegen_c.targets.helium.kernels import pooling as pooling_helium
from codegen_c.targets.registry import target_of
from tests.kernels.helium_samples import pool, tensor
from tvm_ext.core.platform import Platform

SAME = Window(kernel=(7, 7), strides=(1, 1), dilation=(1, 1), padding=(3, 3, 3, 3))


def depthwise(size: int) -> Conv2d:
    image = TensorType(shape=(1, size, size, 8), dtype="float32")
    return Conv2d(
        inputs=(image,), outputs=(image,), weight=np.ones((8, 7, 7, 1), np.float32), bias=np.zeros(8, np.float32),
        window=SAME, groups=8, finish=ScalarProgram(),
    )  # fmt: skip


POOLS = {
    "max 2x2, 16": ("max", 8, 16, Window(kernel=(2, 2), strides=(2, 2)), 377),
    "max 2x2, 64": ("max", 8, 64, Window(kernel=(2, 2), strides=(2, 2)), 1_013),
    "max 3x3, 12": ("max", 9, 12, Window(kernel=(3, 3), strides=(2, 2)), 674),
    "max 8x8, 16": ("max", 8, 16, Window(kernel=(8, 8)), 315),
    "max 3x3 across edges, 16": ("max", 8, 16, Window(kernel=(3, 3), padding=(1, 1, 1, 1)), 5_423),
    "max 5x5 across edges, 16": ("max", 8, 16, Window(kernel=(5, 5), padding=(2, 2, 2, 2)), 10_645),
    "average 3x3, 16": ("average", 9, 16, Window(kernel=(3, 3), strides=(2, 2)), 1_485),
    "average 8x8, 32": ("average", 8, 32, Window(kernel=(8, 8)), 1_338),
    "average 5x5, 40": ("average", 15, 40, Window(kernel=(5, 5), strides=(5, 5)), 9_176),
    "average 3x3 across edges, 12": ("average", 8, 12, Window(kernel=(3, 3), padding=(1, 1, 1, 1)), 13_720),
    "average 5x5 across edges, 16": ("average", 8, 16, Window(kernel=(5, 5), padding=(2, 2, 2, 2)), 18_129),
}
"""Method, rows and columns, channels, window, and instructions executed on a Cortex-M55 in QEMU, by GCC 12."""


def pooled(method: str, size: int, channels: int, window: Window, dtype: str = "int8") -> float:
    outputs = (size + 2 * window.padding[0] - window.kernel[0]) // window.strides[0] + 1
    shapes = ((1, extent, extent, channels) for extent in (size, outputs))
    source, output = (tensor(*shape, scale=0.1, dtype=dtype) for shape in shapes)
    target = target_of(Platform.load("cortex_m55").processor)
    return pooling_helium.KERNEL.implement(pool(source, output, window, method), target, StoredRows()).instructions


@pytest.mark.parametrize("name", POOLS)
def test_pools_in_vectors_cost_what_they_execute(name: str) -> None:
    *layer, executed = POOLS[name]
    assert 1 / 1.3 < pooled(*layer) / executed < 1.3


def test_taps_beyond_the_edges_of_a_pool_cost_nothing() -> None:
    window = Window(kernel=(5, 5), padding=(2, 2, 2, 2))
    small, large = (pooled("max", size, 16, window) / size**2 for size in (3, 40))
    assert small < 0.6 * large  # 9 of 25 taps
    assert pooled("max", 8, 16, window, "uint8") > pooled("max", 8, 16, window)


def test_taps_inside_are_counted_at_both_ends() -> None:
    assert taps_inside(SAME, 0, 3, 3).tolist() == [3, 3, 3]
    assert taps_inside(SAME, 0, 20, 20)[[0, 3, 10, 19]].tolist() == [4, 7, 7, 4]
    strided = replace(SAME, strides=(2, 2), dilation=(2, 2))
    assert taps_inside(strided, 1, 9, 3).tolist() == [4, 4, 4]


def test_windows_cost_what_of_them_lies_inside() -> None:
    target = target_of(Platform.load("cortex_m4").processor)
    small, large = (depthwise_f32.KERNEL.implement(depthwise(size), target, StoredRows()) for size in (3, 40))
    assert small.instructions / 9 < 0.75 * large.instructions / 1600  # 9 of 49 taps, though not in groups


def test_groups_of_pixels_are_as_large_as_costs_least() -> None:
    shared = {1: WindowCost(whole=10, row=0, tap=2), 2: WindowCost(whole=10, row=10), 3: WindowCost(whole=10, row=30)}
    assert best_pixels(8, 3, SAME, shared.__getitem__) == 2
    assert best_pixels(1, 3, SAME, shared.__getitem__) == 1


def test_copies_take_four_words_at_once_or_a_call() -> None:
    assert [copy_instructions(count) for count in (1, 4, 8, 16, 64)] == [2, 2, 2, 2, 8]
    assert copy_instructions(96) == CALL_INSTRUCTIONS + 48
    assert fill_instructions(16) < CALL_INSTRUCTIONS < fill_instructions(400)
