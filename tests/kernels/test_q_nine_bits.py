"""Weights that need 9 bits: unsigned bytes less a zero point, in all channels of a layer or in few of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from codegen_c.kernels.beside_int8 import in_int8
from codegen_c.kernels.contract import Implementation, StoredRows
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.bit_widths import split_weights
from codegen_c.operators.kinds import QConv2d, QDense, Quantization, TensorType, Window
from tests.kernels.harness import HOST, run_kernel
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_q_refusals import reasons
from tests.kernels.test_qconv2d import convolutions

FEWER = settings(max_examples=2, deadline=None, derandomize=True)


def bytes_less(zero_point: int, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random unsigned bytes less a zero point, int16."""
    return (np.random.default_rng(seed).integers(0, 256, shape) - zero_point).astype(np.int16)


def few_of(operator: QConv2d | QDense, seed: int) -> QConv2d | QDense:
    """The layer of int8 with weights of -200 or 200 in a quarter of its channels, at least in one."""
    random, weight = np.random.default_rng(seed), (operator.weight // 2).astype(np.int16)
    channels = random.permutation(len(weight))[: max(1, len(weight) // 4)]
    sign = random.choice([-1, 1], len(channels))
    weight[channels] = np.abs(weight[channels]) * sign.reshape(-1, *[1] * (weight.ndim - 1))
    weight.reshape(len(weight), -1)[channels, 0] = 200 * sign
    return replace(operator, weight=weight)


@given(seeds, st.integers(0, 255))
def test_weights_are_bytes_and_offsets(seed: int, zero_point: int) -> None:
    weight = bytes_less(zero_point, (5, 3, 2, 4), seed)
    rest, offsets = split_weights(weight)
    assert rest.dtype == np.int8 and (rest + offsets[:, None, None, None] == weight).all()
    small = (weight // 2).clip(-128, 127)
    assert not split_weights(small)[1].any()


@FEWER
@given(st.lists(convolutions(), min_size=1, max_size=2), seeds, st.integers(0, 255))
def test_all_channels(operators: list[QConv2d], seed: int, zero_point: int) -> None:
    wide = [replace(o, weight=bytes_less(zero_point, o.weight.shape, seed), rounding="tflite") for o in operators]
    inputs = [[elements(o.inputs[0], seed)] for o in wide]
    assert_c_equals_reference(wide, inputs, qconv2d.QCONV2D_NINE_BITS)


@FEWER
@given(st.lists(convolutions(depthwise=True) | convolutions(), min_size=1, max_size=1), seeds)
def test_few_channels(operators: list[QConv2d], seed: int) -> None:
    """Those beside a kernel for int8 give the reference's bytes, in rows and rings too."""
    few = [few_of(operator, seed) for operator in operators]
    kernels = [made.kernel for o in few if isinstance(made := select(o, HOST), Implementation)]
    assert len(kernels) == len(few)
    # The kernel for 9 bits in all channels is faster for a layer of few results in groups.
    assume(all("+nine_bits" in kernel for kernel in kernels))
    assert_c_equals_reference(few, [[elements(o.inputs[0], seed)] for o in few])


def dense(zero_point: int, channels: int = 9, rows: int = 3) -> QDense:
    quantization = Quantization(scale=0.5, zero_point=3)
    result = TensorType(shape=(), dtype="uint8", quantization=Quantization(scale=9, zero_point=128))
    return QDense(
        inputs=(TensorType(shape=(rows, 20), dtype="uint8", quantization=quantization),),
        outputs=(replace(result, shape=(rows, channels)),),
        weight=bytes_less(zero_point, (channels, 20), 1), weight_scale=np.full(channels, 0.02, np.float32),
        bias=np.arange(channels, dtype=np.int32) * 1000, low=0, high=255, rounding="tflite",
    )  # fmt: skip


@pytest.mark.parametrize("zero_point", [0, 61, 174, 255])
def test_dense(zero_point: int) -> None:
    layer = dense(zero_point)
    inputs = [[elements(layer.inputs[0], 4)]]
    assert_c_equals_reference([layer], inputs, qdense.QDENSE_NINE_BITS)


def test_dense_beside_int8() -> None:
    layer = dense(128)
    layer.weight[2, 5] = 131
    made = select(layer, HOST)
    assert isinstance(made, Implementation) and made.kernel == "qdense_host+nine_bits"
    x = elements(layer.inputs[0], 4)
    np.testing.assert_array_equal(run_kernel(layer, made, [x])[0], made.reference([x])[0])


def test_in_place_of_the_input() -> None:
    """Channels computed apart are read before another kernel writes over the input."""
    kind = TensorType(shape=(1, 4, 4, 8), dtype="uint8", quantization=Quantization(scale=0.5, zero_point=100))
    weight = np.random.default_rng(2).integers(-128, 128, (8, 1, 1, 8)).astype(np.int16)
    weight[3, 0, 0, 1] = 140
    layer = QConv2d(
        inputs=(kind,), outputs=(kind,), weight=weight, weight_scale=np.full(8, 0.01, np.float32),
        bias=np.zeros(8, np.int32), window=Window(kernel=(1, 1)), low=0, high=255, rounding="tflite",
    )  # fmt: skip
    made = select(layer, HOST)
    assert isinstance(made, Implementation) and made.kernel.endswith("+nine_bits")
    x = elements(kind, 7)
    expected = made.reference([x])[0]
    np.testing.assert_array_equal(run_kernel(layer, made, [x])[0], expected)
    assert made.scratch_bytes >= 16


def test_scratch_of_calls_that_compute_more_rows() -> None:
    """Calls of a sequence are merged to more rows than a call was planned for."""
    kind = TensorType(shape=(1, 8, 5, 8), dtype="uint8", quantization=Quantization(scale=0.5, zero_point=100))
    weight = np.random.default_rng(2).integers(-100, 100, (8, 3, 3, 8)).astype(np.int16)
    weight[[3, 6], 0, 0, 1] = 140
    layer = QConv2d(
        inputs=(kind,), outputs=(kind,), weight=weight, weight_scale=np.full(8, 0.01, np.float32), low=0, high=255,
        bias=np.zeros(8, np.int32), window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)), rounding="tflite",
    )  # fmt: skip
    made = select(layer, HOST)
    assert isinstance(made, Implementation) and made.keeping is not None and made.kernel.endswith("+nine_bits")
    one, six = (made.keeping(StoredRows(at_once=1, call_rows=rows)) for rows in (frozenset({1}), frozenset({2, 6})))
    assert six.scratch_bytes - one.scratch_bytes == 5 * 5 * 2


def test_refusals() -> None:
    layer = dense(61)
    assert "come from bytes" in reasons(replace(layer, weight=layer.weight * 2))
    deep = np.zeros((9, (1 << 15) + 1), np.int16)
    deep[:, 0] = 200
    source = replace(layer.inputs[0], shape=(3, deep.shape[1]))
    deep_layer = replace(layer, inputs=(source,), weight=deep)
    assert "32,768 weights or fewer" in reasons(deep_layer)
    assert in_int8(replace(layer, weight=layer.weight.astype(np.int8))) is None
