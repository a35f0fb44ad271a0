"""Integer kernels of the host: portable C's bytes with AVX2, with VNNI where there is one, and in plain C."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Operator, QBinary, QConv2d, QDense, Window
from codegen_c.targets.host.kernels import qbinary_host, qconv2d_host, qdense_host, qdepthwise_host
from tests.kernels.harness import HOST, PORTABLE
from tests.kernels.quantized import FEW, assert_c_equals_reference, elements, limits, seeds
from tests.kernels.test_q_refusals import CONV, DENSE, byte_tensor
from tests.kernels.test_qbinary import binaries
from tests.kernels.test_qconv2d import convolutions as few_channels
from tests.kernels.test_qconv2d_helium import convolutions
from tests.kernels.test_qdense import dense_layers
from tests.support.sweeps import some_of

PLAIN, AVX2, NATIVE = (), ("-mavx2",), ("-march=native",)
ROUNDINGS = st.sampled_from(("onnx", "tflite"))
by_vectors = pytest.mark.parametrize(
    "flags", some_of([AVX2], sweep=[PLAIN, NATIVE]), ids=lambda flags: flags[0] if flags else "plain"
)
SIZES = st.tuples(st.integers(1, 70), st.sampled_from((1, 16, 40, 80)) | st.integers(2, 40))


@cache
def defines(flags: Sequence[str]) -> str:
    """Macros that the compiler defines by these flags."""
    command = ["gcc", "-dM", "-E", "-x", "c", "/dev/null", *flags]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def assert_portable_bytes(kernel: Kernel, operators: Sequence[Operator], seed: int, flags: Sequence[str]) -> None:
    """C of the kernel gives the bytes of the kernel for processors without vectors, whose reference is its own."""
    if flags and "__AVX2__" not in defines(NATIVE):
        pytest.skip("this machine has no AVX2")
    taken = [operator for operator in operators if kernel.refuses(operator, HOST) is None]
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in taken]
    if not taken:
        return
    results = assert_c_equals_reference(taken, inputs, kernel, flags)
    for operator, arrays, result in zip(taken, inputs, results, strict=True):
        portable = select(operator, PORTABLE)
        assert isinstance(portable, Implementation) and not portable.kernel.endswith("_host")
        np.testing.assert_array_equal(result, portable.reference(arrays)[0])


@by_vectors
@FEW
@given(st.lists(convolutions() | few_channels(), min_size=2, max_size=4), ROUNDINGS, seeds)
def test_conv2d(flags: Sequence[str], operators: list[QConv2d], rounding, seed: int) -> None:
    assert_portable_bytes(qconv2d_host.KERNEL, [replace(o, rounding=rounding) for o in operators], seed, flags)


@by_vectors
@FEW
@given(st.lists(few_channels(depthwise=True), min_size=2, max_size=4), ROUNDINGS, seeds)
def test_depthwise(flags: Sequence[str], operators: list[QConv2d], rounding, seed: int) -> None:
    assert_portable_bytes(qdepthwise_host.KERNEL, [replace(o, rounding=rounding) for o in operators], seed, flags)


@by_vectors
@FEW
@given(st.lists(dense_layers(sizes=SIZES, roundings=("onnx", "tflite")), min_size=2, max_size=5), seeds)
def test_dense(flags: Sequence[str], operators: list[QDense], seed: int) -> None:
    assert_portable_bytes(qdense_host.KERNEL, operators, seed, flags)


@by_vectors
@FEW
@given(st.lists(binaries(), min_size=4, max_size=8), seeds)
def test_sums(flags: Sequence[str], operators: list[QBinary], seed: int) -> None:
    assert_portable_bytes(qbinary_host.KERNEL, operators, seed, flags)


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


@pytest.mark.parametrize("flags", [AVX2, PLAIN, NATIVE], ids=["avx2", "plain", "native"])
def test_the_same_bytes_by_every_header(flags: Sequence[str]) -> None:
    """Ties, factors that scale sums up first, channels beyond four units, many elements of a sum: all roundings."""
    layers = [pointwise(24, 0.125), pointwise(70, 0.75), pointwise(16, 2.0**-8, "tflite"), pointwise(40, 0.013)]
    deep = replace(
        layers[0],
        weight=np.tile(layers[0].weight, (1, 3, 3, 1)),
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1), dilation=(1, 1)),
        weight_scale=np.exp2(np.arange(24) - 20.0).astype(np.float32),
    )
    assert_portable_bytes(qconv2d_host.KERNEL, [*layers, deep], 5, flags)
    single = replace(
        deep, inputs=(byte_tensor(1, 6, 7, 20),), outputs=(byte_tensor(1, 6, 7, 20, scale=9.0),), groups=20,
        weight=deep.weight[:20, :, :, :1], weight_scale=deep.weight_scale[:20] * 2**8, bias=deep.bias[:20],
    )  # fmt: skip
    assert_portable_bytes(qdepthwise_host.KERNEL, [single], 5, flags)
    operands = (byte_tensor(1, 3, 7, 5, scale=0.3), byte_tensor(1, 3, 7, 5, dtype="uint8", scale=0.011, zero_point=9))
    add = QBinary(
        inputs=operands, outputs=(byte_tensor(1, 3, 7, 5, scale=0.2),), function="subtract", low=-128, high=127
    )
    assert_portable_bytes(qbinary_host.KERNEL, [add], 5, flags)


def test_ends_saturate() -> None:
    """Sums far beyond 16 bits are limited, not cut off."""
    operator = replace(pointwise(16, 0.75), weight=np.full((16, 1, 1, 8), 127, np.int8))
    low, high = limits(operator.outputs[0])
    image = np.where(np.arange(160).reshape(1, 4, 5, 8) // 8 % 2, 127, -128).astype(np.int8)
    (result,) = assert_c_equals_reference([operator], [[image]], qconv2d_host.KERNEL)
    assert set(np.unique(result)) == {low, high}


LARGE_WINDOW = Window(kernel=(8, 8), padding=(4, 4, 3, 3))


@pytest.mark.parametrize(
    ("operator", "kernel", "reason"),
    [
        (replace(pointwise(16, 0.5), groups=2, weight=np.ones((16, 1, 1, 4), np.int8)), qconv2d_host, "groups"),
        (pointwise(16, 0.5, "tflite"), qconv2d_host, "scaled up"),
        (replace(DENSE, weight_scale=np.full(2, 16.0, np.float32), rounding="tflite"), qdense_host, "scaled up"),
        (
            replace(CONV, groups=2, weight=np.ones((2, 8, 8, 1), np.int8), window=LARGE_WINDOW),
            qdepthwise_host,
            "49 taps",
        ),
    ],
    ids=["groups", "large factors", "large factors of a dense layer", "taps"],
)
def test_refusals(operator: Operator, kernel, reason: str) -> None:
    """Others are left to portable C, which takes them."""
    refusal = kernel.KERNEL.refuses(operator, HOST)
    assert refusal is not None and reason in refusal.reason
    chosen = select(operator, HOST)
    assert isinstance(chosen, Implementation) and not chosen.kernel.endswith("_host")


def sum_of(scale: float, other: float, **changes: object) -> QBinary:
    operands = (byte_tensor(1, 2, 2, 2, scale=scale), byte_tensor(1, 2, 2, 2, scale=other))
    plain = QBinary(inputs=operands, outputs=(byte_tensor(1, 2, 2, 2, scale=1.0),), function="add", low=-128, high=127)
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (sum_of(0.3, 0.2, function="multiply"), "sum or a difference"),
        (sum_of(0.3, 0.2, rounding="tflite"), "rounded once"),
        (sum_of(0.5, 0.25), "halfway"),
        (sum_of(2.0**-20, 2.0**-21), "2^-15"),
    ],
    ids=["products", "two roundings", "ties", "small factors"],
)
def test_refusals_of_sums(operator: QBinary, reason: str) -> None:
    refusal = qbinary_host.KERNEL.refuses(operator, HOST)
    assert refusal is not None and reason in refusal.reason


def test_processors_without_vectors_have_portable_c() -> None:
    """A platform says by `simd` which of them it means; the bytes are the same."""
    host, portable = select(pointwise(16, 0.013), HOST), select(pointwise(16, 0.013), PORTABLE)
    assert isinstance(host, Implementation) and isinstance(portable, Implementation)
    assert (host.kernel, portable.kernel) == ("qconv2d_host", "qconv2d_i8")
