"""Layers that read the same windows, in one call: its C against the references of the layers, and its cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.shared.shared_windows import joined
from codegen_c.operators.kinds import Operator, PackedQConv2d, QConv2d, Quantization, TensorType, Window
from codegen_c.targets.dsp.kernels import convolution as convolution_dsp
from codegen_c.targets.helium.kernels import convolution as convolution_helium
from codegen_c.targets.helium.kernels import side as side_helium
from tests.kernels.dsp import CORTEX_M4, SOME
from tests.kernels.harness import compile_kernels, run_kernel
from tests.kernels.helium import M55
from tests.kernels.quantized import elements, seeds
from tests.kernels.test_qconv2d import convolutions

KERNELS = [(convolution_dsp.QCONV2D, CORTEX_M4), (convolution_helium.QCONV2D, M55)]


@st.composite
def branches(draw: st.DrawFn, kernel: Kernel, target: Target) -> list[QConv2d]:
    """Two to four layers of one input and window, each with its own channels, output type, factors and rounding."""

    def is_taken(operator: QConv2d) -> bool:
        """Return True for a layer of the kernel whose windows are in scratch."""
        is_accepted = kernel.refuses(operator, target) is None
        return is_accepted and kernel.implement(operator, target, StoredRows()).windows is not None

    first = draw(convolutions().filter(is_taken))
    layers = [first]
    for _ in range(draw(st.integers(1, 3))):
        channels, random = draw(st.sampled_from((1, 3, 4, 8, 9))), np.random.default_rng(draw(seeds))
        scale = float(np.float32(first.outputs[0].quantization.scale * draw(st.sampled_from((0.3, 1.0)))))
        dtype = draw(st.sampled_from(("int8", "uint8")))
        limits = np.iinfo(dtype)
        kind = Quantization(scale=scale, zero_point=int(random.integers(limits.min, limits.max + 1)))
        output = TensorType(shape=(*first.output.shape[:3], channels), dtype=dtype, quantization=kind)
        layer = replace(
            first,
            outputs=(output,),
            weight=random.integers(-128, 128, (channels, *first.weight.shape[1:])).astype(np.int8),
            weight_scale=np.full(channels, first.weight_scale[0]) * random.uniform(0.5, 1, channels).astype("f4"),
            bias=random.integers(-20000, 20000, channels).astype(np.int32),
            low=int(limits.min),
            high=int(limits.max),
            rounding=draw(st.sampled_from(("onnx", "tflite"))),
        )
        layers += [layer] if is_taken(layer) else []
    return layers


def of_one_form(layers: list[QConv2d], kernel: Kernel, target: Target) -> list[QConv2d]:
    """The layers whose windows in scratch are those of the first: blocks of two pixels and of three differ."""
    forms = [kernel.implement(layer, target, StoredRows()).windows for layer in layers]
    return [layer for layer, one in zip(layers, forms, strict=True) if one and forms[0] and one.form == forms[0].form]


@pytest.mark.parametrize(("kernel", "target"), KERNELS, ids=lambda value: getattr(value, "name", ""))
@SOME
@given(data=st.data(), seed=seeds)
def test_bytes_are_those_of_the_layers_alone(kernel: Kernel, target: Target, data: st.DataObject, seed: int) -> None:
    networks = [of_one_form(data.draw(branches(kernel, target)), kernel, target) for _ in range(4)]
    made: list[Implementation] = []
    for layers in networks:
        together = joined([kernel.implement(layer, target, StoredRows()) for layer in layers])
        assert together is not None
        made.append(together)
    for layers, together, entry in zip(networks, made, compile_kernels(made), strict=True):
        source = elements(layers[0].inputs[0], seed)
        outputs = tuple(layer.output for layer in layers)
        results = run_kernel(Operator(inputs=layers[0].inputs, outputs=outputs), together, [source], entry=entry)
        expected = [kernel.implement(layer, target, StoredRows()).reference([source])[0] for layer in layers]
        for result, right, through in zip(results, expected, together.reference([source]), strict=True):
            np.testing.assert_array_equal(result, right)
            np.testing.assert_array_equal(through, right)


def layer(channels: int, *, pixels: int = 64, depth: int = 16, kernel: int = 1, zero_point: int = 3) -> QConv2d:
    """A layer of an image of one row, with weights that allow code for a single pixel."""
    random = np.random.default_rng(channels)
    return QConv2d(
        inputs=(
            TensorType(
                shape=(1, 1, pixels, depth), dtype="int8", quantization=Quantization(scale=0.1, zero_point=5)
            ),
        ),
        outputs=(
            TensorType(
                shape=(1, 1, pixels, channels), dtype="int8",
                quantization=Quantization(scale=2.0, zero_point=zero_point),
            ),
        ),
        weight=random.integers(-63, 64, (channels, 1, kernel, depth)).astype(np.int8),
        weight_scale=np.full(channels, 0.02, np.float32), bias=np.arange(channels, dtype=np.int32),
        window=Window(kernel=(1, kernel), padding=(0, kernel // 2, 0, kernel // 2)), low=-128, high=127,
    )  # fmt: skip


def dsp(operator: QConv2d, stored: StoredRows | None = None) -> Implementation:
    return convolution_dsp.QCONV2D.implement(operator, CORTEX_M4, stored or StoredRows())


def test_a_single_pixel_is_computed_after_its_cells_are_moved() -> None:
    layers = [
        layer(66, depth=32),
        layer(5, depth=32),
        layer(66, depth=32, zero_point=-7),
    ]  # the second has no code for a single pixel
    together = joined([dsp(one) for one in layers])
    assert together is not None
    body = together.function.body
    assert body.index("$_beside1_part(") < body.index("tvm_ext_dsp_first_of_3") < body.index("$_part(")
    source = elements(layers[0].inputs[0], 0)
    outputs = tuple(one.output for one in layers)
    results = run_kernel(Operator(inputs=layers[0].inputs, outputs=outputs), together, [source])
    for result, one in zip(results, layers, strict=True):
        np.testing.assert_array_equal(result, dsp(one).reference([source])[0])


def test_few_channels_save_most() -> None:
    def saved(channels: int) -> float:
        one = dsp(layer(channels, pixels=63, depth=20))  # more than are expanded without a loop
        together = joined([one, dsp(layer(channels, pixels=63, depth=20, zero_point=0))])
        assert together is not None
        return 1 - together.instructions / (2 * one.instructions)

    assert 0.08 < saved(8) < 0.2
    assert 0.01 < saved(64) < 0.05


def test_other_windows_images_and_weights_are_not_shared() -> None:
    assert joined([dsp(layer(8)), dsp(layer(8, kernel=3))]) is None, "other windows"
    assert joined([dsp(layer(8)), dsp(layer(8, depth=8))]) is None, "another input"
    batch = replace(layer(8), inputs=(replace(layer(8).inputs[0], shape=(2, 1, 64, 16)),))
    batch = replace(batch, outputs=(replace(batch.output, shape=(2, 1, 64, 8)),))
    assert dsp(batch).windows is None, "two images"
    assert dsp(layer(8), StoredRows(at_once=1)).windows is None, "row by row"
    packed = PackedQConv2d(**{**layer(8).__dict__, "weight": layer(8).weight.clip(-8, 7)})
    assert convolution_dsp.QCONV2D_PACKED.implement(packed, CORTEX_M4, StoredRows()).windows is None, "4 bits"


@pytest.mark.parametrize("columns", [4, 9])
def test_four_copied_windows_are_shared(columns: int) -> None:
    """Windows of 3 x 3 pixels of three channels, which Helium copies one by one."""
    window, random = Window(kernel=(3, 3), padding=(1, 1, 1, 1)), np.random.default_rng(1)

    def of(channels: int, zero_point: int) -> QConv2d:
        source, output = layer(channels).inputs[0], layer(channels, zero_point=zero_point).output
        weight = random.integers(-127, 128, (channels, 3, 3, 3)).astype(np.int8)
        return replace(
            layer(channels), inputs=(replace(source, shape=(1, 5, columns, 3)),), weight=weight, window=window,
            outputs=(replace(output, shape=(1, 5, columns, channels)),),
        )  # fmt: skip

    layers = [of(4, 3), of(8, -90), of(12, 100)]
    assert all(side_helium.KERNEL.refuses(one, M55) is None for one in layers)
    made = [side_helium.KERNEL.implement(one, M55, StoredRows()) for one in layers]
    together = joined(made)
    assert together is not None and together.instructions < sum(one.instructions for one in made)
    source = elements(layers[0].inputs[0], 0)
    outputs = tuple(one.output for one in layers)
    results = run_kernel(Operator(inputs=layers[0].inputs, outputs=outputs), together, [source])
    for result, one in zip(results, made, strict=True):
        np.testing.assert_array_equal(result, one.reference([source])[0])
