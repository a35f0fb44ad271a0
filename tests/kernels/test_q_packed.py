"""Weights of 4 bits: C of every kernel for them gives the bytes of the int8 kernel's reference on the same weights."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Kernel
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.operators.kinds import PackedQConv2d, PackedQDense, QConv2d, QDense
from codegen_c.targets.dsp.kernels import convolution as convolution_dsp
from codegen_c.targets.dsp.kernels import dense as dense_dsp
from codegen_c.targets.dsp.kernels import depthwise as depthwise_dsp
from codegen_c.targets.helium.kernels import convolution as convolution_helium
from codegen_c.targets.helium.kernels import dense as dense_helium
from tests.kernels.dsp import SOME, for_cortex_m4, taken_by
from tests.kernels.harness import HOST
from tests.kernels.helium import assert_same_bytes, takes
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qconv2d import convolutions
from tests.kernels.test_qconv2d_helium import convolutions as helium_convolutions
from tests.kernels.test_qdense import dense_layers

FEWER = settings(SOME, max_examples=2)
HELIUM = (convolution_helium.QCONV2D_PACKED, convolution_helium.QPOINTWISE_PACKED)
Packed = TypeVar("Packed", PackedQConv2d, PackedQDense)


def packed(operator: QConv2d | QDense, kind: type[Packed]) -> Packed:
    """The layer with weights of 4 bits: the upper ones of what it has, the scales 16 times as large."""
    values = {own.name: getattr(operator, own.name) for own in fields(operator)}
    return kind(**values | {"weight": operator.weight >> 4, "weight_scale": operator.weight_scale * np.float32(16)})


def packed_convolutions(*, depthwise: bool = False) -> st.SearchStrategy[PackedQConv2d]:
    return convolutions(depthwise=depthwise).map(lambda operator: packed(operator, PackedQConv2d))


def packed_layers() -> st.SearchStrategy[PackedQDense]:
    return dense_layers().map(lambda operator: packed(operator, PackedQDense))


def assert_equals_int8(operators: list[QConv2d] | list[QDense], seed: int, kernel: Kernel) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, kernel)
    plain = qconv2d if isinstance(operators[0], QConv2d) else qdense
    for operator, arrays, result in zip(operators, inputs, results, strict=True):
        np.testing.assert_array_equal(plain.reference(operator, arrays)[0], result)  # type: ignore[arg-type]


@FEWER
@given(st.lists(st.one_of(packed_convolutions(), packed_convolutions(depthwise=True)), min_size=1, max_size=3), seeds)
def test_convolutions_in_plain_c(operators: list[PackedQConv2d], seed: int) -> None:
    taken = [operator for operator in operators if qconv2d.QCONV2D_PACKED.refuses(operator, HOST) is None]
    if taken:
        assert_equals_int8(list(taken), seed, qconv2d.QCONV2D_PACKED)


@FEWER
@given(st.lists(packed_layers(), min_size=1, max_size=3), seeds)
def test_dense_layers_in_plain_c(operators: list[PackedQDense], seed: int) -> None:
    taken = [operator for operator in operators if qdense.QDENSE_PACKED.refuses(operator, HOST) is None]
    if taken:
        assert_equals_int8(list(taken), seed, qdense.QDENSE_PACKED)


@FEWER
@given(st.lists(taken_by(convolution_dsp.QCONV2D_PACKED, packed_convolutions()), min_size=1, max_size=3), seeds)
def test_convolutions_by_the_dsp_extension(operators: list[PackedQConv2d], seed: int) -> None:
    assert_equals_int8(list(operators), seed, for_cortex_m4(convolution_dsp.QCONV2D_PACKED))


@FEWER
@given(
    st.lists(taken_by(depthwise_dsp.QDEPTHWISE_PACKED, packed_convolutions(depthwise=True)), min_size=1, max_size=3),
    seeds,
)
def test_depthwise_convolutions_by_the_dsp_extension(operators: list[PackedQConv2d], seed: int) -> None:
    assert_equals_int8(list(operators), seed, for_cortex_m4(depthwise_dsp.QDEPTHWISE_PACKED))


@FEWER
@given(st.lists(taken_by(dense_dsp.QDENSE_PACKED, packed_layers()), min_size=1, max_size=3), seeds)
def test_dense_layers_by_the_dsp_extension(operators: list[PackedQDense], seed: int) -> None:
    assert_equals_int8(list(operators), seed, for_cortex_m4(dense_dsp.QDENSE_PACKED))


@pytest.mark.parametrize("kernel", HELIUM, ids=lambda kernel: kernel.name)
@FEWER
@given(st.data(), seeds)
def test_convolutions_by_helium(kernel: Kernel, data: st.DataObject, seed: int) -> None:
    shapes = helium_convolutions(pointwise=kernel is convolution_helium.QPOINTWISE_PACKED)
    every = shapes.map(lambda operator: packed(operator, PackedQConv2d)).filter(takes(kernel))
    assert_same_bytes(kernel, data.draw(st.lists(every, min_size=1, max_size=3)), seed)


@FEWER
@given(st.lists(packed_layers().filter(takes(dense_helium.QDENSE_PACKED)), min_size=1, max_size=3), seeds)
def test_dense_layers_by_helium(operators: list[PackedQDense], seed: int) -> None:
    assert_same_bytes(dense_helium.QDENSE_PACKED, list(operators), seed)
