"""Weights of TensorFlow Lite files as quantizers store them: 4 bits, by channel alone, biases of zeros."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tflite

import tvm_ext
from tests.support.packages import HOST_ONLY
from tests.support.tflite_file import TYPES, Quantized, TfliteWriter
from tests.support.tflite_runners import litert, saved_tflite
from tvm_ext.core.errors import BadModel, UnsupportedModel

X, Y = Quantized(scale=0.05, zero_point=3), Quantized(scale=0.2, zero_point=-7)
SCALES = Quantized(scale=[0.01, 0.02, 0.03])


def dense(weights: np.ndarray, kind: str, bias: np.ndarray | None = None, *, in_floats: bool = False) -> bytes:
    """A fully connected layer of 5 elements to 3, its weights stored as a type of `kind`."""
    writer = TfliteWriter()
    x = writer.input("x", (1, 5), *(() if in_floats else ("int8", X)))
    w = writer.constant("w", weights, SCALES)
    writer.tensors[w].dtype, writer.tensors[w].shape = kind, (3, 5)
    rest = [] if bias is None else [writer.constant("bias", bias, Quantized(scale=[0.5, 0.25, 0.125]))]
    y = writer.tensor("y", (1, 3), *(() if in_floats else ("int8", Y)))
    writer.operator("FULLY_CONNECTED", [x, w, *rest], y, "FullyConnectedOptions")
    return writer.finish([y])


@pytest.fixture(autouse=True)
def newer_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TYPES, "int4", tflite.TensorType.INT4)
    monkeypatch.setitem(TYPES, "int2", 19)


def packed(integers: np.ndarray) -> np.ndarray:
    """Two to a byte, the first one in the lower bits."""
    flat = np.append(integers.reshape(-1), [0] * (integers.size % 2)).astype(np.uint8) & 15
    return flat[::2] | flat[1::2] << 4


INTEGERS = np.array([[-8, 7, 0, 1, -1], [3, -4, 5, -6, 2], [7, 7, -8, -8, 0]])


def test_four_bits(tmp_path: Path) -> None:
    data = dense(packed(INTEGERS), "int4")
    package = tvm_ext.build(tvm_ext.load(saved_tflite(data, tmp_path)), "host", tmp_path / "out", HOST_ONLY)
    assert package.report["verify"]["host"]["own_reading"] is None
    (step,) = package.report["steps"]
    assert step["kernel"] == "qdense_host"
    x = np.array([[-128, 127, 3, 50, -77]], np.int8)
    (whole,) = litert(dense(INTEGERS.astype(np.int8), "int8"), [x])
    (found,) = litert(data, [x])
    np.testing.assert_array_equal(found, whole)  # LiteRT reads the bytes as they are unpacked here
    with tvm_ext.execution.host_model.HostModel(package.folder, package.interface) as model:
        np.testing.assert_array_equal(model.run({"x": x})["y"], whole)


def test_too_few_bytes(tmp_path: Path) -> None:
    data = dense(packed(INTEGERS)[:-1], "int4")
    with pytest.raises(BadModel, match=r"'w', int4\[3, 5\], needs 8 B; its buffer has 7"):
        tvm_ext.load(saved_tflite(data, tmp_path))


def test_two_bits_are_refused_by_name(tmp_path: Path) -> None:
    data = dense(packed(INTEGERS)[:4], "int2")
    with pytest.raises(UnsupportedModel, match=r"FULLY_CONNECTED.*its element type INT2 is not supported"):
        tvm_ext.load(saved_tflite(data, tmp_path))


def test_zero_bias_of_another_scale(tmp_path: Path) -> None:
    """Converters share one bias of zeros among layers."""
    data = dense(INTEGERS.astype(np.int8), "int8", np.zeros(3, np.int32))
    package = tvm_ext.build(tvm_ext.load(saved_tflite(data, tmp_path)), "host", tmp_path / "out", HOST_ONLY)
    assert package.report["verify"]["host"]["max_abs_error"] == 0
    with pytest.raises(UnsupportedModel, match="scale of its bias"):
        tvm_ext.load(saved_tflite(dense(INTEGERS.astype(np.int8), "int8", np.ones(3, np.int32)), tmp_path))


def test_weights_with_a_scale_for_each_block_are_refused(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x, w = writer.input("x", (1, 5)), writer.constant("w", INTEGERS.astype(np.int8))
    y = writer.operator("FULLY_CONNECTED", [x, w], writer.tensor("y", (1, 3)), "FullyConnectedOptions")
    with pytest.raises(UnsupportedModel, match="a scale for each block of them"):
        tvm_ext.load(saved_tflite(writer.finish([y]), tmp_path))


def test_weights_quantized_alone(tmp_path: Path) -> None:
    """TensorFlow Lite Micro reads the first of several scales there, so LiteRT says what the model means."""
    writer = TfliteWriter()
    x, w = writer.input("x", (1, 5)), writer.constant("w", INTEGERS.astype(np.int8), SCALES)
    real = writer.operator("DEQUANTIZE", [w], writer.tensor("real", (3, 5)), "DequantizeOptions")
    y = writer.operator("FULLY_CONNECTED", [x, real], writer.tensor("y", (1, 3)), "FullyConnectedOptions")
    path = saved_tflite(writer.finish([y]), tmp_path)
    verified = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", HOST_ONLY).report["verify"]["host"]
    assert verified["passed"] and verified["reference"] == "LiteRT"
