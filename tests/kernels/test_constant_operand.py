"""Sums, differences and products of integers and constants: C against the kernels of two tensors, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel
from codegen_c.kernels.elementwise import constant_operand
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import QBinary, QConstantBinary, Quantization, TensorType
from tests.kernels.harness import HOST
from tests.kernels.quantized import FEW, assert_c_equals_reference, clamps, elements, seeds, tensor_types

SHAPES = (
    ((1, 3, 4, 5), (1, 1, 1, 5)), ((1, 6, 2, 7), (1, 6, 2, 7)), ((2, 3, 4), (1, 1, 4)), ((8,), (1,)),
    ((1, 4, 5, 3), (1, 1, 5, 3)), ((1, 2, 3, 4), (1, 1, 1, 1)),
)  # fmt: skip


@st.composite
def operators(draw: st.DrawFn) -> QConstantBinary:
    shape, repeated = draw(st.sampled_from(SHAPES))
    source, constant, output = draw(tensor_types(shape)), draw(tensor_types(repeated)), draw(tensor_types(shape))
    low, high = draw(clamps(output))
    index = draw(st.integers(0, 1))
    binary = QBinary(
        inputs=(constant, source) if index == 0 else (source, constant), outputs=(output,), low=low, high=high,
        function=draw(st.sampled_from(("add", "subtract", "multiply"))),
        rounding=draw(st.sampled_from(("tflite", "onnx"))),
    )  # fmt: skip
    return QConstantBinary(
        inputs=(source,), outputs=(output,), binary=binary, constant=elements(constant, draw(seeds)), index=index
    )


@pytest.mark.parametrize("kernel", constant_operand.KERNELS, ids=lambda kernel: kernel.name)
@FEW
@given(drawn=st.lists(operators(), min_size=8, max_size=24), seed=seeds)
def test_results_are_those_of_two_tensors(kernel: Kernel, drawn: list[QConstantBinary], seed: int) -> None:
    taken = [operator for operator in drawn if kernel.refuses(operator, HOST) is None]
    inputs = [[elements(operator.inputs[0], seed)] for operator in taken]
    if taken:
        results = assert_c_equals_reference(list(taken), inputs, kernel)
        for operator, arrays, result in zip(taken, inputs, results, strict=True):
            np.testing.assert_array_equal(result, constant_operand.reference(operator, arrays)[0])


def per_channel(function: str, constants: list[int], *, scale: float = 0.02) -> QConstantBinary:
    """TensorFlow Lite's form: int8[1, 8, 8, C], and a constant for each channel."""
    image, channels = (1, 8, 8, len(constants)), (1, 1, 1, len(constants))

    def tensor(shape: tuple[int, ...], scale: float, zero_point: int) -> TensorType:
        return TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=scale, zero_point=zero_point))

    source, constant, output = tensor(image, 0.05, 3), tensor(channels, scale, -4), tensor(image, 0.07, 5)
    binary = QBinary(
        inputs=(source, constant), outputs=(output,), function=function, low=-128, high=127, rounding="tflite",  # type: ignore[arg-type]
    )  # fmt: skip
    array = np.array(constants, np.int8).reshape(channels)
    return QConstantBinary(inputs=(source,), outputs=(output,), binary=binary, constant=array, index=1)


def kernel_of(operator: QConstantBinary) -> str:
    made = select(operator, HOST)
    assert isinstance(made, Implementation)
    return made.kernel


@pytest.mark.parametrize("function", ["add", "subtract"])
def test_sums_of_channels_lie_on_lines(function: str) -> None:
    """Each of the 256 elements has TensorFlow Lite's result by one factor for all channels and an addend for each."""
    operator = per_channel(function, [-100, -7, 0, 55, 127])
    found = constant_operand.lines(operator)
    assert found is not None and found.addends.size == 5
    x = np.broadcast_to(np.arange(-128, 128)[:, None] - 3, (256, 5))
    expected = constant_operand.reference(operator, [(x + 3).astype(np.int8)], operator.constant.reshape(-1))[0]
    values = (x.astype(np.int64) * found.factors + found.addends) >> found.shift
    np.testing.assert_array_equal(np.clip(values, -128, 127), expected)


def test_a_number_becomes_a_table() -> None:
    assert kernel_of(per_channel("multiply", [33])) == "qbinary_number_i8"


def test_refusals_name_the_limit() -> None:
    operator = per_channel("add", [1, 2, 3])
    alone = constant_operand.NUMBER.refuses(operator, HOST)
    assert alone is not None and "one number" in alone.reason
    few = per_channel("add", [*range(100)])
    shape = (1, 1, 3, 100)
    tall = TensorType(shape=shape, dtype="int8", quantization=few.output.quantization)
    small = QConstantBinary(inputs=(tall,), outputs=(tall,), binary=few.binary, constant=few.constant, index=1)
    refused = constant_operand.LINES.refuses(small, HOST)
    assert refused is not None and "four times" in refused.reason
