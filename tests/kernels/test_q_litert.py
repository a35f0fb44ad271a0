"""LiteRT's default rounding: its proof as one rounding over every sum, and its C by integers and by kernels."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import CFunction, Implementation, Parameter
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.requantize import Requantize
from codegen_c.kernels.shared.requantize_litert import INCLUDES, bits_of, first_sums, multiply
from codegen_c.operators.kinds import QBinary, QConv2d, Quantization, TensorType, Window
from codegen_c.targets.dsp.kernels.product import FastRequantize
from tests.kernels.dsp import CORTEX_M4
from tests.kernels.harness import HOST, compile_kernels
from tests.kernels.quantized import assert_c_equals_reference

MANY = settings(max_examples=60, deadline=None, derandomize=True)
LARGEST = 40_000
factors = st.floats(2.0**-20, 1.0, width=32)


def requantize(values: list[float], zero_point: int = 0, low: int = -128) -> Requantize:
    output = TensorType(shape=(1, 1), dtype="int8", quantization=Quantization(scale=1.0, zero_point=zero_point))
    return Requantize.of(np.array(values), output=output, low=low, high=127, rounding="litert")


def every_sum(channels: int) -> np.ndarray:
    return np.broadcast_to(np.arange(-LARGEST, LARGEST + 1)[:, None], (2 * LARGEST + 1, channels)).astype(np.int64)


@MANY
@given(st.lists(factors, min_size=1, max_size=4), st.integers(-128, 127), st.integers(-128, 100))
def test_one_rounding_is_used_only_where_every_sum_has_the_same_element(
    values: list[float], zero_point: int, low: int
) -> None:
    exact = requantize(values, zero_point, low)
    bound = np.full(len(values), LARGEST)
    proved = exact.proved(-bound, bound)
    sums = every_sum(len(values))
    np.testing.assert_array_equal(proved.run(sums), exact.run(sums))


def test_most_channels_have_one_rounding_and_those_without_multiply_as_floats() -> None:
    random = np.random.default_rng(1)
    bound = np.array([LARGEST])
    proved = [requantize([value]).proved(-bound, bound).rounding for value in random.uniform(1e-3, 0.02, 200)]
    assert 150 < proved.count("onnx") < 200
    assert proved.count("litert") == 200 - proved.count("onnx")


@MANY
@given(factors, st.integers(-128, 127))
def test_the_first_sum_of_each_step_is_the_least_that_reaches_it(factor: float, zero_point: int) -> None:
    steps = np.arange(-127, 128) - zero_point
    bits = np.array([bits_of(factor)], np.int32)
    bound = np.array([LARGEST])
    found = first_sums(bits, -bound, bound, steps)[0]
    results = multiply(np.arange(-LARGEST, LARGEST + 1), np.broadcast_to(bits, 2 * LARGEST + 1))
    np.testing.assert_array_equal(found, np.searchsorted(results, steps) - LARGEST)


def test_sums_and_products_are_rounded_to_24_bits() -> None:
    bits = np.array([bits_of(1.0)], np.int32)
    assert multiply(np.array([(1 << 24) + 1]), bits)[0] == 1 << 24
    # 3 * float32(1/6) is 0.5000000149 exactly, and 0.5 as a float: the half goes to the even neighbor.
    sixth = np.array([bits_of(1 / 6)], np.int32)
    assert multiply(np.array([3]), sixth)[0] == 0


def test_integers_alone_give_what_floats_give() -> None:
    function = CFunction(
        parameters=(
            Parameter(name="sums", ctype="int32_t", role="input"),
            Parameter(name="bits", ctype="int32_t", role="input"),
            Parameter(name="output", ctype="int32_t", role="output"),
        ),
        body=(
            "for (int32_t i = 0; i < 20000; ++i) {\n"
            "    output[i] = tvm_ext_requantize_litert_by_integers(sums[i], bits[i]);\n}"
        ),
        includes=INCLUDES,
    )
    made = Implementation(kernel="probe", function=function, reference=lambda _: [])
    random = np.random.default_rng(0)
    factor = np.exp2(random.uniform(-30, 2, 20_000)).astype(np.float32)
    steps = random.integers(-300, 300, 20_000) + 0.5
    near_halves = np.clip(np.rint(steps / factor.astype(np.float64)), -(2**31) + 1, 2**31 - 1)
    any_sum = random.integers(-(2**26), 2**26, 20_000)
    sums = np.where(random.integers(0, 4, 20_000) > 0, near_halves, any_sum).astype(np.int32)
    bits = factor.view(np.int32)
    output = np.zeros(20_000, np.int32)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (sums, bits, output)]
    compile_kernels([made])[0](*pointers)
    np.testing.assert_array_equal(output, multiply(sums.astype(np.int64), bits))


def kind(*shape: int, scale: float, zero_point: int = 0) -> TensorType:
    return TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=scale, zero_point=zero_point))


def convolution(scales: list[float], *, output_scale: float = 0.02) -> QConv2d:
    random = np.random.default_rng(3)
    channels = len(scales)
    return QConv2d(
        inputs=(kind(1, 6, 6, 8, scale=0.05, zero_point=-3),),
        outputs=(kind(1, 6, 6, channels, scale=output_scale, zero_point=5),),
        weight=random.integers(-127, 128, (channels, 3, 3, 8)).astype(np.int8),
        weight_scale=np.array(scales, np.float32), bias=random.integers(-9000, 9000, channels).astype(np.int32),
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)), low=-128, high=127, rounding="litert",
    )  # fmt: skip


def without_proof() -> QConv2d:
    """A convolution with a channel whose factor no single rounding replaces."""
    random = np.random.default_rng(5)
    for _ in range(100):
        operator = convolution(list(random.uniform(1e-4, 1e-3, 8)))
        if qconv2d.requantize(operator).rounding == "litert":
            return operator
    raise AssertionError("every factor has one rounding")


def test_c_of_layers_is_the_reference_with_and_without_a_proof() -> None:
    proved = convolution([0.004])
    assert qconv2d.requantize(proved).rounding == "onnx"
    operators = [proved, without_proof()]
    inputs = [[np.random.default_rng(7).integers(-128, 128, (1, 6, 6, 8)).astype(np.int8)] for _ in operators]
    assert_c_equals_reference(operators, inputs, qconv2d.QCONV2D)


def test_products_and_sums_of_two_tensors_follow_xnnpack() -> None:
    random = np.random.default_rng(9)
    shape = (1, 4, 4, 16)
    operators = [
        QBinary(
            inputs=(kind(*shape, scale=0.03, zero_point=4), kind(*shape, scale=0.05, zero_point=-9)),
            outputs=(kind(*shape, scale=0.09 if name != "multiply" else 0.02),), function=name, low=-128, high=127,
            rounding="litert",
        )
        for name in ("add", "subtract", "multiply")
    ]  # fmt: skip
    inputs = [[random.integers(-128, 128, shape).astype(np.int8) for _ in range(2)] for _ in operators]
    assert_c_equals_reference(operators, inputs, qbinary.QBINARY)


def test_kernels_of_targets_take_layers_without_a_proof() -> None:
    operator = without_proof()
    assert FastRequantize.of(qconv2d.requantize(operator), *qconv2d.bounds(operator)).members()["in_floats"]
    chosen = [select(operator, target) for target in (CORTEX_M4, HOST)]
    assert [one.kernel for one in chosen if isinstance(one, Implementation)] == ["qwinograd_dsp", "qconv2d_pairs_i8"]


@pytest.mark.parametrize("factor", [0.0, 2.0**-40])
def test_factors_that_no_mantissa_holds_multiply_as_floats(factor: float) -> None:
    bound = np.array([LARGEST])
    assert requantize([factor]).proved(-bound, bound).rounding == "litert"
