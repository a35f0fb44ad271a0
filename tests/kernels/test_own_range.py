"""Layers that quantize float activations by their own range: C of all targets, TVM's loops and the runtimes' rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax

from codegen_c.composites.real_layers import MOST_SUM, UNIT
from codegen_c.kernels.contract import Implementation, StoredRows, Target
from codegen_c.kernels.convolution import real_layer
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.own_range import steps_of
from codegen_c.operators.kinds import OwnSteps, QConv2d, QDense, RangeMeaning, RealLayer, TensorType, Window, steps_type
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from relay_passes.dataflow import build
from relay_passes.own_operators import range_quantize
from tests.kernels.dsp import CORTEX_M4
from tests.kernels.harness import HOST, run_every_way
from tests.kernels.helium import M55
from tests.support.sweeps import some_of

MEANINGS: tuple[RangeMeaning, ...] = ("onnx", "tflite_asymmetric", "tflite_symmetric")
RELU = Instruction(function="maximum", operands=(Operand(kind="value"), Operand(kind="number", number=0.0)))
ADD = Instruction(function="add", operands=(Operand(kind="value"), Operand(kind="input", index=1)))


def _layer(layer: QConv2d | QDense, source: tuple[int, ...], output: tuple[int, ...], **named: object) -> RealLayer:
    """The layer with random scales and biases. named: further fields."""
    channels, random = output[-1], np.random.default_rng(output[-1])
    return RealLayer(
        inputs=(TensorType(shape=source, dtype="float32"),), outputs=(TensorType(shape=output, dtype="float32"),),
        layer=layer, scale=random.uniform(0.001, 0.01, channels).astype(np.float32),
        bias=random.standard_normal(channels).astype(np.float32), **named,
    )  # fmt: skip


def _sums(shape: tuple[int, ...], weight: np.ndarray, source: tuple[int, ...]) -> dict[str, object]:
    channels = shape[-1]
    return {
        "inputs": (steps_type(source),), "outputs": (TensorType(shape=shape, dtype="int32", quantization=UNIT),),
        "weight": weight, "weight_scale": np.ones(channels, np.float32), "bias": np.zeros(channels, np.int32),
        "low": -MOST_SUM, "high": MOST_SUM,
    }  # fmt: skip


def convolution(
    channels: int, depth: int, window: Window, own: OwnSteps, *, groups: int = 1, **named: object
) -> RealLayer:
    """A layer over an image of 7 by 6."""
    top, left, bottom, right = window.padding
    rows = (7 + top + bottom - window.kernel[0]) // window.strides[0] + 1
    columns = (6 + left + right - window.kernel[1]) // window.strides[1] + 1
    source, output = (1, 7, 6, depth), (1, rows, columns, channels)
    weight = np.random.default_rng(depth).integers(-127, 128, (channels, *window.kernel, depth // groups))
    fields = _sums(output, weight.astype(np.int8), source)
    layer = QConv2d(**fields, window=window, groups=groups)  # type: ignore[arg-type]
    return _layer(layer, source, output, own_steps=own, **named)


def dense(vectors: tuple[int, ...], own: OwnSteps) -> RealLayer:
    weight = np.random.default_rng(5).integers(-127, 128, (9, 20)).astype(np.int8)
    layer = QDense(**_sums((1, 9), weight, (1, 20)))  # type: ignore[arg-type]
    return _layer(layer, (*vectors, 20), (*vectors, 9), own_steps=own)


def layers(meanings: tuple[RangeMeaning, ...]) -> list[RealLayer]:
    """Meanings by convolution, with padding of unequal sides and without, by depthwise and by dense layers."""
    uneven = Window(kernel=(3, 3), strides=(2, 1), padding=(0, 1, 2, 1))
    same = Window(kernel=(3, 3), padding=(1, 1, 1, 1))
    relu = ScalarProgram(instructions=(RELU,))
    found = []
    for meaning in MEANINGS:
        own = OwnSteps(meaning=meaning)
        found += [convolution(8, 12, Window(kernel=(1, 1)), replace(own, scale_last=True)), dense((1,), own)]
    for meaning in meanings:
        own = OwnSteps(meaning=meaning)
        found += [convolution(6, 5, uneven, own, finish=relu), convolution(20, 20, same, own, groups=20)]
    added = convolution(8, 16, same, OwnSteps(meaning="onnx"), finish=ScalarProgram(instructions=(ADD,)))
    added = replace(added, inputs=(*added.inputs, added.output))
    by_vector = OwnSteps(meaning="tflite_asymmetric", by_vector=True)
    few = convolution(4, 4, same, OwnSteps(meaning="tflite_asymmetric"), groups=4)
    return [*found, added, few, dense((3,), by_vector), dense((2, 2), OwnSteps(meaning="onnx"))]


def inputs_of(operator: RealLayer) -> list[np.ndarray]:
    """Random elements of unequal ranges, all above zero in some layers."""
    random = np.random.default_rng(operator.output.num_elements)
    made = [random.standard_normal(kind.shape).astype(np.float32) for kind in operator.inputs]
    made[0] *= np.float32(10) ** random.integers(-3, 3, (*made[0].shape[:-1], 1)).astype(np.float32)
    return [np.abs(made[0]), *made[1:]] if operator.output.shape[-1] == 8 else made


@pytest.mark.parametrize("meanings", some_of([MEANINGS[:1]], sweep=[MEANINGS[1:]]), ids=["onnx", "tflite"])
@pytest.mark.parametrize("target", [HOST, CORTEX_M4, M55], ids=["host", "dsp", "helium"])
def test_every_target_gives_the_bits_of_the_reference(target: Target, meanings: tuple[RangeMeaning, ...]) -> None:
    operators = layers(meanings)
    inputs = [inputs_of(operator) for operator in operators]

    def implementation(operator: RealLayer, stored: StoredRows) -> Implementation:
        assert real_layer.KERNEL.refuses(operator, target) is None
        return real_layer.KERNEL.implement(operator, target, stored)

    every = run_every_way(operators, inputs, implementation)
    for operator, arrays, runs in zip(operators, inputs, every, strict=True):
        (expected,) = real_layer.reference(operator, arrays)
        assert len(np.unique(expected)) > 5
        np.testing.assert_array_equal(runs.whole, expected)
        for way, found in runs.others.items():
            np.testing.assert_array_equal(found, expected, err_msg=way)


@pytest.mark.parametrize(("target", "kernel"), [(CORTEX_M4, "qdepthwise_dsp_real"), (M55, "qdepthwise_helium_real")])
def test_products_are_those_of_the_targets_own_kernel(target: Target, kernel: str) -> None:
    same = Window(kernel=(3, 3), padding=(1, 1, 1, 1))
    chosen = select(convolution(20, 20, same, OwnSteps(meaning="onnx"), groups=20), target)
    assert isinstance(chosen, Implementation) and chosen.kernel == kernel


def test_winograd_leaves_sums_to_others() -> None:
    """It stores elements of 8 bits; of sums of real layers it made wrong numbers."""
    same = Window(kernel=(3, 3), padding=(1, 1, 1, 1))
    chosen = select(convolution(40, 16, same, OwnSteps(meaning="onnx")), CORTEX_M4)
    assert isinstance(chosen, Implementation) and chosen.kernel == "qconv2d_dsp_real"


def test_a_range_needs_all_rows() -> None:
    """Rows of an image cannot come one by one, as they may where the image is quantized before."""
    layer = convolution(6, 5, Window(kernel=(3, 3)), OwnSteps(meaning="onnx"))
    given = replace(layer, inputs=layer.layer.inputs, own_steps=None)
    by_range, by_rows = select(layer, HOST), select(given, HOST)
    assert isinstance(by_range, Implementation) and isinstance(by_rows, Implementation)
    assert by_rows.spatial is not None and not by_rows.rounds_input
    assert by_range.spatial is None and by_range.in_rows is None and by_range.rounds_input


EXTREMES = {
    "ties": np.array([255, 0, 0.5, 1.5, 2.5, -0.0], np.float32),
    "ties_below": np.array([127, -128, 0.5, 1.5, -0.5, -2.5], np.float32),
    "above": np.array([3, 1, 2], np.float32),
    "below": np.array([-3, -1, -2], np.float32),
    "zeros": np.zeros(4, np.float32),
    "just_below_a_half": np.array([127, 0.49999997, -0.49999997, -127], np.float32),
    "tiny": np.array([1e-44, 0, 1e-45], np.float32),
}


@pytest.mark.parametrize("meaning", MEANINGS)
def test_tvm_and_the_reference_agree(meaning: RangeMeaning) -> None:
    """The operator's own loops in TVM, as real numbers."""
    for name, x in EXTREMES.items():
        if name == "tiny":
            continue  # TVM's LLVM may flush these
        var = relax.Var("x", relax.TensorType([2, x.size], "float32"))
        call = range_quantize(var, meaning, 1)
        result = relax.DataflowVar("y", call.ty)
        module = tvm.IRModule({"main": build([var], [relax.VarBinding(result, call)], [result], attrs=None)})
        machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
        both = np.stack([x, x[::-1] / 3])
        found = machine["main"](tvm.runtime.tensor(both))
        steps, scale = steps_of(OwnSteps(meaning=meaning, by_vector=True), both)
        np.testing.assert_allclose(found.numpy(), steps * scale, rtol=1e-6, err_msg=f"{name}, {meaning}")


def test_halves() -> None:
    """To even numbers in ONNX, away from zero in TensorFlow Lite, which 0.49999997 is not."""
    ties = EXTREMES["ties"]
    assert steps_of(OwnSteps(meaning="onnx"), ties)[0].tolist() == [255, 0, 0, 2, 2, 0]
    assert steps_of(OwnSteps(meaning="tflite_asymmetric"), ties)[0].tolist() == [255, 0, 1, 2, 3, 0]
    below = EXTREMES["ties_below"]
    assert steps_of(OwnSteps(meaning="tflite_asymmetric"), below)[0].tolist() == [127, -128, 1, 2, -1, -3]
    half = EXTREMES["just_below_a_half"]
    assert steps_of(OwnSteps(meaning="tflite_symmetric"), half)[0].tolist() == [127, 0, 0, -127]


@pytest.mark.parametrize("meaning", MEANINGS)
def test_what_is_no_number_harms_no_other_bits(meaning: RangeMeaning) -> None:
    """C and reference agree on it, on infinities, tiny and equal elements."""
    cases = [
        *EXTREMES.values(), np.array([np.nan, 1, -1], np.float32), np.array([np.inf, 1, -1], np.float32),
        np.array([-np.inf, np.nan, -1], np.float32),
    ]  # fmt: skip
    whole = np.concatenate([np.resize(case, 20)[None] for case in cases])
    operator = dense((len(cases),), OwnSteps(meaning=meaning, by_vector=True))
    (runs,) = run_every_way([operator], [[whole]], lambda one, stored: real_layer.KERNEL.implement(one, HOST, stored))
    with np.errstate(invalid="ignore", over="ignore"):
        (expected,) = real_layer.reference(operator, [whole])
    np.testing.assert_array_equal(runs.whole, expected)
