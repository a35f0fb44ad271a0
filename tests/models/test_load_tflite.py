"""TensorFlow Lite files: names, layout, shapes, and float numbers as LiteRT computes them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import tflite

import tvm_ext
from relay_passes.dataflow import bindings, op_name
from tests.models.agree import names, run, spans
from tests.support.packages import HOST_ONLY, assert_close
from tests.support.tflite_file import TfliteWriter
from tests.support.tflite_models import NETWORKS, NONE, RELU6, SAME, VALID, Network, ds_cnn
from tests.support.tflite_runners import litert, referenced, saved_tflite
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import BadOptions
from tvm_ext.frontends.load import ModelNotice, load


def normal(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def agrees(data: bytes, inputs: list[np.ndarray], folder: Path) -> list[str]:
    """Kernels' references against LiteRT, within 1e-4 of the largest magnitude; the kernels."""
    found, kernels = referenced(saved_tflite(data, folder), inputs)
    for ours, theirs in zip(found, litert(data, inputs), strict=True):
        assert_close({"y": ours}, {"y": theirs})
    return kernels


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_run_as_in_litert(name: str, tmp_path: Path) -> None:
    """The package's C, verified against TVM while it is built, against LiteRT here."""
    data = NETWORKS[name]()
    package = tvm_ext.build(load(saved_tflite(data, tmp_path, name)), "host", tmp_path / "out", HOST_ONLY)
    assert package.report["verify"]["host"]["passed"] and package.report["model"]["format"] == "tflite"
    assert "permute" not in {step["kernel"] for step in package.report["steps"]}, "NHWC stays NHWC"
    ((input_name, spec),) = package.inputs.items()
    x = normal(spec.shape)
    (found,) = package.run({input_name: x}).values()
    assert_close({"y": found}, {"y": litert(data, [x])[0]})


def test_names_spans_and_attributes(tmp_path: Path) -> None:
    path = saved_tflite(ds_cnn(), tmp_path, "Key-Words")
    mod = load(path)
    assert {"stem", "depthwise_0", "pointwise_1", "pool", "flat", "logits", "probabilities"} <= set(names(mod))
    assert {"CONV_2D_0", "DEPTHWISE_CONV_2D_1", "FULLY_CONNECTED_7", "SOFTMAX_8"} <= set(spans(mod))
    attributes = {key.removeprefix("tvm_ext."): str(value) for key, value in mod.attrs.items()}
    assert json.loads(attributes["input_names"]) == ["image"]
    assert json.loads(attributes["output_names"]) == ["probabilities"]
    assert (attributes["model_name"], attributes["source_format"]) == ("key_words", "tflite")
    assert attributes["rounding"] == "tflite" and len(attributes["source_sha256"]) == 64
    assert ModelOrigin.read(load(mod)).rounding == "tflite"


def test_weights_keep_the_layout_of_the_file(tmp_path: Path) -> None:
    mod = load(saved_tflite(ds_cnn(), tmp_path))
    layers = [b.value.attrs for b in bindings(mod["main"]) if op_name(b.value) == "relax.nn.conv2d"]
    assert {(layer.data_layout, layer.kernel_layout) for layer in layers} == {("NHWC", "OHWI")}
    assert "relax.permute_dims" not in {op_name(b.value) for b in bindings(mod["main"])}


def test_quantized_layers_are_chains(tmp_path: Path) -> None:
    """dequantize, one layer, quantize, the integers between them under the model's names."""
    mod = load(saved_tflite(ds_cnn(int8=True), tmp_path))
    quantized = [b.var.name for b in bindings(mod["main"]) if op_name(b.value) == "relax.quantize"]
    assert quantized == "stem depthwise_0 pointwise_0 depthwise_1 pointwise_1 pool logits probabilities".split()
    (flat,) = (b for b in bindings(mod["main"]) if b.var.name == "flat")
    assert op_name(flat.value) == "relax.reshape" and str(flat.var.ty.dtype) == "int8"


def test_open_batch_is_one_with_a_notice_or_as_asked(tmp_path: Path) -> None:
    data = ds_cnn(signature=(-1, 25, 10, 1))
    path = saved_tflite(data, tmp_path)
    with pytest.warns(ModelNotice, match=r"image \[\?, 25, 10, 1\] -> \[1, 25, 10, 1\]"):
        mod = load(path)
    x = normal((3, 25, 10, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        three = load(path, shapes={"image": (3, 25, 10, 1)})
    (whole,), singles = run(three, [x]), [run(mod, [x[i : i + 1]])[0] for i in range(3)]
    np.testing.assert_allclose(whole, np.concatenate(singles), rtol=0, atol=1e-6)
    with pytest.raises(BadOptions, match="contradicts"):
        load(path, shapes={"image": (1, 24, 10, 1)})


def test_names_that_files_repeat_or_leave_out(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("", (1, 4))
    y = writer.operator("ABS", [x], writer.tensor("same", (1, 4)), "AbsOptions")
    z = writer.operator("SQRT", [y], writer.tensor("same", (1, 4)))
    mod = load(saved_tflite(writer.finish([z]), tmp_path))
    assert [param.name for param in mod["main"].params] == ["tensor_0"] and names(mod) == ["same", "same.1"]
    value = np.array([[-4, 9, 0, -1]], np.float32)
    np.testing.assert_array_equal(run(mod, [value])[0], [[2, 3, 0, 1]])


@pytest.mark.parametrize("padding", [SAME, VALID])
def test_windows(padding: int, tmp_path: Path) -> None:
    """Odd sizes, strides, dilation, a channel multiplier, one input channel, max and average over padding."""
    net = Network()
    x = net.input((1, 11, 14, 3))
    wide = net.depthwise(x, (3, 3), "twice", multiplier=2, stride=(2, 2), padding=padding, activation=RELU6)
    single = net.conv(x, 1, (2, 3), "single", dilation=(2, 1), padding=padding, activation=NONE)
    spread = net.depthwise(single, (3, 3), "spread", multiplier=4, padding=padding)
    outputs = [
        net.pool(wide, (3, 2), "average", stride=(2, 1), padding=padding),
        net.pool(spread, (2, 2), "largest", kind="MAX_POOL_2D", padding=padding, activation=RELU6),
    ]
    agrees(net.writer.finish(outputs), [normal((1, 11, 14, 3))], tmp_path)


def test_half_precision_weights(tmp_path: Path) -> None:
    """Weights stored as float16 come with a DEQUANTIZE each, worked out when the model is loaded."""
    net = Network()
    x = net.input((1, 6, 6, 4))
    weight = net.writer.constant("half", normal((5, 3, 3, 4)).astype(np.float16))
    single = net.writer.operator("DEQUANTIZE", [weight], net.writer.tensor("weight", (5, 3, 3, 4)), "DequantizeOptions")
    bias = net.writer.constant("bias", normal((5,)))
    y = net.writer.operator(
        "CONV_2D", [x, single, bias], net.writer.tensor("y", (1, 6, 6, 5)), "Conv2DOptions",
        Padding=SAME, StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1,
    )  # fmt: skip
    assert agrees(net.writer.finish([y]), [normal((1, 6, 6, 4))], tmp_path) == ["conv2d_f32"]


def test_the_larger_of_two_operator_codes_counts(tmp_path: Path) -> None:
    """Runtimes take it so, whichever of the fields, the older or the newer, it stands in."""
    writer = TfliteWriter()
    inputs = [writer.input(name, (1, 4)) for name in ("a", "b")]
    data = bytearray(writer.finish([writer.operator("SUB", inputs, writer.tensor("y", (1, 4)), "SubOptions")]))
    table = tflite.Model.GetRootAs(bytes(data), 0).OperatorCodes(0)._tab
    newer = table.Pos + table.Offset(10)
    assert data[newer] == tflite.BuiltinOperator.SUB
    data[newer] = tflite.BuiltinOperator.DIV
    arrays = [np.array([[1, 2, -3, 4]], np.float32), np.array([[2, 8, 4, -1]], np.float32)]
    (found,), _ = referenced(saved_tflite(bytes(data), tmp_path), arrays)
    np.testing.assert_array_equal(found, arrays[0] / arrays[1])
    np.testing.assert_array_equal(found, litert(bytes(data), arrays)[0])


def test_rows_softmax_with_beta_and_arithmetic(tmp_path: Path) -> None:
    """A dense layer over an image's rows, arithmetic that repeats a row, a softmax sharper than usual."""
    net = Network()
    x = net.input((2, 3, 8))
    y = net.dense(x, 5, "rows")
    z = net.binary("MUL", y, net.writer.constant("row", normal((5,))), "scaled")
    agrees(net.writer.finish([net.softmax(z, "sharp", beta=2.0)]), [normal((2, 3, 8))], tmp_path)


def test_moves(tmp_path: Path) -> None:
    net = Network()
    x = net.input((1, 4, 6, 2))
    turned = net.writer.operator(
        "TRANSPOSE", [x, net.writer.constant("order", np.array([0, 2, 1, 3], np.int32))],
        net.writer.tensor("turned", (1, 6, 4, 2)), "TransposeOptions",
    )  # fmt: skip
    joined = net.writer.operator(
        "CONCATENATION", [turned, turned], net.writer.tensor("joined", (1, 6, 8, 2)), "ConcatenationOptions", Axis=2
    )
    mean = net.writer.operator(
        "MEAN", [net.pad(joined, [(0, 0), (1, 0), (0, 2), (0, 0)], "padded"),
                 net.writer.constant("axes", np.array([1, 2], np.int32))],
        net.writer.tensor("mean", (1, 2)), "ReducerOptions", KeepDims=False,
    )  # fmt: skip
    agrees(net.writer.finish([mean]), [normal((1, 4, 6, 2))], tmp_path)
