"""Kernels of WebAssembly's vectors: C with its plain fallback against the portable kernels' references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Operator, QConv2d, QDense, QPool2d
from codegen_c.targets.registry import target_of
from codegen_c.targets.simd128.kernels import depthwise, plain, products
from codegen_c.targets.simd128.kernels.rescale import FloatForm
from tests.kernels.dsp import SOME
from tests.kernels.on_target import for_target, taken_on
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds, varied
from tests.kernels.test_qbinary import binaries
from tests.kernels.test_qconv2d import convolutions
from tests.kernels.test_qdense import dense_layers
from tests.kernels.test_qpool2d import pools
from tvm_ext.core.platform import Platform

SIMD128 = target_of(Platform.load("wasm").processor)


def as_maximum(operator: QPool2d, channels: int) -> QPool2d:
    """The pool as a max pool of images with so many channels; its limits stay within the input's type."""
    source = replace(operator.inputs[0], shape=(*operator.inputs[0].shape[:3], channels))
    output = replace(source, shape=(*operator.output.shape[:3], channels))
    info = np.iinfo(source.dtype)
    low, high = (int(np.clip(limit, info.min, info.max)) for limit in (operator.low, operator.high))
    return replace(operator, inputs=(source,), outputs=(output,), method="max", low=low, high=high)


def nine_bit_weights(layers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return the layers with new weights: bytes minus a zero point, some of which are outside the range of int8."""

    def wider(layer: QConv2d | QDense, zero_point: int) -> QConv2d | QDense:
        return replace(layer, weight=layer.weight.astype(np.int16) + np.int16(128 - zero_point))

    return st.builds(wider, layers, st.sampled_from([0, 61, 120, 174, 255]))


STRATEGIES = {
    products.QCONV2D: convolutions(),
    products.QDENSE: dense_layers(),
    depthwise.QDEPTHWISE: convolutions(depthwise=True),
    plain.QBINARY: binaries(),
    plain.MAXIMUM: st.builds(as_maximum, pools(), st.integers(1, 40)),
}
"""Kernels, and operators that most of them take."""
NINE_BITS = {
    products.QCONV2D_NINE_BITS: nine_bit_weights(convolutions()),
    products.QDENSE_NINE_BITS: nine_bit_weights(dense_layers()),
    depthwise.QDEPTHWISE_NINE_BITS: nine_bit_weights(convolutions(depthwise=True)),
}
"""Kernels that use the loops of STRATEGIES with weights of 9 bits, and operators that most of them take."""


@pytest.mark.parametrize("kernel", STRATEGIES, ids=lambda kernel: kernel.name)
def test_bytes_are_those_of_the_reference(kernel: Kernel) -> None:
    @settings(SOME, max_examples=2)
    @given(varied(taken_on(SIMD128, kernel, STRATEGIES[kernel]), least=2, most=5), seeds)
    def check(operators: list[Operator], seed: int) -> None:
        inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
        assert_c_equals_reference(operators, inputs, for_target(kernel, SIMD128))

    check()


@pytest.mark.parametrize("kernel", NINE_BITS, ids=lambda kernel: kernel.name)
def test_weights_of_nine_bits(kernel: Kernel) -> None:
    @settings(SOME, max_examples=1)
    @given(taken_on(SIMD128, kernel, NINE_BITS[kernel]), seeds)
    def check(operator: QConv2d | QDense, seed: int) -> None:
        made = select(operator, SIMD128)
        assert isinstance(made, Implementation)
        assert kernel.name in {made.kernel, *(other.kernel for other in made.alternatives)}
        assert_c_equals_reference([operator], [[elements(operator.inputs[0], seed)]], for_target(kernel, SIMD128))

    check()


@settings(SOME, max_examples=25)
@given(taken_on(SIMD128, products.QCONV2D, convolutions()))
def test_floats_give_every_sum_its_element(operator: QConv2d) -> None:
    """All sums near the begin of an element and near zero, by the arithmetic of the code."""
    exact, (low, high) = qconv2d.requantize(operator), qconv2d.products(operator).range()
    form = FloatForm.of(exact, low, high)
    if form is None:
        return
    steps = np.linspace(0, 1, 4001)[:, None]
    sums = np.unique(
        np.concatenate([(low + (high - low) * steps).astype(np.int64), np.arange(-50, 51)[:, None] + 0 * low])
    )
    for channel in range(len(low)):
        inside = sums[(sums >= low[channel]) & (sums <= high[channel])]
        offsets = np.where(inside < 0, form.negative_offsets[channel], form.offsets[channel]).astype(np.float32)
        product = inside.astype(np.float32) * form.factors[channel]
        zero_point = operator.output.quantization.zero_point  # type: ignore[union-attr]
        found = np.clip(np.rint(product + offsets) + zero_point, exact.low, exact.high)
        whole = np.zeros((len(inside), len(low)), np.int64)
        whole[:, channel] = inside
        np.testing.assert_array_equal(found, exact.run(whole)[:, channel])
