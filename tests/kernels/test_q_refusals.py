"""Refusals of integer kernels, and the reason a user reads: one test per constraint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.kernels.contract import Implementation
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import (
    Operator,
    QBinary,
    QConv2d,
    QDense,
    QPool2d,
    QSoftmax,
    Quantization,
    QUnary,
    TensorType,
    Window,
)
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from tests.kernels.harness import HOST


def byte_tensor(*shape: int, dtype: str = "int8", scale: float = 0.1, zero_point: int = 3) -> TensorType:
    return TensorType(shape=shape, dtype=dtype, quantization=Quantization(scale=scale, zero_point=zero_point))


IMAGE = byte_tensor(1, 4, 4, 2)
ROW = byte_tensor(1, 8)
CONV = QConv2d(
    inputs=(IMAGE,),
    outputs=(IMAGE,),
    weight=np.ones((2, 1, 1, 2), np.int8),
    weight_scale=np.ones(2, np.float32),
    bias=np.zeros(2, np.int32),
    window=Window(kernel=(1, 1)),
    low=-128,
    high=127,
)
DENSE = QDense(
    inputs=(ROW,),
    outputs=(byte_tensor(1, 2),),
    weight=np.ones((2, 8), np.int8),
    weight_scale=np.ones(2, np.float32),
    bias=np.zeros(2, np.int32),
    low=-128,
    high=127,
)
WINDOW = Window(kernel=(2, 2), strides=(2, 2))
SMALL = byte_tensor(1, 2, 2, 2)
MAX = QPool2d(inputs=(IMAGE,), outputs=(SMALL,), method="max", window=WINDOW, low=-128, high=127)
AVERAGE = replace(MAX, method="average")
ADD = QBinary(inputs=(IMAGE, IMAGE), outputs=(IMAGE,), function="add", low=-128, high=127)
TABLE = QUnary(inputs=(IMAGE,), outputs=(IMAGE,), finish=ScalarProgram())
SOFTMAX = QSoftmax(inputs=(ROW,), outputs=(ROW,))
ALL = (CONV, DENSE, MAX, AVERAGE, ADD, TABLE, SOFTMAX)
names = [type(operator).__name__ for operator in ALL]


def reasons(operator: Operator) -> str:
    refused = select(operator, HOST)
    assert isinstance(refused, tuple), "a kernel takes it"
    return "; ".join(refusal.reason for refusal in refused)


@pytest.mark.parametrize("operator", ALL, ids=names)
def test_each_is_taken_as_it_stands(operator: Operator) -> None:
    assert isinstance(select(operator, HOST), Implementation)


def test_tflite_rounding() -> None:
    assert "TensorFlow Lite's roundings are not supported" in reasons(replace(SOFTMAX, rounding="tflite"))


@pytest.mark.parametrize("operator", ALL, ids=names)
@pytest.mark.parametrize(
    "changed",
    [
        {"dtype": "int32"},
        {"quantization": None},
        {"quantization": Quantization(scale=0.0, zero_point=0)},
        {"quantization": Quantization(scale=-1.0, zero_point=0)},
        {"quantization": Quantization(scale=float("nan"), zero_point=0)},
        {"quantization": Quantization(scale=float("inf"), zero_point=0)},
        {"quantization": Quantization(scale=1.0, zero_point=200)},
    ],
    ids=str,
)
def test_activations_that_are_not_quantized_bytes(operator: Operator, changed: dict[str, object]) -> None:
    broken = replace(operator, outputs=(replace(operator.output, **changed),))
    assert "activations must be int8 or uint8 with one scale" in reasons(broken)


@pytest.mark.parametrize("operator", [CONV, DENSE], ids=["conv", "dense"])
def test_weights_of_other_types(operator: QConv2d | QDense) -> None:
    broken = replace(operator, weight=operator.weight.astype(np.uint8))
    assert "weights must be int8" in reasons(broken)
    assert "the bias int32" in reasons(replace(operator, bias=operator.bias.astype(np.float32)))


@pytest.mark.parametrize("operator", [CONV, DENSE], ids=["conv", "dense"])
def test_sums_beyond_int32(operator: QConv2d | QDense) -> None:
    """The bias alone fits; the largest products on top of it do not."""
    bias = np.array([0, 2**31 - 1 - 200], np.int32)
    assert "a sum that fits int32" in reasons(replace(operator, bias=bias))


@pytest.mark.parametrize("operator", [CONV, DENSE], ids=["conv", "dense"])
@pytest.mark.parametrize("scale", [2.0**30, -1.0, np.nan, np.inf])
def test_weight_scales_out_of_range(operator: QConv2d | QDense, scale: float) -> None:
    broken = replace(operator, weight_scale=np.array([1.0, scale], np.float32))
    assert "weight scales must be finite" in reasons(broken)


@pytest.mark.parametrize("operator", [CONV, DENSE], ids=["conv", "dense"])
def test_a_weight_scale_of_zero_is_a_channel_of_zeros(operator: QConv2d | QDense) -> None:
    implementation = select(replace(operator, weight_scale=np.array([0.0, 1.0], np.float32)), HOST)
    assert isinstance(implementation, Implementation)
    (result,) = implementation.reference([np.full(operator.inputs[0].shape, 100, np.int8)])
    assert (result[..., 0] == 3).all() and (result[..., 1] != 3).all()


def test_max_between_different_quantizations() -> None:
    broken = replace(MAX, outputs=(byte_tensor(1, 2, 2, 2, scale=0.2),))
    assert "one type, scale and zero point on both sides" in reasons(broken)


def test_an_average_of_nothing() -> None:
    window = Window(kernel=(1, 1), strides=(1, 1), padding=(1, 0, 0, 0))
    broken = replace(AVERAGE, window=window, outputs=(byte_tensor(1, 5, 4, 2),))
    assert "at least one element of the input" in reasons(broken)


def test_an_average_over_too_many_or_too_large() -> None:
    huge = Window(kernel=(4100, 4100), padding=(4100, 4100, 4100, 4100))
    assert "add up to a sum that fits int32" in reasons(replace(AVERAGE, window=huge, count_include_pad=True))
    assert "2^30 steps" in reasons(replace(AVERAGE, inputs=(byte_tensor(1, 4, 4, 2, scale=2.0**25),)))


def test_shapes_that_do_not_broadcast() -> None:
    said = reasons(replace(ADD, inputs=(IMAGE, byte_tensor(1, 2, 1, 2))))
    assert "must have the output's shape" in said and "each input axis must have the output's extent or 1" in said


@pytest.mark.parametrize("function", ["add", "subtract", "multiply"])
def test_binary_results_out_of_range(function: str) -> None:
    broken = replace(ADD, function=function, inputs=(IMAGE, byte_tensor(1, 4, 4, 2, scale=2.0**25)))
    assert "2^30 steps" in reasons(broken)


@pytest.mark.parametrize("operand", [Operand(kind="input", index=1), Operand(kind="channel", index=0)], ids=str)
def test_functions_of_more_than_the_element(operand: Operand) -> None:
    instruction = Instruction(function="add", operands=(Operand(kind="value"), operand))
    program = ScalarProgram(instructions=(instruction,), channel_constants=(np.ones(2, np.float32),))
    assert "on the element alone" in reasons(replace(TABLE, finish=program))


def test_softmax_over_too_many() -> None:
    wide = byte_tensor(1, 65536)
    assert "1 to 65535 elements" in reasons(replace(SOFTMAX, inputs=(wide,), outputs=(wide,)))


def test_softmax_results_out_of_range() -> None:
    assert "2^30 steps" in reasons(replace(SOFTMAX, outputs=(byte_tensor(1, 8, scale=2.0**-30),)))
