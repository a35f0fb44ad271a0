"""Kernels of RISC-V's vectors, on RV32 and RV64: the instructions themselves against the numpy references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.kernels.contract import Kernel, StoredRows
from codegen_c.operators.kinds import Operator, QConv2d, QPool2d, Window
from codegen_c.targets.riscv_vector.kernels import depthwise as depthwise_rvv
from codegen_c.targets.riscv_vector.kernels import pooling as pooling_rvv
from codegen_c.targets.riscv_vector.kernels import products as products_rvv
from codegen_c.targets.riscv_vector.kernels.products import GroupedRescale
from tests.boards.on_board import assert_on_board, check_random_operators, set_vector_bits
from tests.kernels.on_target import taken_on
from tests.kernels.test_q_rvv import STRATEGIES, ZVE32X
from tests.kernels.test_qconv2d_dsp import halfway_pointwise, image, pointwise
from tests.support.packages import Packages
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.platform import Platform

pytestmark = [pytest.mark.board, pytest.mark.riscv_board]

RV32, RV64 = "riscv32_zve32x", pytest.param("riscv64_v", marks=pytest.mark.process_board)


@pytest.fixture(params=[RV32, RV64])
def platform(request: pytest.FixtureRequest) -> Platform:
    """A platform of each width of addresses; the kernels are the same."""
    return Platform.load(request.param)


@pytest.mark.parametrize("platform", some_of([RV32], sweep=[RV64]), indirect=True)
@pytest.mark.parametrize("kernel", STRATEGIES, ids=lambda kernel: kernel.name)
def test_bytes_are_those_of_the_reference(platform: Platform, kernel: Kernel) -> None:
    """One firmware of sixteen random operators, of either type and rounding."""
    check_random_operators(platform, ZVE32X, kernel, taken_on(ZVE32X, kernel, STRATEGIES[kernel]))


EACH_FORM = [(8, 7), (16, 12), (24, 8), (32, 32), (40, 33), (100, 20)]
"""Channels and depth of convolutions: pixels by sixes, fives and twos, depths of whole words and others."""


@pytest.fixture(params=some_of([128, 512], sweep=[256]))
def vector_bits(platform: Platform, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Vectors of another length in QEMU; the firmware is the same."""
    set_vector_bits(monkeypatch, platform, request.param)
    return int(request.param)


def test_products_of_pairs_of_taps(platform: Platform, vector_bits: int) -> None:
    """Each form, with either rounding; weights of -127 for both taps; 7 pixels, so that some groups are not full."""
    operators: list[Operator] = []
    for channels, depth in EACH_FORM:
        weights = np.random.default_rng(channels).integers(-127, 128, (channels, depth))
        weights[0] = -127
        for rounding in ("onnx", "tflite"):
            operators.append(replace(pointwise(weights), rounding=rounding))
            operators.append(replace(pointwise(weights, dtype="uint8"), rounding=rounding))
    calls = [products_rvv.QCONV2D.implement(one, ZVE32X, StoredRows()) for one in operators]
    text = "".join(call.function.helpers for call in calls)
    assert {f".pixels = {pixels}" in text for pixels in (2, 5, 6)} == {True}
    assert ".has_pairs = true" in text and ".has_pairs = false" in text
    assert_on_board(platform, calls, operators, vector_bits)


def test_two_weights_of_minus_128_are_multiplied_one_by_one(platform: Platform) -> None:
    """Their products with -128 would not fit into 16 bits together."""
    weights = np.full((16, 8), -128)
    apart = np.where(np.arange(8) % 2 == 0, -128, -127) * np.ones((16, 1), np.int64)
    for weight, in_pairs in ((weights, "false"), (apart, "true")):
        operator = pointwise(weight)
        call = products_rvv.QCONV2D.implement(operator, ZVE32X, StoredRows())
        assert f".has_pairs = {in_pairs}" in call.function.helpers
        assert_on_board(platform, [call], [operator])


def test_depthwise_convolutions_of_few_channels(platform: Platform, vector_bits: int) -> None:
    """Adjacent pixels together, if the stride is one; borders and rows by single pixels."""
    operators: list[Operator] = []
    for channels, stride in ((1, 1), (8, 1), (8, 2), (10, 1), (16, 1), (32, 1), (70, 1)):
        size = (9, 11) if stride == 1 else (5, 6)
        window = Window(kernel=(3, 3), strides=(stride, stride), padding=(1, 1, 1, 1))
        operators.append(
            QConv2d(
                inputs=(image(1, 9, 11, channels),), outputs=(image(1, *size, channels, scale=60.0),),
                weight=np.random.default_rng(channels).integers(-127, 128, (channels, 3, 3, 1)).astype(np.int8),
                weight_scale=np.linspace(0.013, 0.02, channels).astype(np.float32),
                bias=np.arange(channels, dtype=np.int32) * 100, window=window, groups=channels, low=-128, high=127,
                rounding="tflite" if channels % 16 == 0 else "onnx",
            )
        )  # fmt: skip
    calls = [depthwise_rvv.KERNEL.implement(one, ZVE32X, StoredRows()) for one in operators]
    text = "".join(call.function.helpers for call in calls)
    assert all(f".repeats = {repeats}" in text for repeats in (1, 2, 3, 4, 9))
    assert_on_board(platform, calls, operators, vector_bits)


def test_pools_of_many_channels(platform: Platform) -> None:
    """More than a group of registers holds, of either type; maxima with padding and limits."""
    operators: list[Operator] = []
    for dtype in ("int8", "uint8"):
        source, output = image(1, 5, 6, 150, dtype=dtype), image(1, 3, 3, 150, dtype=dtype)
        window = Window(kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 0), dilation=(1, 1))
        top = 60 if dtype == "int8" else 190
        operators.append(
            QPool2d(inputs=(source,), outputs=(output,), method="max", window=window, low=top - 170, high=top)
        )
        whole = Window(kernel=(5, 6), strides=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1))
        mean = image(1, 1, 1, 150, dtype=dtype, scale=0.013)
        low = -128 if dtype == "int8" else 0
        operators.append(
            QPool2d(inputs=(source,), outputs=(mean,), method="average", window=whole, low=low, high=low + 255)
        )
    assert_on_board(platform, [pooling_rvv.KERNEL.implement(one, ZVE32X, StoredRows()) for one in operators], operators)


def test_halves_go_to_even(platform: Platform) -> None:
    operators = halfway_pointwise()
    for operator in operators:
        assert GroupedRescale.of_convolution(operator).halves_even
    assert_on_board(
        platform, [products_rvv.QCONV2D.implement(one, ZVE32X, StoredRows()) for one in operators], operators
    )


@pytest.mark.parametrize("model", some_of(["kws_int8"], sweep=["resnet_int8"]))
def test_networks_take_few_instructions(packages: Packages, model: str) -> None:
    """At most 0.40 for each multiply-add, and 1.25 times as many as modelled; output verified."""
    report = packages.shared(model, "riscv32_zve32x", BuildOptions(verify=("host", "qemu"))).report
    verified = report["verify"]["qemu"]
    assert verified["passed"]
    assert verified["instructions"] < 0.40 * report["macs"]
    kernels = {step["kernel"] for step in report["steps"]}
    assert {"qconv2d_rvv", "qdense_rvv"} <= kernels
    modelled = sum(step["modelled_instructions"] for step in report["steps"])
    assert modelled / 1.25 < verified["instructions"] < 1.25 * modelled
