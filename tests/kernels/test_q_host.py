"""Integer kernels of the host: portable C's bytes with AVX2, with VNNI where there is one, and in plain C."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kept, Kernel, StoredRows
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Operator, QBinary, QConv2d, QDense, Quantization
from codegen_c.program.share_functions import ring_numbers
from codegen_c.targets.host.kernels import depthwise as depthwise_host
from codegen_c.targets.host.kernels import elementwise as elementwise_host
from codegen_c.targets.host.kernels import products as products_host
from codegen_c.targets.host.kernels import winograd as winograd_host
from tests.kernels.harness import HOST, PORTABLE, call_rows, compile_kernels, run_kernel
from tests.kernels.host_layers import LAYERS, by_nines, dense, of_zeros, pointwise, single_channels
from tests.kernels.quantized import FEW, assert_c_equals_reference, elements, limits, seeds, varied
from tests.kernels.test_q_refusals import byte_tensor
from tests.kernels.test_qbinary import binaries
from tests.kernels.test_qconv2d import TILED
from tests.kernels.test_qconv2d import convolutions as few_channels
from tests.kernels.test_qconv2d_helium import convolutions
from tests.kernels.test_qdense import dense_layers
from tests.support.sweeps import some_of

PLAIN, AVX2, NATIVE = (), ("-mavx2",), ("-march=native",)
ROUNDINGS = st.sampled_from(("onnx", "tflite"))
by_vectors = pytest.mark.parametrize(
    "flags", some_of([AVX2], sweep=[PLAIN, NATIVE]), ids=lambda flags: flags[0] if flags else "plain"
)
FEWER = settings(FEW, max_examples=1)
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
@FEWER
@given(varied(convolutions() | few_channels(), least=2, most=4), ROUNDINGS, seeds)
def test_conv2d(flags: Sequence[str], operators: list[QConv2d], rounding, seed: int) -> None:
    assert_portable_bytes(products_host.QCONV2D, [replace(o, rounding=rounding) for o in operators], seed, flags)


@by_vectors
@FEWER
@given(varied(few_channels(depthwise=True), least=2, most=4), ROUNDINGS, seeds)
def test_depthwise(flags: Sequence[str], operators: list[QConv2d], rounding, seed: int) -> None:
    assert_portable_bytes(depthwise_host.QDEPTHWISE, [replace(o, rounding=rounding) for o in operators], seed, flags)


@by_vectors
@FEWER
@given(varied(few_channels(tiled=TILED), least=2, most=2), ROUNDINGS, seeds)
def test_winograd(flags: Sequence[str], operators: list[QConv2d], rounding, seed: int) -> None:
    assert_portable_bytes(winograd_host.KERNEL, [replace(o, rounding=rounding) for o in operators], seed, flags)


@by_vectors
@FEWER
@given(varied(dense_layers(sizes=SIZES, roundings=("onnx", "tflite")), least=2, most=5), seeds)
def test_dense(flags: Sequence[str], operators: list[QDense], seed: int) -> None:
    assert_portable_bytes(products_host.QDENSE, operators, seed, flags)


@by_vectors
@FEWER
@given(varied(binaries(), least=4, most=8), seeds)
def test_sums(flags: Sequence[str], operators: list[QBinary], seed: int) -> None:
    assert_portable_bytes(elementwise_host.KERNEL, operators, seed, flags)


@pytest.mark.parametrize("low, high", [(0, 1), (-128, -127), (126, 127), (5, 5)])
def test_sums_that_all_reach_a_clamp(low: int, high: int) -> None:
    """No result bounds the addend on that side, and sums must still fit 32 bits."""
    first, second = byte_tensor(1, 6, 4, 9, scale=1.0, zero_point=127), byte_tensor(1, 6, 4, 9, scale=1.0)
    operators = [
        QBinary(
            inputs=(first, replace(second, quantization=Quantization(scale=1.0, zero_point=zero_point))),
            outputs=(byte_tensor(1, 6, 4, 9, scale=1.0, zero_point=output),),
            function="subtract", low=low, high=high, rounding="tflite",
        )
        for zero_point in (-128, 127) for output in (-128, 127)
    ]  # fmt: skip
    assert any(elementwise_host.KERNEL.refuses(operator, HOST) is None for operator in operators)
    assert_portable_bytes(elementwise_host.KERNEL, operators, 1, ("-mavx2",))


@pytest.mark.parametrize("flags", [AVX2, PLAIN, NATIVE], ids=["avx2", "plain", "native"])
def test_the_same_bytes_by_every_header(flags: Sequence[str]) -> None:
    """All kernels in one compilation, whose C has the bytes of portable kernels' references; the first layer of each
    in plain C, which compiles slowly.
    """
    by_kernel = [(kernel, layers if flags else layers[:1]) for kernel, layers in LAYERS]
    if flags and "__AVX2__" not in defines(NATIVE):
        pytest.skip("this machine has no AVX2")
    operators = [operator for _, layers in by_kernel for operator in layers]
    made = [kernel.implement(operator, HOST, StoredRows()) for kernel, layers in by_kernel for operator in layers]
    for kernel, layers in by_kernel:
        assert all(kernel.refuses(operator, HOST) is None for operator in layers), kernel.name
    for operator, implementation, entry in zip(operators, made, compile_kernels(made, flags), strict=True):
        arrays = [elements(tensor, 5 + i) for i, tensor in enumerate(operator.inputs)]
        portable = select(operator, PORTABLE)
        assert isinstance(portable, Implementation) and "_host" not in portable.kernel
        (found,) = run_kernel(operator, implementation, arrays, entry=entry)
        np.testing.assert_array_equal(found, portable.reference(arrays)[0], implementation.kernel)


def test_kernels_that_are_chosen() -> None:
    """Each of them where it is the one with the fewest instructions; for size, weights of 8 bits are portable C's."""
    for kernel, layers in LAYERS:
        chosen = {getattr(select(operator, HOST), "kernel", None) for operator in layers}
        assert chosen == {kernel.name} or (kernel is products_host.QCONV2D and kernel.name in chosen)
    assert getattr(select(by_nines(70, 17), replace(HOST, optimize="size")), "kernel", None) == "qconv2d_i8"


def test_the_last_rows_of_a_call_stay_in_a_ring_of_fewer() -> None:
    """Winograd's rows come two at a time."""
    operator, kernel = by_nines(6, 4), winograd_host.KERNEL
    x, kept = elements(operator.inputs[0], 3), (1, 2)
    made = [kernel.implement(operator, HOST, StoredRows(output=Kept(stored=rows))) for rows in kept]
    expected = made[0].reference([x])[0]
    for implementation, entry, rows in zip(made, compile_kernels(made, AVX2), kept, strict=True):
        for begin, end in ((0, 2), (1, 4), (0, 5)):
            ring = np.zeros((1, rows, 6, 6), np.int8)
            call_rows(
                entry, implementation, [x], [ring], begin, end, ring_numbers(StoredRows(output=Kept(stored=rows)))
            )
            for row in range(max(begin, end - rows), end):
                np.testing.assert_array_equal(ring[0, row % rows], expected[0, row], f"{rows} rows, row {row}")


def test_extremes_of_winograd() -> None:
    """Transformed inputs and weights as large as they can be, of either sign."""
    signs = np.where(np.indices((4, 3, 3, 8)).sum(axis=0) % 2, 127, -128).astype(np.int8)
    layers = [by_nines(4, 8, weight=weight) for weight in (signs, np.full_like(signs, -128))]
    board = np.indices((1, 5, 6, 8)).sum(axis=0) % 2
    images = [np.where(ends, 127, -128).astype(np.int8) for ends in (board, np.zeros_like(board))]
    made = [winograd_host.KERNEL.implement(layer, HOST, StoredRows()) for layer in layers]
    for layer, implementation, entry in zip(layers, made, compile_kernels(made, AVX2), strict=True):
        for image in images:
            (found,) = run_kernel(layer, implementation, [image], entry=entry)
            np.testing.assert_array_equal(found, implementation.reference([image])[0])


@pytest.mark.parametrize("flags", [AVX2, NATIVE], ids=["avx2", "native"])
def test_extremes_of_products(flags: Sequence[str]) -> None:
    """Products as large as they can be, of either sign: sums of two or four of them exceed 16 bits. The elements are
    zero points, so a sum that differs by 2 changes them.
    """
    if "__AVX2__" not in defines(NATIVE):
        pytest.skip("this machine has no AVX2")
    kinds = (
        (products_host.QCONV2D, pointwise(20, 0.75)),
        (depthwise_host.QDEPTHWISE, single_channels(20)),
        (products_host.QDENSE, dense(20, 8)),
    )
    operators, inputs, made = [], [], []
    for (kernel, layer), weight, least in itertools.product(kinds, (-128, -127, 127), (True, False)):
        (source,) = layer.inputs
        (low, high), operator = limits(source), of_zeros(layer, weight, limits(source)[0 if least else 1])
        assert kernel.refuses(operator, HOST) is None
        operators += [operator]
        inputs += [np.full(source.shape, low if least else high, source.dtype)]
        made += [kernel.implement(operator, HOST, StoredRows())]
    for operator, image, implementation, entry in zip(
        operators, inputs, made, compile_kernels(made, flags), strict=True
    ):
        (found,) = run_kernel(operator, implementation, [image], entry=entry)
        np.testing.assert_array_equal(found, implementation.reference([image])[0])
        assert (found == -20).any()


def test_ends_saturate() -> None:
    """Sums far beyond 16 bits are limited, not cut off."""
    operator = replace(pointwise(16, 0.75), weight=np.full((16, 1, 1, 8), 127, np.int8))
    low, high = limits(operator.outputs[0])
    image = np.where(np.arange(160).reshape(1, 4, 5, 8) // 8 % 2, 127, -128).astype(np.int8)
    (result,) = assert_c_equals_reference([operator], [[image]], products_host.QCONV2D, AVX2)
    assert set(np.unique(result)) == {low, high}


def test_processors_without_vectors_have_portable_c() -> None:
    """A platform says by `simd` which of them it means; the bytes are the same."""
    host, portable = select(pointwise(16, 0.013), HOST), select(pointwise(16, 0.013), PORTABLE)
    assert isinstance(host, Implementation) and isinstance(portable, Implementation)
    assert (host.kernel, portable.kernel) == ("qconv2d_host", "qconv2d_pairs_i8")
