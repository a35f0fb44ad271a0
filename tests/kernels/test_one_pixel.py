"""Convolutions of one pixel, which kernels of dense layers compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.kernels.contract import Implementation, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.vector_rows import as_dense
from codegen_c.operators.kinds import QConv2d, QDense, Quantization, Rounding, TensorType, Window
from codegen_c.targets.registry import target_of
from tests.kernels.dsp import CORTEX_M4
from tests.kernels.harness import run_kernel
from tests.kernels.quantized import elements
from tvm_ext.core.platform import Platform

CORTEX_M55 = target_of(Platform.load("cortex_m55").processor)


def pixel(rounding: Rounding = "tflite", *, shared_scale: bool = True) -> QConv2d:
    """48 channels to 24. shared_scale: of all channels; times the input's it differs between the two precisions."""
    random = np.random.default_rng(11)
    scale = np.full(24, 0.0123456, np.float32) if shared_scale else np.linspace(0.01, 0.02, 24).astype(np.float32)

    def vector(channels: int, scale: float) -> TensorType:
        quantization = Quantization(scale=scale, zero_point=-5)
        return TensorType(shape=(1, 1, 1, channels), dtype="int8", quantization=quantization)

    return QConv2d(
        inputs=(vector(48, 0.1003),), outputs=(vector(24, 0.2),),
        weight=random.integers(-128, 128, (24, 1, 1, 48)).astype(np.int8), weight_scale=scale,
        bias=random.integers(-999, 999, 24).astype(np.int32), window=Window(kernel=(1, 1)), low=-128, high=127,
        rounding=rounding,
    )  # fmt: skip


@pytest.mark.parametrize(("target", "kernel"), [(CORTEX_M4, "qdense_dsp"), (CORTEX_M55, "qdense_helium")])
def test_a_dense_kernel_computes_it(target: Target, kernel: str) -> None:
    chosen = select(pixel(), target)
    assert isinstance(chosen, Implementation) and chosen.kernel == kernel
    assert chosen.in_rows is not None, "by rows it is a convolution"
    assert {"qconv2d_i8", "qdense_i8"} <= {alternative.kernel for alternative in chosen.alternatives}


@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
@pytest.mark.parametrize("shared_scale", [True, False])
def test_it_rounds_as_a_convolution(rounding: Rounding, shared_scale: bool) -> None:
    """Both multiply the scales of input and weights in double precision."""
    operator = pixel(rounding, shared_scale=shared_scale)
    chosen = select(operator, CORTEX_M4)
    assert isinstance(chosen, Implementation)
    x = elements(operator.inputs[0], 1)
    np.testing.assert_array_equal(chosen.reference([x])[0], qconv2d.reference(operator, [x])[0])
    assert as_dense(operator) is not None


def test_more_than_one_pixel_stays_a_convolution() -> None:
    operator = pixel()
    wide = [replace(tensor, shape=(1, 1, 2, tensor.shape[3])) for tensor in (operator.inputs[0], operator.output)]
    assert as_dense(replace(operator, inputs=(wide[0],), outputs=(wide[1],))) is None
    assert as_dense(replace(operator, window=Window(kernel=(1, 1)), groups=2)) is None


def vectors(rounding: Rounding = "onnx") -> QDense:
    """Seven vectors of 48 elements to 24."""
    one = pixel(rounding)

    def several(tensor: TensorType) -> TensorType:
        return replace(tensor, shape=(1, 7, tensor.shape[-1]))

    return QDense(
        inputs=(several(one.inputs[0]),), outputs=(several(one.output),), weight=one.weight.reshape(24, 48),
        weight_scale=one.weight_scale, bias=one.bias, low=one.low, high=one.high, rounding=rounding,
    )  # fmt: skip


def test_a_convolution_kernel_computes_several_vectors() -> None:
    operator = vectors()
    chosen = select(operator, CORTEX_M4)
    assert isinstance(chosen, Implementation) and chosen.kernel == "qconv2d_dsp"
    assert chosen.spatial is not None and chosen.spatial.output_rows == 7, "its rows are the vectors"
    x = elements(operator.inputs[0], 3)
    (expected,) = qdense.reference(operator, [x])
    np.testing.assert_array_equal(run_kernel(operator, chosen, [x])[0], expected)
    np.testing.assert_array_equal(chosen.reference([x])[0], expected)
    assert chosen.keeping is not None
    np.testing.assert_array_equal(chosen.keeping(StoredRows()).reference([x])[0], expected)


def test_several_vectors_that_tflite_rounds_otherwise_stay_dense() -> None:
    chosen = select(vectors("tflite"), CORTEX_M4)
    assert isinstance(chosen, Implementation) and chosen.kernel == "qdense_dsp"
