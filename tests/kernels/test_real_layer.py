"""Integer sums that become real numbers: C of all targets against the reference bit for bit, that against real sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.composites.real_layers import MOST_SUM, UNIT
from codegen_c.kernels.contract import Implementation, StoredRows, Target
from codegen_c.kernels.convolution import real_layer
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import QConv2d, QDense, Quantization, RealLayer, TensorType
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from tests.kernels.dsp import CORTEX_M4
from tests.kernels.harness import HOST, run_every_way
from tests.kernels.helium import M55
from tests.kernels.quantized import FEW, elements, limits, real, seeds, tensor_types
from tests.kernels.test_qconv2d import convolutions, convolve
from tests.kernels.test_qdense import dense_layers

FEWER = settings(FEW, max_examples=3)
RELU = Instruction(function="maximum", operands=(Operand(kind="value"), Operand(kind="number", number=0.0)))
ADD = Instruction(function="add", operands=(Operand(kind="value"), Operand(kind="input", index=1)))
BY_CHANNEL = Instruction(function="multiply", operands=(Operand(kind="value"), Operand(kind="channel")))


@st.composite
def real_layers(draw: st.DrawFn, layers: st.SearchStrategy[QConv2d | QDense]) -> RealLayer:
    """A layer of integers with a bias, and one of: nothing behind it, a clamp, factors by channel, a tensor added."""
    given_layer = draw(layers)
    shape, channels = given_layer.output.shape, given_layer.output.shape[-1]
    random = np.random.default_rng(draw(seeds))
    source = given_layer.inputs[0]
    assert source.quantization is not None
    steps = replace(source, quantization=Quantization(scale=1.0, zero_point=source.quantization.zero_point))
    is_image = isinstance(given_layer, QConv2d)
    one = shape if is_image else (1, channels)
    steps = steps if is_image else replace(steps, shape=(1, source.shape[-1]))
    layer = replace(
        given_layer, inputs=(steps,), outputs=(TensorType(shape=one, dtype="int32", quantization=UNIT),),
        weight_scale=np.ones(channels, np.float32),
        bias=np.zeros(channels, np.int32), low=-MOST_SUM, high=MOST_SUM,
    )  # fmt: skip
    scale = (np.float32(source.quantization.scale) * given_layer.weight_scale).astype(np.float32)
    output = draw(st.sampled_from((TensorType(shape=shape, dtype="float32"), given_layer.output)))
    finish = draw(st.sampled_from((None, RELU, BY_CHANNEL, ADD)))
    added = draw(st.sampled_from((TensorType(shape=shape, dtype="float32"), None))) or draw(tensor_types(shape))
    factors = (random.standard_normal(channels).astype(np.float32),) if finish is BY_CHANNEL else ()
    return RealLayer(
        inputs=(source, *((added,) if finish is ADD else ())), outputs=(output,), layer=layer, scale=scale,
        bias=random.standard_normal(channels).astype(np.float32),
        finish=ScalarProgram(instructions=(finish,) if finish else (), channel_constants=factors),
        rounding=draw(st.sampled_from(("onnx", "tflite"))),
    )  # fmt: skip


CONVOLUTIONS = st.one_of(convolutions(), convolutions(depthwise=True)).filter(lambda made: made.output.shape[0] == 1)
LAYERS = st.one_of(real_layers(CONVOLUTIONS), real_layers(dense_layers()))


def inputs_of(operator: RealLayer, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [
        random.standard_normal(kind.shape).astype(np.float32) if kind.dtype == "float32" else elements(kind, seed + i)
        for i, kind in enumerate(operator.inputs)
    ]


def implementation(operator: RealLayer, target: Target, stored: StoredRows) -> Implementation:
    assert real_layer.KERNEL.refuses(operator, target) is None
    return real_layer.KERNEL.implement(operator, target, stored)


@pytest.mark.parametrize("target", [HOST, CORTEX_M4, M55], ids=["host", "dsp", "helium"])
@FEWER
@given(st.lists(LAYERS, min_size=2, max_size=4), seeds)
def test_every_target_gives_the_bits_of_the_reference(target: Target, operators: list[RealLayer], seed: int) -> None:
    inputs = [inputs_of(operator, seed) for operator in operators]
    every = run_every_way(operators, inputs, lambda operator, stored: implementation(operator, target, stored))
    for operator, arrays, runs in zip(operators, inputs, every, strict=True):
        (expected,) = real_layer.reference(operator, arrays)
        np.testing.assert_array_equal(runs.whole, expected)
        for way, found in runs.others.items():
            np.testing.assert_array_equal(found, expected, err_msg=way)


@FEW
@given(LAYERS, seeds)
def test_the_reference_is_real_arithmetic(operator: RealLayer, seed: int) -> None:
    """Products of real numbers in double precision, with a bias and what follows, by the tool's own formula."""
    inputs = inputs_of(operator, seed)
    x, layer = real(operator.inputs[0], inputs[0]), operator.layer
    weight = layer.weight.astype(np.float64) * (operator.scale.astype(np.float64) / source_scale(operator)).reshape(
        -1, *[1] * (layer.weight.ndim - 1)
    )
    if isinstance(layer, QConv2d):
        expected = convolve(x, weight, operator.bias.astype(np.float64), layer)
    else:
        expected = x @ weight.T + operator.bias
    if operator.finish.instructions:
        (instruction,) = operator.finish.instructions
        other = (
            0.0 if instruction is RELU else operator.finish.channel_constants[0] if instruction is BY_CHANNEL
            else inputs[1] if operator.inputs[1].dtype == "float32" else real(operator.inputs[1], inputs[1])
        )  # fmt: skip
        expected = {"maximum": np.maximum, "multiply": np.multiply, "add": np.add}[instruction.function](
            expected, other
        )
    (found,) = real_layer.reference(operator, inputs)
    if operator.output.dtype == "float32":
        np.testing.assert_allclose(found, expected, atol=1e-5 * max(1e-30, float(np.abs(expected).max())))
        return
    known = operator.output.quantization
    assert known is not None
    low, high = limits(operator.output)
    steps = np.clip(expected / known.scale + known.zero_point, low, high)
    assert np.abs(found - steps).max() <= 0.5 + 1e-5 * max(1.0, float(np.abs(expected / known.scale).max()))


def source_scale(operator: RealLayer) -> float:
    known = operator.inputs[0].quantization
    assert known is not None
    return float(np.float32(known.scale))


def _dense(**changed: object) -> RealLayer:
    source = TensorType(shape=(1, 64), dtype="int8", quantization=Quantization(scale=0.5, zero_point=3))
    layer = QDense(
        inputs=(replace(source, quantization=Quantization(scale=1.0, zero_point=3)),),
        outputs=(TensorType(shape=(1, 8), dtype="int32", quantization=UNIT),), weight=np.ones((8, 64), np.int8),
        weight_scale=np.ones(8, np.float32), bias=np.zeros(8, np.int32), low=-MOST_SUM, high=MOST_SUM,
    )  # fmt: skip
    made = RealLayer(
        inputs=(source,), outputs=(TensorType(shape=(1, 8), dtype="float32"),), layer=layer,
        scale=np.ones(8, np.float32), bias=np.zeros(8, np.float32),
    )  # fmt: skip
    return replace(made, **changed)


@pytest.mark.parametrize(("target", "kernel"), [
    (HOST, "qdense_i8_real"), (CORTEX_M4, "qdense_dsp_real"), (M55, "qdense_helium_real"),
])  # fmt: skip
def test_products_are_those_of_the_targets_own_kernel(target: Target, kernel: str) -> None:
    chosen = select(_dense(), target)
    assert isinstance(chosen, Implementation) and chosen.kernel == kernel


def test_refusals() -> None:
    plain = _dense()
    wide = replace(plain.layer.inputs[0], dtype="int32")
    shorter = TensorType(shape=(1, 1), dtype="float32")
    refused = {
        "sums of 32 bits": replace(plain, layer=replace(plain.layer, inputs=(wide,))),
        "result's shape": replace(plain, inputs=(*plain.inputs, shorter)),
    }
    for reason, operator in refused.items():
        refusal = real_layer.KERNEL.refuses(operator, HOST)
        assert refusal is not None and reason in refusal.reason
