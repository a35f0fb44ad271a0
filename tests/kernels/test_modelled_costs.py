"""Modelled instructions of loops that are counted: windows inside of images, and copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.convolution import depthwise_f32
from codegen_c.kernels.convolution.window_cost import WindowCost, best_pixels
from codegen_c.kernels.shared.copies import CALL_INSTRUCTIONS, copy_instructions, fill_instructions
from codegen_c.kernels.shared.window import taps_inside
from codegen_c.operators.kinds import Conv2d, TensorType, Window
from codegen_c.operators.scalar import ScalarProgram
from codegen_c.targets.registry import target_of
from tvm_ext.core.platform import Platform

SAME = Window(kernel=(7, 7), strides=(1, 1), dilation=(1, 1), padding=(3, 3, 3, 3))


def depthwise(size: int) -> Conv2d:
    image = TensorType(shape=(1, size, size, 8), dtype="float32")
    return Conv2d(
        inputs=(image,), outputs=(image,), weight=np.ones((8, 7, 7, 1), np.float32), bias=np.zeros(8, np.float32),
        window=SAME, groups=8, finish=ScalarProgram(),
    )  # fmt: skip


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
