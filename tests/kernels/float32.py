"""Helpers for the tests of float kernels: finish programs, random elements, and the ways one kernel is run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows
from codegen_c.operators.kinds import Operator, TensorType
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from tests.kernels.harness import HOST, run_every_way, run_kernel

# One example compiles several kernels at once, as the compiler's start costs more than they do.
FEW = settings(max_examples=4, deadline=None, derandomize=True)
TOLERANCE = 1e-5

seeds = st.integers(0, 2**32 - 1)


def floats(*shape: int) -> TensorType:
    return TensorType(shape=shape, dtype="float32")


def value(index: int = 0) -> Operand:
    return Operand(kind="value", index=index)


def number(x: float) -> Operand:
    return Operand(kind="number", number=x)


def elements(tensor: TensorType, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=tensor.shape).astype(np.float32)


def program(*instructions: tuple[str, *tuple[Operand, ...]], channels: Sequence[np.ndarray] = ()) -> ScalarProgram:
    """A scalar program from (function, operands ...)."""
    steps = tuple(Instruction(function=name, operands=tuple(operands)) for name, *operands in instructions)
    return ScalarProgram(instructions=steps, channel_constants=tuple(channels))


@st.composite
def finishes(draw: st.DrawFn, num_channels: int, *, first: Operand | None = None) -> tuple[ScalarProgram, int]:
    """Up to four well-conditioned functions of the element, and how many residuals they read.

    first: what stands for the element where the kernel accumulates none.
    """
    random = np.random.default_rng(draw(seeds))
    instructions: list[Instruction] = []
    channels: list[np.ndarray] = []
    residuals = 0

    def emit(name: str, *operands: Operand) -> None:
        instructions.append(Instruction(function=name, operands=operands))

    if first is not None:
        emit("add", first, number(0.25))
    for kind in draw(
        st.lists(st.sampled_from(["relu", "relu6", "scale", "channel", "residual", "silu", "tanh"]), max_size=3)
    ):
        last = value(len(instructions))
        if kind == "relu":
            emit("maximum", last, number(0.0))
        elif kind == "relu6":
            emit("maximum", last, number(-1.5))
            emit("minimum", value(len(instructions)), number(6.0))
        elif kind == "scale":
            emit("multiply", last, number(-0.75))
        elif kind == "channel":
            channels.append((random.normal(size=num_channels) + 2).astype(np.float32))
            emit("multiply", last, Operand(kind="channel", index=len(channels) - 1))
        elif kind == "residual":
            residuals += 1
            emit("add", last, Operand(kind="input", index=residuals))
        elif kind == "silu":
            emit("sigmoid", last)
            emit("multiply", last, value(len(instructions)))
        else:
            emit("tanh", last)
    return ScalarProgram(instructions=tuple(instructions), channel_constants=tuple(channels)), residuals


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    """Within TOLERANCE of the largest expected magnitude."""
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert np.abs(found - expected).max(initial=0) <= TOLERANCE * np.abs(expected).max(initial=0)


def assert_kernel(operators: Sequence[Operator], inputs: Sequence[list[np.ndarray]], kernel: Kernel) -> None:
    """Every operator's C: close to the reference whole, and the same bits every other way."""
    every = run_every_way(operators, inputs, lambda operator, stored: _implementation(operator, kernel, stored))
    for arrays, runs in zip(inputs, every, strict=True):
        assert_close(runs.whole, runs.implementation.reference(arrays)[0])
        for found in runs.others.values():
            assert_same_bits(found, runs.whole)


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def run_once(operator: Operator, kernel: Kernel, arrays: list[np.ndarray]) -> np.ndarray:
    """The output of one operator, compiled by itself."""
    return run_kernel(operator, _implementation(operator, kernel, StoredRows()), arrays)[0]


def _implementation(operator: Operator, kernel: Kernel, stored: StoredRows) -> Implementation:
    refusal = kernel.refuses(operator, HOST)
    assert refusal is None, refusal
    return kernel.implement(operator, HOST, stored)
