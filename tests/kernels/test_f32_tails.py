"""Channels that fill no vector: whole vectors with lanes that hold none give the bits of single floats."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from codegen_c.kernels.contract import Kernel, StoredRows, Target
from codegen_c.kernels.convolution import conv_f32, depthwise_f32, transposed
from codegen_c.kernels.dense import dense_f32
from codegen_c.kernels.shared.blocking import channel_ranges, native_blocking
from codegen_c.operators.kinds import Conv2d, Conv2dTranspose, Dense, Window
from codegen_c.operators.scalar import Operand
from codegen_c.targets.registry import runtime_text, target_of
from tests.kernels.float32 import assert_close, assert_same_bits, elements, floats, number, program, value
from tests.kernels.harness import HOST, compile_kernels, run_kernel
from tests.kernels.helium import M55
from tests.support.sweeps import some_of

KINDS = ("one vector", "dense", "pointwise", "conv", "depthwise", "transposed")
VECTORS = ("-mavx2", "-mfma")
Layer = Dense | Conv2d | Conv2dTranspose


def layer(kind: str, channels: int, *, narrow: bool = False) -> tuple[Layer, Kernel]:
    """A layer whose end reads a residual and a constant of each channel. narrow: weights that float16 holds."""
    random = np.random.default_rng(channels)
    residual, channel = Operand(kind="input", index=1), Operand(kind="channel", index=0)
    scale = random.normal(size=channels).astype(np.float32)
    finish = program(
        ("multiply", value(), channel), ("add", value(1), residual), ("maximum", value(2), number(0.0)),
        channels=[scale],
    )  # fmt: skip
    bias = random.normal(size=channels).astype(np.float32)
    kernel = {"dense": (), "one vector": (), "pointwise": (1, 1)}.get(kind, (3, 3))
    depth = 1 if kind == "depthwise" else 6
    weight = random.normal(size=(channels, *kernel, depth)).astype(np.float16 if narrow else np.float32)
    common = {"weight": weight.astype(np.float32), "bias": bias, "finish": finish}
    if not kernel:
        rows = 1 if kind == "one vector" else 7
        output = floats(rows, channels)
        return Dense(inputs=(floats(rows, depth), output), outputs=(output,), **common), dense_f32.KERNEL
    output = floats(1, 4, 9, channels)
    source = floats(1, 4, 9, channels if kind == "depthwise" else depth)
    window = Window(kernel=kernel, padding=(1, 1, 1, 1) if kernel == (3, 3) else (0, 0, 0, 0))
    ports = {"inputs": (source, output), "outputs": (output,), "window": window, **common}
    if kind == "transposed":
        return Conv2dTranspose(**ports), transposed.CONV2D_TRANSPOSE_F32
    found = {"conv": conv_f32.CONV2D_F32, "pointwise": conv_f32.POINTWISE_F32, "depthwise": depthwise_f32.KERNEL}[kind]
    return Conv2d(groups=channels if kind == "depthwise" else 1, **ports), found


def outputs(layers: Sequence[tuple[Layer, Kernel]], target: Target, flags: tuple[str, ...]) -> list[np.ndarray]:
    """Results of each layer; close to its reference, and of headers that the kernel names."""
    made = [kernel.implement(operator, target, StoredRows()) for operator, kernel in layers]
    found: list[np.ndarray] = []
    for (operator, _), chosen, entry in zip(layers, made, compile_kernels(made, flags), strict=True):
        inputs = [elements(tensor, 5 + i) for i, tensor in enumerate(operator.inputs)]
        found.append(run_kernel(operator, chosen, inputs, entry=entry)[0])
        assert_close(found[-1], chosen.reference(inputs)[0])
        read = {
            name
            for header in chosen.function.includes
            for name in re.findall(r'#include "(\w+\.h)"', runtime_text(header, target.instruction_set))
        }
        assert read <= {*chosen.function.includes, "tvm_ext_kernels.h"}, "the package holds what its headers read"
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_with_idle_lanes_give_the_bits_of_single_floats(kind: str) -> None:
    assert_alike(kind, HOST, (3, 5, 10, 30), VECTORS)


@pytest.mark.parametrize("kind", some_of(["one vector", "conv"], sweep=["dense", "pointwise", "depthwise"]))
def test_so_they_do_in_plain_c_with_four_lanes(kind: str) -> None:
    assert_alike(kind, M55, (3, 7), ())


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_so_they_do_by_all_numbers_of_lanes(kind: str) -> None:
    assert_alike(kind, HOST, (2, 7, 9, 12, 13, 14, 15, 17), VECTORS)
    assert_alike(kind, M55, (2, 5, 6, 9, 10, 11), ())


def assert_alike(kind: str, target: Target, numbers: Sequence[int], flags: tuple[str, ...]) -> None:
    layers = [layer(kind, channels) for channels in numbers]
    layers += [layer(kind, 3, narrow=True)]
    single = target_of(target.processor, optimize="size")
    for masked, alone in zip(outputs(layers, target, flags), outputs(layers, single, flags), strict=True):
        assert_same_bits(masked, alone)


@pytest.mark.parametrize("channels", range(2, 40))
def test_ranges_cover_each_channel_once_and_one_vector_alone_has_idle_lanes(channels: int) -> None:
    segments = channel_ranges(channels, native_blocking(HOST))
    assert [s.begin for s in segments] == [0, *(s.end for s in segments[:-1])] and segments[-1].end == channels
    idle = [s.num_blocks * s.width - (s.end - s.begin) for s in segments]
    assert not any(idle[:-1]) and 0 <= idle[-1] < 7
    assert (segments[-1].lanes.count == 1) == (channels % 8 == 1), "single floats for a single channel"
