"""Helpers for the tests of integer kernels: random quantized tensors and windows, and the real arithmetic they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Operator, Quantization, TensorType, Window
from tests.kernels.harness import HOST, run_every_way

# One example compiles several kernels at once, as the compiler's start costs more than they do.
FEW = settings(max_examples=6, deadline=None, derandomize=True)
NEAR_TIE = 1e-5

seeds = st.integers(0, 2**32 - 1)
scales = st.floats(-9.0, 0.0).map(lambda exponent: float(np.float32(2.0**exponent)))


def limits(tensor: TensorType) -> tuple[int, int]:
    info = np.iinfo(tensor.dtype)
    return int(info.min), int(info.max)


def varied(operators: st.SearchStrategy[Any], *, least: int, most: int) -> st.SearchStrategy[list[Any]]:
    """Return lists of `least` to `most` operators, at least 2, whose outputs do not all have one shape.

    Hypothesis begins with the simplest example: equal layers of a single element, whose limits leave one result. A test
    of one or two examples would compare little else.
    """
    return st.lists(operators, min_size=least, max_size=most).filter(
        lambda drawn: len({operator.output.shape for operator in drawn}) > 1
    )


@st.composite
def tensor_types(draw: st.DrawFn, shape: tuple[int, ...], scale: float | None = None) -> TensorType:
    """A quantized type, its zero point anywhere, often at the ends."""
    dtype = draw(st.sampled_from(("int8", "uint8")))
    info = np.iinfo(dtype)
    zero_point = draw(st.sampled_from((int(info.min), int(info.max))) | st.integers(int(info.min), int(info.max)))
    return TensorType(
        shape=shape,
        dtype=dtype,
        quantization=Quantization(scale=scale or draw(scales), zero_point=zero_point),
    )


@st.composite
def clamps(draw: st.DrawFn, tensor: TensorType) -> tuple[int, int]:
    """The type's own limits, or tighter ones as a fused activation leaves them."""
    low, high = limits(tensor)
    if draw(st.booleans()):
        return low, high
    first, second = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    return first, second


@st.composite
def windows(draw: st.DrawFn, *, every_tap_pads: bool = True) -> Window:
    """Any kernel, stride and dilation; padding up to the kernel's reach, or up to one less than the kernel."""
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    dilation = draw(st.sampled_from(((1, 1), (1, 1), (2, 1), (1, 2), (3, 2))))
    reach = [(k - 1) * d + 1 if every_tap_pads else k for k, d in zip(kernel, dilation, strict=True)]
    axes = (reach[0], reach[1], reach[0], reach[1])
    padding = tuple(draw(st.integers(0, size - 1)) for size in axes) if draw(st.booleans()) else (0, 0, 0, 0)
    return Window(
        kernel=kernel,
        strides=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        padding=(padding[0], padding[1], padding[2], padding[3]),
        dilation=dilation,
    )


@st.composite
def extents(draw: st.DrawFn, window: Window) -> tuple[tuple[int, int], tuple[int, int]]:
    """((input rows, columns), (output rows, columns)) that fit the window."""
    sizes: list[tuple[int, int]] = []
    for axis in (0, 1):
        reach = (window.kernel[axis] - 1) * window.dilation[axis] + 1
        pad = window.padding[axis] + window.padding[axis + 2]
        size = draw(st.integers(max(1, reach - pad), reach + 7))
        sizes.append((size, (size + pad - reach) // window.strides[axis] + 1))
    return (sizes[0][0], sizes[1][0]), (sizes[0][1], sizes[1][1])


def elements(tensor: TensorType, seed: int) -> np.ndarray:
    """Random elements, a quarter of them at the ends of the type."""
    random, (low, high) = np.random.default_rng(seed), limits(tensor)
    anywhere = random.integers(low, high + 1, tensor.shape)
    ends = random.choice([low, high], tensor.shape)
    return np.where(random.random(tensor.shape) < 0.25, ends, anywhere).astype(tensor.dtype)


def real(tensor: TensorType, array: np.ndarray) -> np.ndarray:
    """Real values that the elements stand for, float64."""
    assert tensor.quantization is not None
    return float(np.float32(tensor.quantization.scale)) * (array.astype(np.float64) - tensor.quantization.zero_point)


def assert_rounds(
    result: np.ndarray, value: np.ndarray, output: TensorType, low: int, high: int, *, near_tie: float = NEAR_TIE
) -> None:
    """Elements equal the real values, rounded halves to even and clamped; next to a tie they may be one off."""
    assert output.quantization is not None
    steps = value / float(np.float32(output.quantization.scale))
    expected = np.clip(np.rint(steps) + output.quantization.zero_point, low, high)
    off = np.abs(result.astype(np.int64) - expected)
    assert off.max(initial=0) <= 1
    assert (np.abs(np.abs(steps - np.floor(steps)) - 0.5) < near_tie)[off > 0].all()


def assert_c_equals_reference(
    operators: list[Operator],
    inputs: list[list[np.ndarray]],
    kernel: Kernel | None = None,
    flags: Sequence[str] = (),
) -> list[np.ndarray]:
    """Every operator's C code, run every way, gives the reference's bytes: returned.

    kernel: the one under test; by default the one that would be chosen. flags: further ones of the compiler.
    """
    every = run_every_way(operators, inputs, lambda operator, stored: _implementation(operator, kernel, stored), flags)
    results: list[np.ndarray] = []
    for operator, arrays, runs in zip(operators, inputs, every, strict=True):
        (expected,) = runs.implementation.reference(arrays)
        assert (expected.shape, str(expected.dtype)) == (operator.output.shape, operator.output.dtype)
        np.testing.assert_array_equal(runs.whole, expected)
        for way, found in runs.others.items():
            np.testing.assert_array_equal(found, expected, err_msg=way)
        results.append(expected)
    return results


def _implementation(operator: Operator, kernel: Kernel | None, stored: StoredRows) -> Implementation:
    if kernel is None:
        chosen = select(operator, HOST, stored)
        assert isinstance(chosen, Implementation), chosen
        return chosen
    refusal = kernel.refuses(operator, HOST)
    assert refusal is None, refusal
    return kernel.implement(operator, HOST, stored)
