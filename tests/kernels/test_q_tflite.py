"""TensorFlow Lite's rounding: its steps against exact fractions, and every kernel's C against its reference."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import CFunction, Implementation, Parameter
from codegen_c.kernels.convolution import qconv2d, qdepthwise
from codegen_c.kernels.elementwise import qbinary, qunary
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.requantize_tflite import INCLUDES, divide, divide_by_power, fixed_point, multiply
from codegen_c.kernels.softmax import qsoftmax_tflite
from codegen_c.kernels.softmax.qsoftmax_tflite import exponential, reciprocal
from codegen_c.operators.kinds import (
    Operator,
    QBinary,
    QConv2d,
    QPool2d,
    QSoftmax,
    Quantization,
    QUnary,
    TensorType,
    Window,
)
from tests.kernels.harness import HOST, compile_kernels
from tests.kernels.quantized import FEW, assert_c_equals_reference, clamps, elements, seeds, tensor_types
from tests.kernels.test_q_refusals import ADD, AVERAGE, CONV, DENSE, MAX, SOFTMAX, TABLE, reasons
from tests.kernels.test_qconv2d import convolutions

MANY = settings(max_examples=300, deadline=None, derandomize=True)
PROBABILITIES = Quantization(scale=1 / 256, zero_point=-128)


def halves_up(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


def halves_away(value: Fraction) -> int:
    return halves_up(value) if value >= 0 else -halves_up(-value)


def twice_rounded(value: int, mantissa: int, shift: int) -> int:
    """Both roundings, on exact numbers."""
    left, right = max(31 - shift, 0), max(shift - 31, 0)
    high = halves_up(Fraction((value << left) * mantissa, 1 << 31))
    return halves_away(Fraction(high, 1 << right))


@pytest.fixture(scope="module")
def requantize_c() -> ctypes._FuncPointer:
    function = CFunction(
        parameters=(
            Parameter(name="value", ctype="int32_t", role="input"),
            Parameter(name="multiplier", ctype="int32_t", role="input"),
            Parameter(name="result", ctype="int32_t", role="output"),
            Parameter(name="shift", ctype="int32_t", role="row"),
        ),
        body="result[0] = tvm_ext_requantize_tflite(value[0], multiplier[0], shift);",
        includes=INCLUDES,
    )
    return compile_kernels([Implementation(kernel="requantize", function=function, reference=lambda i: i)])[0]


@MANY
@given(value=st.integers(-(2**31), 2**31 - 1), mantissa=st.integers(2**30, 2**31 - 1), shift=st.integers(2, 62))
@example(value=-(2**31), mantissa=2**31 - 1, shift=62)
@example(value=3, mantissa=2**30, shift=32)
@example(value=-3, mantissa=2**30, shift=32)
@example(value=-1, mantissa=2**30, shift=31)
def test_two_roundings(requantize_c, value: int, mantissa: int, shift: int) -> None:
    if shift < 31:  # the result stays below 2^30, as kernels see to
        value >>= 33 - shift
    expected = twice_rounded(value, mantissa, shift)
    assert multiply(np.array(value), mantissa, shift) == expected
    result = np.zeros(1, np.int32)
    arguments = (np.array([value], np.int32), np.array([mantissa], np.int32), result)
    requantize_c(*(a.ctypes.data_as(ctypes.c_void_p) for a in arguments), ctypes.c_int32(shift))
    assert result[0] == expected


def test_halves() -> None:
    values = np.array([-6, -5, -3, -2, -1, 0, 1, 2, 3, 5, 6])
    assert divide_by_power(values, 1).tolist() == [-3, -3, -2, -1, -1, 0, 1, 1, 2, 3, 3]
    assert divide(values, np.array(2)).tolist() == [-3, -3, -2, -1, -1, 0, 1, 1, 2, 3, 3]
    assert divide(values, np.array(3)).tolist() == [-2, -2, -1, -1, 0, 0, 0, 1, 1, 2, 2]


@MANY
@given(st.floats(min_value=2.0**-31, max_value=2.0**29))
@example(1.0 - 2.0**-53)
def test_factors(factor: float) -> None:
    mantissa, shift = fixed_point(factor)
    assert 1 << 30 <= mantissa < 1 << 31 and 0 <= shift <= 62
    assert abs(Fraction(mantissa, 1 << shift) - Fraction(factor)) <= Fraction(factor) / (1 << 31)


def test_factors_too_small_are_zero() -> None:
    assert fixed_point(0.0)[0] == fixed_point(2.0**-33)[0] == 0


def test_exponential_and_reciprocal_are_close() -> None:
    arguments = -np.arange(0, 16 << 26, 999_983, dtype=np.int64)
    np.testing.assert_allclose(exponential(arguments) / 2**31, np.exp(arguments / 2**26), atol=2e-7)
    totals = np.unique(np.geomspace(1 << 19, (1 << 31) - 1, 999).astype(np.int64))
    factor, exponent = reciprocal(totals)
    np.testing.assert_allclose(factor / 2.0**31 * 0.5**exponent, 2.0**19 / totals, rtol=1e-6)


@FEW
@given(st.lists(convolutions(), min_size=1, max_size=4), seeds)
def test_conv2d(operators: list[QConv2d], seed: int) -> None:
    check([replace(operator, rounding="tflite") for operator in operators], seed, qconv2d.QCONV2D)


@FEW
@given(st.lists(convolutions(depthwise=True), min_size=1, max_size=4), seeds)
def test_depthwise(operators: list[QConv2d], seed: int) -> None:
    check([replace(operator, rounding="tflite") for operator in operators], seed, qdepthwise.QDEPTHWISE)


@FEW
@given(convolutions(), seeds)
def test_a_layer_differs_from_one_rounding_by_a_step(operator: QConv2d, seed: int) -> None:
    x = [elements(operator.inputs[0], seed)]
    once, twice = (qconv2d.reference(replace(operator, rounding=meaning), x)[0] for meaning in ("onnx", "tflite"))
    assert np.abs(once.astype(int) - twice.astype(int)).max() <= 1


@FEW
@given(st.data(), seeds)
def test_binary(data: st.DataObject, seed: int) -> None:
    operators = []
    for function in ("add", "subtract", "multiply"):
        output = data.draw(tensor_types((1, 3, 4, 5)))
        low, high = data.draw(clamps(output))
        inputs = tuple(data.draw(tensor_types((1, 3, 4, 5))) for _ in range(2))
        operators.append(
            QBinary(inputs=inputs, outputs=(output,), function=function, low=low, high=high, rounding="tflite")
        )
    check(operators, seed, qbinary.QBINARY)


@FEW
@given(st.sampled_from((-128, -7, 100)), seeds)
def test_average(zero_point: int, seed: int) -> None:
    kind = {"dtype": "int8", "quantization": Quantization(scale=0.1, zero_point=zero_point)}
    padded = Window(kernel=(3, 2), strides=(2, 1), padding=(1, 0, 1, 1))
    operators = [
        QPool2d(
            inputs=(TensorType(shape=(1, 5, 6, 7), **kind),), outputs=(TensorType(shape=shape, **kind),),
            method="average", window=window, low=-100, high=90, rounding="tflite",
        )
        for window, shape in ((padded, (1, 3, 6, 7)), (Window(kernel=(5, 6)), (1, 1, 1, 7)))
    ]  # fmt: skip
    check(operators, seed, qpool2d.QPOOL2D)


@FEW
@given(st.sampled_from(("int8", "int16")), st.sampled_from((0, 5)), seeds)
def test_mean_over_an_image(dtype: str, zero_point: int, seed: int) -> None:
    """A factor with the count in it, rounded twice: whole, and by rows that are added up as they come."""
    source, output = (
        TensorType(shape=shape, dtype=dtype, quantization=Quantization(scale=scale, zero_point=zero_point))
        for shape, scale in (((1, 7, 5, 6), 0.02), ((1, 1, 1, 6), 0.007))
    )
    limits = np.iinfo(dtype)
    operator = QPool2d(
        inputs=(source,), outputs=(output,), method="average", window=Window(kernel=(7, 5)), low=int(limits.min),
        high=int(limits.max), rounding="tflite", is_mean=True,
    )  # fmt: skip
    x = elements(source, seed)
    (result,) = assert_c_equals_reference([operator], [[x]])
    mean = (x.astype(np.float64) - zero_point).mean(axis=(1, 2), keepdims=True) * (0.02 / 0.007) + zero_point
    assert np.abs(result - np.clip(mean, limits.min, limits.max)).max() <= 1


@FEW
@given(st.floats(-20, 2), st.integers(1, 40), seeds)
def test_softmax(exponent: float, length: int, seed: int) -> None:
    source = TensorType(shape=(3, length), dtype="int8", quantization=Quantization(scale=2.0**exponent, zero_point=9))
    output = TensorType(shape=(3, length), dtype="int8", quantization=PROBABILITIES)
    operator = QSoftmax(inputs=(source,), outputs=(output,), rounding="tflite")
    check([operator], seed, qsoftmax_tflite.KERNEL)


def test_softmax_is_a_softmax() -> None:
    source = TensorType(shape=(1, 50), dtype="int8", quantization=Quantization(scale=0.1, zero_point=0))
    operator = QSoftmax(inputs=(source,), outputs=(replace(source, quantization=PROBABILITIES),), rounding="tflite")
    x = elements(source, 3)
    powers = np.exp(0.1 * x.astype(np.float64))
    (found,) = qsoftmax_tflite.reference(operator, [x])
    assert np.abs(found.astype(int) + 128 - 256 * powers / powers.sum()).max() < 1


@pytest.mark.parametrize("length", [511, 512, 640, 4095])
def test_softmax_of_many_that_are_alike(length: int) -> None:
    """Half a 256th is left for each from 512 on: what the sum is shifted by is more than a word has bits."""
    source = TensorType(shape=(2, length), dtype="int8", quantization=Quantization(scale=1 / 128, zero_point=0))
    operator = QSoftmax(inputs=(source,), outputs=(replace(source, quantization=PROBABILITIES),), rounding="tflite")
    x = np.full(source.shape, 127, np.int8)
    (found,) = qsoftmax_tflite.reference(operator, [x])
    np.testing.assert_array_equal(found, -127 if length == 511 else -128)
    assert_c_equals_reference([operator], [[x]], qsoftmax_tflite.KERNEL)


@FEW
@given(tensor_types((1, 4, 4, 2)), tensor_types((1, 4, 4, 2)), seeds)
def test_requantize(source: TensorType, output: TensorType, seed: int) -> None:
    operator = QUnary(inputs=(source,), outputs=(output,), finish=TABLE.finish, rounding="tflite")
    check([operator], seed, qunary.KERNEL)


def check(operators: list[Operator], seed: int, kernel: object) -> None:
    arrays = [[elements(kind, seed + i) for i, kind in enumerate(o.inputs)] for o in operators]
    assert_c_equals_reference(operators, arrays, kernel)


TFLITE = [replace(operator, rounding="tflite") for operator in (CONV, DENSE, MAX, ADD, TABLE)]


@pytest.mark.parametrize("operator", TFLITE, ids=[type(operator).__name__ for operator in TFLITE])
def test_each_is_taken(operator: Operator) -> None:
    assert isinstance(select(operator, HOST), Implementation)


def test_averages_of_one_scale_that_leave_padding_out() -> None:
    average = replace(AVERAGE, rounding="tflite")
    assert isinstance(select(average, HOST), Implementation)
    other = replace(average.output, quantization=Quantization(scale=0.3, zero_point=0))
    assert "averages in TFLite's rounding" in reasons(replace(average, outputs=(other,)))
    assert "must not count padding" in reasons(replace(average, count_include_pad=True))


def test_softmax_to_256ths_only() -> None:
    assert "the output's scale 1/256" in reasons(replace(SOFTMAX, rounding="tflite"))
    output = replace(SOFTMAX.output, quantization=PROBABILITIES)
    long = TensorType(shape=(1, 5000), dtype="int8", quantization=PROBABILITIES)
    softmax = replace(SOFTMAX, outputs=(output,), rounding="tflite")
    assert isinstance(select(softmax, HOST), Implementation)
    assert "1 to 4095 elements" in reasons(replace(softmax, inputs=(long,), outputs=(long,)))
    tiny = replace(softmax.inputs[0], quantization=Quantization(scale=2.0**-30, zero_point=0))
    assert "at least 2^-26" in reasons(replace(softmax, inputs=(tiny,)))


def test_tables_of_steep_functions() -> None:
    steep = replace(TABLE.inputs[0], quantization=Quantization(scale=2.0**25, zero_point=0))
    assert "less than 2^22 steps" in reasons(replace(TABLE, inputs=(steep,), rounding="tflite"))
