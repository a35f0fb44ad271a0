"""Integer kernels on 16-bit activations: C against reference byte for byte, reference against real arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Kernel, StoredRows
from codegen_c.kernels.convolution import qconv2d, qdepthwise, transposed
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.elementwise import qbinary, qlinear
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.requantize_tflite import fixed_point_wide, multiply_wide
from codegen_c.operators.kinds import (
    Operator,
    QBinary,
    QConv2d,
    QDense,
    QPool2d,
    Quantization,
    QUnary,
    TensorType,
    Window,
)
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from tests.kernels.harness import HOST
from tests.kernels.quantized import assert_c_equals_reference, assert_rounds, elements, limits, real, seeds
from tests.kernels.test_q_refusals import reasons
from tests.kernels.test_qbinary import FUNCTIONS, binaries
from tests.kernels.test_qbroadcast import broadcasts
from tests.kernels.test_qconv2d import check, convolutions
from tests.kernels.test_qdense import dense_layers
from tests.kernels.test_qpool2d import pools
from tests.kernels.test_transposed import integer_operators

# A sum of 41 bits leaves its factor 21, of which 2^15 steps of the output are off by 2^-7.
NEAR_TIE = 1e-2
FEW = settings(max_examples=3, deadline=None, derandomize=True)
MANY = settings(max_examples=300, deadline=None, derandomize=True)


def widened_type(tensor: TensorType) -> TensorType:
    """The same range in 256 times as many steps."""
    quantization = tensor.quantization
    assert quantization is not None
    wide = Quantization(scale=quantization.scale / 256, zero_point=quantization.zero_point * 256)
    return replace(tensor, dtype=tensor.dtype.replace("8", "16"), quantization=wide)


def widened(operator: Any) -> Any:
    """An operator on 8 bits as one on 16; ends of a type become ends, biases have 64 bits."""
    output = widened_type(operator.output)
    least, most = limits(operator.output)
    changes: dict[str, Any] = {
        "low": limits(output)[0] if operator.low == least else operator.low * 256,
        "high": limits(output)[1] if operator.high == most else operator.high * 256,
    }
    if isinstance(operator, QConv2d | QDense):
        changes["bias"] = operator.bias.astype(np.int64) * 256
    return replace(operator, inputs=tuple(map(widened_type, operator.inputs)), outputs=(output,), **changes)


def as_tflite(operator: Any) -> Any:
    """The operator with TensorFlow Lite's roundings."""
    return replace(operator, rounding="tflite")


def taken(operators: list[Any], kernel: Kernel) -> list[Any]:
    return [operator for operator in operators if kernel.refuses(operator, HOST) is None]


def assert_c_is_reference(operators: list[Any], seed: int, kernel: Kernel) -> list[tuple[Any, list[np.ndarray], Any]]:
    """Operators with their inputs and results, of those that the kernel takes."""
    found = taken(operators, kernel)
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in found]
    results = assert_c_equals_reference(found, inputs, kernel) if found else []
    return list(zip(found, inputs, results, strict=True))


@FEW
@given(st.lists(convolutions().map(widened), min_size=1, max_size=5), seeds)
def test_conv2d(operators: list[QConv2d], seed: int) -> None:
    check(operators, seed, qconv2d.QCONV2D_I16, near_tie=NEAR_TIE)
    assert_c_is_reference(list(map(as_tflite, operators)), seed, qconv2d.QCONV2D_I16)


@FEW
@given(st.lists(convolutions(depthwise=True).map(widened), min_size=1, max_size=5), seeds)
def test_depthwise(operators: list[QConv2d], seed: int) -> None:
    check(operators, seed, qdepthwise.QDEPTHWISE_I16, near_tie=NEAR_TIE)
    assert_c_is_reference(list(map(as_tflite, operators)), seed, qdepthwise.QDEPTHWISE_I16)


@FEW
@given(st.lists(integer_operators().map(widened), min_size=1, max_size=4), seeds)
def test_transposed(operators: list[Operator], seed: int) -> None:
    assert len(assert_c_is_reference(operators, seed, transposed.QCONV2D_TRANSPOSE_I16)) == len(operators)


@FEW
@given(st.lists(dense_layers(sizes=st.tuples(st.integers(1, 600), st.integers(1, 6))).map(widened), max_size=5), seeds)
def test_dense(operators: list[QDense], seed: int) -> None:
    for operator, (x,), result in assert_c_is_reference(operators, seed, qdense.QDENSE_I16):
        scale = operator.weight_scale.astype(np.float64)
        source = np.float64(np.float32(operator.inputs[0].quantization.scale))
        value = real(operator.inputs[0], x) @ (operator.weight.T * scale) + operator.bias * source * scale
        assert_rounds(result, value, operator.output, operator.low, operator.high, near_tie=NEAR_TIE)
    assert_c_is_reference(list(map(as_tflite, operators)), seed, qdense.QDENSE_I16)


@FEW
@given(st.lists(st.one_of(binaries(), broadcasts()).map(widened), min_size=2, max_size=8), seeds)
def test_binaries(operators: list[QBinary], seed: int) -> None:
    for kernel in (qbinary.QBINARY_I16, qbinary.QBROADCAST_I16):
        for operator, arrays, result in assert_c_is_reference(operators, seed, kernel):
            value = FUNCTIONS[operator.function](*map(real, operator.inputs, arrays))
            assert_rounds(result, value, operator.output, operator.low, operator.high, near_tie=NEAR_TIE)
        assert_c_is_reference(list(map(as_tflite, operators)), seed, kernel)


@FEW
@given(st.lists(pools().map(widened), min_size=1, max_size=5), seeds)
def test_pools(operators: list[QPool2d], seed: int) -> None:
    assert_c_is_reference(operators, seed, qpool2d.QPOOL2D_I16)
    assert_c_is_reference(list(map(as_tflite, operators)), seed, qpool2d.QPOOL2D_I16)


def unary(source: TensorType, output: TensorType, slope: float | None = None) -> QUnary:
    """Another scale, or a leaky relu of a slope."""
    value, zero = Operand(kind="value"), Operand(kind="number", number=0.0)
    above, below, scaled = (Operand(kind="value", index=index) for index in (1, 2, 3))
    leaky = (
        Instruction(function="maximum", operands=(value, zero)),
        Instruction(function="minimum", operands=(value, zero)),
        Instruction(function="multiply", operands=(below, Operand(kind="number", number=slope or 0.0))),
        Instruction(function="add", operands=(above, scaled)),
    )
    return QUnary(inputs=(source,), outputs=(output,), finish=ScalarProgram(instructions=leaky if slope else ()))


@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
@pytest.mark.parametrize("slope", [None, 0.3])
def test_linear(rounding: str, slope: float | None) -> None:
    pairs = [("int16", "int16"), ("int8", "int16"), ("int16", "uint8"), ("uint16", "int16")]
    operators = []
    for source, output in pairs:
        types = [
            TensorType(shape=(1, 5, 4, 3), dtype=dtype, quantization=Quantization(scale=scale, zero_point=zero))
            for dtype, scale, zero in ((source, 0.003, 3), (output, 0.0007, 9))
        ]
        operators.append(replace(unary(types[0], types[1], slope), rounding=rounding))
    for operator, (x,), result in assert_c_is_reference(operators, 5, qlinear.KERNEL):
        value = real(operator.inputs[0], x)
        value = np.where(value < 0, value * (slope or 1.0), value)
        assert_rounds(result, value, operator.output, *limits(operator.output), near_tie=1e-3)
    assert len(taken(operators, qlinear.KERNEL)) == len(pairs)


def times(number: float) -> QUnary:
    """A product with a number, in 16 bits."""
    value, factor = Operand(kind="value"), Operand(kind="number", number=number)
    program = ScalarProgram(instructions=(Instruction(function="multiply", operands=(value, factor)),))
    return QUnary(
        inputs=(word(1, 5, 4, 3, scale=0.003, zero_point=3),), outputs=(word(1, 5, 4, 3, scale=0.0007),), finish=program
    )


def test_a_factor() -> None:
    """TensorFlow Lite has such a number in 8 bits itself; a negative one turns both sides around."""
    operators = [times(0.75), times(0.0), times(3.5)]
    found = assert_c_is_reference(operators, 6, qlinear.KERNEL)
    for factor, (operator, (x,), result) in zip((0.75, 0.0, 3.5), found, strict=True):
        value = real(operator.inputs[0], x) * factor
        assert_rounds(result, value, operator.output, *limits(operator.output), near_tie=1e-3)
    refused = [times(-0.75), replace(times(0.75), rounding="tflite")]
    for refusal in (qlinear.KERNEL.refuses(one, HOST) for one in refused):
        assert refusal is not None and refusal.reason == qlinear.is_linear.__doc__


@MANY
@given(st.floats(1e-9, 1000.0), st.integers(-(1 << 46), 1 << 46))
def test_rounding_of_wide_sums(factor: float, total: int) -> None:
    """Once, halves up, by a factor of 15 bits."""
    mantissa, shift = fixed_point_wide(factor)
    assert 0 <= mantissa < 1 << 15 and shift >= 1
    exact = Fraction(total * mantissa, 1 << shift)
    assert int(multiply_wide(np.int64(total), mantissa, shift)) == math.floor(exact + Fraction(1, 2))
    assert abs(mantissa / 2.0**shift / factor - 1) <= 2.0**-14


def word(*shape: int, scale: float = 0.001, zero_point: int = 0) -> TensorType:
    return TensorType(shape=shape, dtype="int16", quantization=Quantization(scale=scale, zero_point=zero_point))


LAYER = QConv2d(
    inputs=(word(1, 3, 3, 2),), outputs=(word(1, 3, 3, 1),), weight=np.full((1, 1, 1, 2), 127, np.int8),
    weight_scale=np.array([0.01], np.float32), bias=np.zeros(1, np.int64), window=Window(kernel=(1, 1)),
    low=-(1 << 15), high=(1 << 15) - 1,
)  # fmt: skip


def test_sums_stay_in_32_bits_where_these_hold_them() -> None:
    far = replace(LAYER, bias=np.array([1 << 40], np.int64), weight_scale=np.array([1e-8], np.float32))
    for operator, dtype in ((LAYER, np.int32), (far, np.int64)):
        made = qconv2d.QCONV2D_I16.implement(operator, HOST, StoredRows())
        assert dict(made.constants)["bias"].dtype == dtype


@pytest.mark.parametrize(("scale", "taken"), [(16383.0, True), (16384.0, False)])
def test_factors_that_shift_to_the_right(scale: float, taken: bool) -> None:
    """A factor of 2^14 or more has 15 bits and nothing to shift."""
    small = replace(
        LAYER, inputs=(word(1, 3, 3, 2, scale=1.0),), outputs=(word(1, 3, 3, 1, scale=1.0),), rounding="tflite",
        weight=np.zeros((1, 1, 1, 2), np.int8), weight_scale=np.array([scale], np.float32),
    )  # fmt: skip
    assert (qconv2d.QCONV2D_I16.refuses(small, HOST) is None) is taken
    assert (fixed_point_wide(scale)[1] >= 1) is taken


def test_windows_whose_rows_32_bits_do_not_hold() -> None:
    """Products of a row of a window are added in 32 bits."""
    wide = replace(
        LAYER, inputs=(word(1, 3, 200, 2),), outputs=(word(1, 3, 72, 2),), weight=np.ones((2, 1, 129, 1), np.int8),
        window=Window(kernel=(1, 129)), groups=2,
    )  # fmt: skip
    refused = qdepthwise.QDEPTHWISE_I16.refuses(wide, HOST)
    assert refused is not None and "128 columns or fewer" in refused.reason


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (replace(LAYER, bias=np.array([1 << 47], np.int64), weight_scale=np.array([1e-12], np.float32)), "2^47"),
        (as_tflite(replace(LAYER, bias=np.array([2**31 - 1], np.int32))), "2^31"),
        (replace(LAYER, weight_scale=np.array([np.inf], np.float32)), "weight scales must be finite"),
        (replace(LAYER, weight_scale=np.array([1e5], np.float32)), "2^30 steps of the output"),
        (replace(LAYER, bias=np.zeros(1, np.float32)), "the bias int32 or int64"),
        (replace(LAYER, outputs=(word(1, 3, 3, 1, zero_point=1 << 15),)), "a zero point of that type"),
        (
            QBinary(
                inputs=(word(4, zero_point=-(1 << 15)),) * 2,
                outputs=(word(4),),
                function="multiply",
                low=0,
                high=1,
                rounding="tflite",
            ),
            'nor a product in rounding "tflite" 2^31',
        ),
        (unary(word(4, scale=1e6), word(4, scale=1e-3)), "2^30 steps of the output"),
        (unary(word(4), TensorType(shape=(4,), dtype="int32")), "the other 8 or 16"),
    ],
)
def test_refusals(operator: Operator, reason: str) -> None:
    assert reason in reasons(operator)
    assert not hasattr(select(operator, HOST), "kernel")
