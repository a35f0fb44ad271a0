"""TensorFlow Lite files that cannot be read or compiled, each with an error that says what, where, and the way out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import SAME, Network, autoencoder, ds_cnn
from tests.support.tflite_runners import saved_tflite
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.load import load


def relu(writer: TfliteWriter, x: int, **tensor: object) -> int:
    return writer.operator("RELU", [x], writer.tensor("y", (1, 4), **tensor))


def refused(data: bytes, folder: Path, match: str, error: type[Exception] = UnsupportedModel) -> str:
    with pytest.raises(error, match=match) as raised:
        load(saved_tflite(data, folder))
    return str(raised.value)


def test_missing_directory_empty(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="no such file"):
        load(tmp_path / "model.tflite")
    refused(b"", tmp_path, r"is empty \(0 B\)", BadModel)
    (tmp_path / "folder.tflite").mkdir()
    with pytest.raises(BadModel, match=r"is a folder; give the path of a \.tflite file"):
        load(tmp_path / "folder.tflite")


@pytest.mark.parametrize(
    "data", [b"not a model at all", b"\x00" * 100, b"\x7fELF" + bytes(60), b"TFL3", b"\x08\0\0\0TFL2"]
)
def test_not_tflite(data: bytes, tmp_path: Path) -> None:
    refused(data, tmp_path, "is not a TensorFlow Lite file", BadModel)


@pytest.mark.parametrize("data", [b"\x08\0\0\0TFL3" + bytes(100), b"\xff\xff\xff\x7fTFL3" + bytes(100)])
def test_identifier_and_nothing_else(data: bytes, tmp_path: Path) -> None:
    refused(data, tmp_path, "truncated or damaged|has no subgraph", BadModel)


def test_truncated_anywhere(tmp_path: Path) -> None:
    data = autoencoder()
    for length in [*range(8, 400, 7), *range(400, len(data) - 3, 211)]:
        refused(data[:length], tmp_path, r"model\.tflite: ", BadModel)


def test_damaged_anywhere(tmp_path: Path) -> None:
    """A changed byte is read as another model, or refused with one of our own errors: nothing else is raised."""
    data, random = ds_cnn(), np.random.default_rng(0)
    places = random.integers(0, 4000, 150)
    for place, value in zip(places, random.integers(0, 256, places.size), strict=True):
        changed = bytearray(data)
        changed[place] = value
        try:
            load(saved_tflite(bytes(changed), tmp_path))
        except (BadModel, UnsupportedModel):
            continue


def test_weights_of_the_wrong_size(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", (1, 4))
    weight = writer.constant("w", np.ones((1, 4), np.float32))
    writer.tensors[weight].shape = (1, 3)
    y = writer.operator("ADD", [x, weight], writer.tensor("y", (1, 4)), "AddOptions")
    refused(writer.finish([y]), tmp_path, r"'w', float32\[1, 3\], needs 12 B; its buffer has 16", BadModel)


def test_scales_that_do_not_fit_their_tensor(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", (1, 4), "int8", Quantized(scale=[1, 2, 3], axis=1))
    refused(writer.finish([relu(writer, x)]), tmp_path, "'x' has 3 scales", BadModel)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0, 0.0])
def test_impossible_scales(scale: float, tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", (1, 4), "int8", Quantized(scale=scale))
    refused(writer.finish([relu(writer, x)]), tmp_path, "finite and above zero", BadModel)


def test_zero_point_outside_its_type(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", (1, 4), "int8", Quantized(scale=1, zero_point=300))
    y = relu(writer, x, dtype="int8", quantized=Quantized(scale=1))
    refused(writer.finish([y]), tmp_path, "zero point 300; a zero point lies within int8", BadModel)


def test_order_and_outputs(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x, late = writer.input("x", (1, 4)), writer.tensor("late", (1, 4))
    y = relu(writer, late)
    writer.operator("ABS", [x], late, "AbsOptions")
    refused(writer.finish([y]), tmp_path, "RELU_0 reads 'late', which nothing computes before it", BadModel)
    alone = TfliteWriter()
    alone.input("x", (1, 4))
    refused(alone.finish([alone.tensor("y", (1, 4))]), tmp_path, "nothing computes the output 'y'", BadModel)


def test_every_unsupported_operator_is_named_at_once(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", (1, 4))
    first = writer.operator("FlexErf", [x], writer.tensor("a", (1, 4)))
    second = writer.operator("MyLayer", [first], writer.tensor("b", (1, 4)))
    third = writer.operator("RANDOM_UNIFORM", [second], writer.tensor("c", (1, 4)))
    fourth = writer.operator("WHILE", [third], writer.tensor("d", (1, 4)))
    message = refused(writer.finish([relu(writer, fourth)]), tmp_path, "cannot be compiled because of")
    for line in (
        r"FlexErf, once (FlexErf_0): a TensorFlow operator carried along (select TF)",
        r"MyLayer, once (MyLayer_1): a custom operator",
        r"RANDOM_UNIFORM, once (RANDOM_UNIFORM_2): its result is random",
        r"WHILE, once (WHILE_3): control flow",
        r"Convert the model without them",
    ):
        assert line in message
    assert "RELU" not in message


def test_several_subgraphs(tmp_path: Path) -> None:
    writer = TfliteWriter()
    refused(writer.finish([relu(writer, writer.input("x", (1, 4)))], num_subgraphs=3), tmp_path, "has 3 subgraphs")


def test_state_strings_and_other_types(tmp_path: Path) -> None:
    writer = TfliteWriter()
    state = writer.tensor("state", (1, 4), is_variable=True)
    y = writer.operator("ADD", [writer.input("x", (1, 4)), state], writer.tensor("y", (1, 4)), "AddOptions")
    refused(writer.finish([y]), tmp_path, "its tensor 'state' keeps state between runs")
    words = TfliteWriter()
    refused(words.finish([relu(words, words.input("x", (1, 4), "string"))]), tmp_path, "element type STRING")
    wide = TfliteWriter()
    x = wide.input("x", (1, 4), "int16", Quantized(scale=0.1))
    reason = "is quantized to int16, which is not supported here; quantize it to int8"
    refused(wide.finish([wide.operator("HARD_SWISH", [x], wide.tensor("y", (1, 4)))]), tmp_path, reason)


def test_dynamic_range_quantization(tmp_path: Path) -> None:
    """Layers with int8 weights around zero and float biases are taken; what is not says why."""

    plain = Quantized(scale=0.1)

    def layer(dtype: str = "int8", quantized: Quantized | None = plain, bias: str = "float32") -> bytes:
        net = Network()
        x = net.input((1, 4, 4, 2))
        weight = net.writer.constant("w", np.ones((3, 1, 1, 2), dtype), quantized)
        added = net.writer.constant("b", np.ones(3, bias), None if bias == "float32" else Quantized(scale=0.1))
        y = net.writer.tensor("y", (1, 4, 4, 3))
        net.writer.operator("CONV_2D", [x, weight, added], y, "Conv2DOptions", Padding=SAME)
        return net.writer.finish([y])

    refused(layer("uint8"), tmp_path, r"\(dynamic-range quantization\), and are not int8 around zero")
    refused(layer(quantized=Quantized(scale=0.1, zero_point=3)), tmp_path, "are not int8 around zero")
    refused(layer(bias="int32"), tmp_path, "FULLY_CONNECTED with float biases; quantize both, or none")
    refused(layer(quantized=None), tmp_path, "a scale for each block of them; quantize by tensor or channel")
    net = Network()
    x, weight = net.input((1, 2, 4)), net.writer.constant("w", np.ones((1, 4, 3), np.int8), Quantized(scale=0.1))
    y = net.writer.operator("BATCH_MATMUL", [x, weight], net.writer.tensor("y", (1, 2, 3)), "BatchMatMulOptions")
    refused(net.writer.finish([y]), tmp_path, "which is for CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED")
    inputs = Network()
    x, weight = inputs.input((1, 4)), inputs.writer.input("w", (3, 4), "int8", Quantized(scale=0.1))
    y = inputs.writer.tensor("y", (1, 3))
    inputs.writer.operator("FULLY_CONNECTED", [x, weight], y, "FullyConnectedOptions")
    refused(inputs.writer.finish([y]), tmp_path, r"\(dynamic-range quantization\) and no constants")


def test_shape_in_the_file_that_is_not_the_layers(tmp_path: Path) -> None:
    writer = TfliteWriter()
    y = writer.operator("RELU", [writer.input("x", (1, 4))], writer.tensor("y", (1, 5)))
    refused(writer.finish([y]), tmp_path, r"its output is \[1, 5\] in the file, \[1, 4\] by its inputs")


def test_layers_that_do_not_fit_together(tmp_path: Path) -> None:
    net = Network()
    x = net.input((1, 4, 4, 3))
    weight = net.writer.constant("w", np.ones((6, 1, 1, 2), np.float32))
    y = net.writer.operator(
        "CONV_2D", [x, weight], net.writer.tensor("y", (1, 4, 4, 6)), "Conv2DOptions", StrideH=1, StrideW=1
    )
    refused(net.writer.finish([y]), tmp_path, "3 input channels do not divide into groups of 2")
    still = Network()
    x = still.input((1, 4, 4, 2))
    weight = still.writer.constant("w", np.ones((6, 1, 1, 2), np.float32))
    y = still.writer.operator("CONV_2D", [x, weight], still.writer.tensor("y", (1, 4, 4, 6)), "Conv2DOptions")
    refused(still.writer.finish([y]), tmp_path, "strides or dilations are below 1")


def test_open_dimension_inside_data(tmp_path: Path) -> None:
    """A shape that is computed from data has no place in static memory."""
    writer = TfliteWriter()
    x, target = writer.input("x", (1, 4)), writer.input("target", (2,), "int32")
    y = writer.operator("RESHAPE", [x, target], writer.tensor("y", (2, 2)), "ReshapeOptions")
    refused(writer.finish([y]), tmp_path, "RESHAPE_0")
