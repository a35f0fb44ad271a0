"""TensorFlow Lite constants of zeros whose scale is 0 in the file, and constants without elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.tflite_cases.case import ints
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_runners import litert, referenced, saved_tflite, tflite_micro
from tvm_ext.core.errors import BadModel

STEPS = Quantized(scale=0.05, zero_point=-3)


def convolution(dead: int, bias_of_dead: int = 0, scale_of_dead: float = 0.0) -> tuple[bytes, np.ndarray]:
    """int8 [1, 5, 5, 2] -> [1, 5, 5, 3]; one channel has no weights, and that bias and scale."""
    random, writer = np.random.default_rng(0), TfliteWriter()
    x = writer.input("x", (1, 5, 5, 2), "int8", STEPS)
    weights = random.integers(-127, 128, (3, 3, 3, 2)).astype(np.int8)
    bias = random.integers(-500, 500, 3).astype(np.int32)
    scales = np.array([0.01, 0.02, 0.03], np.float32)
    weights[dead], bias[dead], scales[dead] = 0, bias_of_dead, scale_of_dead
    given = [x, writer.constant("w", weights, Quantized(scale=list(scales))),
             writer.constant("b", bias, Quantized(scale=list(scales * np.float32(STEPS.scale))))]  # fmt: skip
    y = writer.tensor("y", (1, 5, 5, 3), "int8", Quantized(scale=0.4, zero_point=5))
    writer.operator("CONV_2D", given, y, "Conv2DOptions", StrideW=1, StrideH=1)
    return writer.finish([y]), random.integers(-128, 128, (1, 5, 5, 2)).astype(np.int8)


@pytest.mark.parametrize("dead", [0, 2])
def test_a_channel_without_weights(dead: int, tmp_path: Path) -> None:
    data, x = convolution(dead)
    found, kernels = referenced(saved_tflite(data, tmp_path), [x])
    assert len(kernels) == 1 and kernels[0].startswith("qconv2d")
    np.testing.assert_array_equal(found[0], tflite_micro(data, [x]))
    np.testing.assert_array_equal(found[0], litert(data, [x])[0])


@pytest.mark.parametrize("bias", [1 << 30, -(1 << 30), 1_000_000_000])
def test_a_channel_that_its_bias_alone_decides(bias: int, tmp_path: Path) -> None:
    """Converters give channels that training left without weights biases and scales at the ends of their ranges."""
    data, x = convolution(1, bias, 3e-8)
    found, _ = referenced(saved_tflite(data, tmp_path), [x])
    assert len(np.unique(found[0][..., 1])) == 1
    np.testing.assert_array_equal(found[0], tflite_micro(data, [x]))
    np.testing.assert_array_equal(found[0], litert(data, [x])[0])


@pytest.mark.parametrize("operator", ["MUL", "ADD", "SUB"])
def test_an_operand_of_zeros(operator: str, tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", (1, 8), "int8", STEPS)
    zeros = writer.constant("zeros", np.full((1, 8), 7, np.int8), Quantized(scale=0.0, zero_point=7))
    y = writer.operator(operator, [x, zeros], writer.tensor("y", (1, 8), "int8", STEPS), f"{operator.title()}Options")
    data, x = writer.finish([y]), np.arange(-128, 128, 32).astype(np.int8)[np.newaxis]
    found, _ = referenced(saved_tflite(data, tmp_path), [x])
    np.testing.assert_array_equal(found[0], np.full_like(x, STEPS.zero_point) if operator == "MUL" else x)


def test_other_numbers_need_a_scale(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", (1, 8), "int8", STEPS)
    ones = writer.constant("ones", np.ones((1, 8), np.int8), Quantized(scale=0.0))
    y = writer.operator("ADD", [x, ones], writer.tensor("y", (1, 8), "int8", STEPS), "AddOptions")
    with pytest.raises(BadModel, match=r"tensor 'ones' has a scale of 0\.0; scales are finite and above zero"):
        referenced(saved_tflite(writer.finish([y]), tmp_path), [])


def test_a_shape_without_elements(tmp_path: Path) -> None:
    """A scalar's shape is a constant without bytes."""
    writer = TfliteWriter()
    x = writer.input("x", (1, 1))
    y = writer.operator("RESHAPE", [x, writer.constant("shape", ints())], writer.tensor("y", ()), "ReshapeOptions")
    data, x = writer.finish([y]), np.array([[2.5]], np.float32)
    found, _ = referenced(saved_tflite(data, tmp_path), [x])
    assert found[0].shape == () == litert(data, [x])[0].shape and found[0] == x[0, 0]
