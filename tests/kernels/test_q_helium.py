"""Helium dense layers, pools and binaries on the host, and what all Helium kernels share."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.relax import op

from codegen_c.composites.lower_operator import Lowered, lower_operator
from codegen_c.kernels.contract import Implementation, StoredRows
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.requantize import Requantize
from codegen_c.operators.kinds import Extreme, Operator, QBinary, QDense, QPool2d
from codegen_c.program.share_functions import has_constants_of
from codegen_c.targets.helium.kernels import convolution as convolution_helium
from codegen_c.targets.helium.kernels import dense as dense_helium
from codegen_c.targets.helium.kernels import depthwise as depthwise_helium
from codegen_c.targets.helium.kernels import elementwise as elementwise_helium
from codegen_c.targets.helium.kernels import pooling as pooling_helium
from codegen_c.targets.helium.kernels.convolution import rescale
from codegen_c.targets.helium.kernels.product import Rescale
from tests.kernels.harness import HOST, WARNINGS, registered, run_every_way, smallest_rings, source_text
from tests.kernels.helium import M55, M55_SIZE, assert_same_bytes, implementation, takes
from tests.kernels.helium_samples import SAMPLES, tensor
from tests.kernels.quantized import FEW, elements, seeds
from tests.kernels.test_qbinary import binaries
from tests.kernels.test_qbroadcast import broadcasts
from tests.kernels.test_qconv2d_helium import convolutions
from tests.kernels.test_qdense import dense_layers
from tests.kernels.test_qdepthwise_helium import depthwise
from tests.kernels.test_qdivide import quotients
from tests.kernels.test_qpool2d import pools
from tests.kernels.tir_cases import Case
from tests.support.runtime_headers import INCLUDE_FLAGS
from tests.support.sweeps import some_of

COMPILER = "arm-none-eabi-gcc"
FEWER = settings(FEW, max_examples=3)


@FEW
@given(st.lists(dense_layers().filter(takes(dense_helium.QDENSE)), min_size=1, max_size=6), seeds)
def test_dense(operators: list[QDense], seed: int) -> None:
    assert_same_bytes(dense_helium.QDENSE, operators, seed)


@FEWER
@given(st.lists(pools().filter(takes(pooling_helium.KERNEL)), min_size=1, max_size=6), seeds)
def test_pools(operators: list[QPool2d], seed: int) -> None:
    assert_same_bytes(pooling_helium.KERNEL, operators, seed)


@FEW
@given(st.lists(binaries().filter(takes(elementwise_helium.QBINARY)), min_size=1, max_size=6), seeds)
def test_binaries(operators: list[QBinary], seed: int) -> None:
    assert_same_bytes(elementwise_helium.QBINARY, operators, seed)


@FEWER
@given(
    st.lists(broadcasts().filter(takes(elementwise_helium.QBROADCAST)), min_size=3, max_size=6),
    st.lists(broadcasts("tflite").filter(takes(elementwise_helium.QBROADCAST)), min_size=2, max_size=3),
    st.lists(quotients().filter(takes(elementwise_helium.QDIVIDE)), min_size=2, max_size=4),
    seeds,
)
def test_broadcasts_and_quotients(once: list[QBinary], twice: list[QBinary], quotients, seed: int) -> None:
    assert_same_bytes(elementwise_helium.QBROADCAST, [*once, *twice], seed)
    assert_same_bytes(elementwise_helium.QDIVIDE, quotients, seed)


def two_roundings(operator: Operator) -> Operator:
    return replace(operator, rounding="tflite")


@FEWER
@given(
    st.lists(convolutions().map(two_roundings).filter(takes(convolution_helium.QCONV2D)), min_size=1, max_size=4),
    st.lists(depthwise().map(two_roundings).filter(takes(depthwise_helium.KERNEL)), min_size=1, max_size=4),
    st.lists(dense_layers().map(two_roundings).filter(takes(dense_helium.QDENSE)), min_size=1, max_size=4),
    st.lists(binaries().map(two_roundings).filter(takes(elementwise_helium.QBINARY)), min_size=1, max_size=4),
    seeds,
)
def test_two_roundings(convs, depthwise_convs, dense, sums, seed: int) -> None:
    """TensorFlow Lite's arithmetic, where a kernel takes it."""
    assert_same_bytes(convolution_helium.QCONV2D, convs, seed)
    assert_same_bytes(depthwise_helium.KERNEL, depthwise_convs, seed)
    assert_same_bytes(dense_helium.QDENSE, dense, seed)
    assert_same_bytes(elementwise_helium.QBINARY, sums, seed)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_extremes(dtype: str) -> None:
    """Max and Min of whole tensors and of rows; the second operand has one element, a row, or one for each channel."""
    shape = (1, 5, 3, 20)
    operators = [
        Extreme(
            inputs=tuple(tensor(*extents, dtype=dtype) for extents in pair),
            outputs=(tensor(*shape, dtype=dtype),),
            is_larger=is_larger,
        )
        for pair in ((shape, shape), (shape, (1, 1, 1, 20)), ((1, 1, 3, 1), shape), (shape, (1, 5, 1, 1)), (shape, ()))
        for is_larger in (True, False)
    ]
    inputs = [[elements(t, 3 + i) for i, t in enumerate(operator.inputs)] for operator in operators]
    made = elementwise_helium.EXTREME
    every = run_every_way(operators, inputs, lambda operator, stored: implementation(made, operator, stored))
    for operator, (a, b), runs in zip(operators, inputs, every, strict=True):
        for found in (runs.whole, *runs.others.values()):
            np.testing.assert_array_equal(found, (np.maximum if operator.is_larger else np.minimum)(a, b))


def test_extremes_of_bytes_are_one_operator() -> None:
    function = Case(
        name="larger", build=op.maximum, inputs=(((1, 4, 4, 16), "int8"), ((1, 1, 1, 16), "int8"))
    ).function()
    for target, kernel in ((M55, "extreme_helium"), (HOST, "generic")):
        found = lower_operator(function, target)
        assert isinstance(found, Lowered) and found.implementation is not None
        assert found.implementation.kernel == kernel


def test_extremes_of_words_are_refused() -> None:
    words = tensor(4, 8, dtype="int16")
    refusal = elementwise_helium.EXTREME.refuses(Extreme(inputs=(words, words), outputs=(words,), is_larger=True), M55)
    assert refusal is not None and refusal.reason == "elements must be int8 or uint8"


@pytest.mark.parametrize("name", some_of(sorted(SAMPLES)[::2], sweep=sorted(SAMPLES)[1::2]))
def test_samples(name: str) -> None:
    """The code for speed is right, and so is the code for size where it differs."""
    kernel, operator = SAMPLES[name]
    assert_same_bytes(kernel, [operator], 3, M55)
    speed, size = (implementation(kernel, operator, StoredRows(), target) for target in (M55, M55_SIZE))
    if size.function != speed.function or not has_constants_of(size, speed):
        assert_same_bytes(kernel, [operator], 3, M55_SIZE)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_is_taken_by_the_processor_that_has_it_and_by_no_other(name: str) -> None:
    kernel, operator = SAMPLES[name]
    assert registered(kernel.name).refuses(operator, M55) is None
    refusal = registered(kernel.name).refuses(operator, HOST)
    assert refusal is not None and refusal.reason == "the processor must have Helium"


def test_each_kernel_is_chosen_for_some_layer() -> None:
    """Layers that several kernels take are those of the cheapest, for speed or for size."""
    chosen = {
        getattr(select(operator, target), "kernel", "")
        for _, operator in SAMPLES.values()
        for target in (M55, M55_SIZE)
    }
    assert {kernel.name for kernel, _ in SAMPLES.values()} <= chosen


@pytest.mark.parametrize(("name", "has_ties"), [("conv", False), ("conv_ties", True)])
def test_ties_cost_only_where_they_can_happen(name: str, has_ties: bool) -> None:
    operator = SAMPLES[name][1]
    assert rescale(operator).halves_even == has_ties


def test_sums_that_leave_no_room_are_refused() -> None:
    """A factor of 1.2 is scaled up by 2^3, which a bias of 2^29 does not survive."""
    kernel, operator = SAMPLES["conv_left_shift"]
    large = replace(operator, bias=np.full_like(operator.bias, 1 << 29), weight_scale=operator.weight_scale * 0 + 0.006)
    assert qconv2d.QCONV2D.refuses(large, M55) is None
    refusal = kernel.refuses(large, M55)
    assert refusal is not None and "small enough to be scaled up" in refusal.reason


@pytest.mark.parametrize("factor", [0.24, 0.25, 0.7, 1.0, 1.9, 2.0**-31, 3e-12, 0.0])
def test_factors_reach_beyond_the_high_word(factor: float) -> None:
    """multiplier / 2^(32 - shift - left_shift) is the factor, and what cannot reach a half is 0."""
    output: Operator = SAMPLES["conv"][1]
    requantize = Requantize.of(np.array([factor]), output=output.output, low=-128, high=127)
    bound = np.array([1 << 20])
    finish = Rescale.of(requantize, -bound, bound)
    multiplier, shift = (int(array[0]) for array in finish.factors())
    assert -31 <= shift <= -1 and 0 <= multiplier < 1 << 31
    exact = multiplier * 2.0 ** (shift - 32 + finish.left_shift)
    assert exact == pytest.approx(factor, rel=2**-30) or (exact == 0 and factor * (1 << 31) < 0.5)


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not installed")
@pytest.mark.parametrize("optimize", some_of(["-O0", "-O2"], sweep=["-Og", "-Os", "-O3"]))
def test_compiles_for_the_board_without_warnings(tmp_path: Path, optimize: str) -> None:
    """Every sample, in one file, with all rows stored and with as few as it needs."""
    found: list[Implementation] = []
    for kernel, operator in SAMPLES.values():
        plain = implementation(kernel, operator, StoredRows())
        found += [plain, *([implementation(kernel, operator, smallest_rings(plain))] if plain.spatial else [])]
    source = tmp_path / "kernels.c"
    source.write_text(source_text(found))
    flags = ["-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "-std=c11", optimize, *WARNINGS]
    command = [COMPILER, *flags, *INCLUDE_FLAGS, "-c", str(source), "-o", str(tmp_path / "kernels.o")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
