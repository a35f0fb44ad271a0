"""Operators of onnxruntime (com.microsoft) that exporters and quantizers write, against onnxruntime itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_ext
from tests.models.onnx_models import model_of, saved
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.onnx.operators import converters
from tvm_ext.frontends.onnx.refusals import CONTRIB_REASONS

BATCH, ROWS, KNOWN, HEADS, DEPTH = 2, 3, 5, 2, 4
WIDTH = HEADS * DEPTH
RANDOM = np.random.default_rng(0)
X: dict[str, tuple[int, ...]] = {"x": (BATCH, ROWS, WIDTH)}
IMAGE: dict[str, tuple[int, ...]] = {"x": (1, 6, 6, 4)}


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(0, 1, shape).astype(np.float32)


def integers(low: int, high: int, *shape: int, dtype: str = "uint8") -> np.ndarray:
    return RANDOM.integers(low, high, shape).astype(dtype)


CONSTANTS = {
    "w": normal(WIDTH, 3 * WIDTH), "bias": normal(3 * WIDTH), "past": normal(2, BATCH, HEADS, 2, DEPTH),
    "scores": normal(BATCH, HEADS, ROWS, ROWS), "past_k": normal(BATCH, HEADS, 2, DEPTH),
    "past_v": normal(BATCH, HEADS, 2, DEPTH),
    "ends": np.array([3, 2], "int32"), "ends_begins": np.array([3, 2, 1, 0], "int32"),
    "mask": np.array([[1, 1, 0], [1, 0, 1]], "int32"), "mask5": np.array([[1, 1, 0, 1, 1], [1, 0, 1, 1, 0]], "int32"),
    "mask_rows": np.tril(np.ones((BATCH, ROWS, ROWS), "int32")),
    "cosines": normal(16, DEPTH // 2), "sines": normal(16, DEPTH // 2),
    "places": np.array([[3, 1, 2], [0, 5, 9]], "int64"), "first": np.array([2], "int64"),
    "x_s": np.array(0.02, "float32"), "x_z": np.array(120, "uint8"), "y_s": np.array(0.08, "float32"),
    "y_z": np.array(100, "uint8"), "w_s": np.array(0.01, "float32"), "w_z": np.array(128, "uint8"),
    "w_u8": integers(0, 255, WIDTH, 3 * WIDTH), "w_i8": integers(-127, 127, WIDTH, 3 * WIDTH, dtype="int8"),
    "w_i8_z": np.array(0, "int8"), "w_scales": RANDOM.uniform(0.005, 0.02, 3 * WIDTH).astype("float32"),
    "kernel": integers(0, 255, 6, 4, 3, 3), "kernel_bias": integers(-500, 500, 6, dtype="int32"),
    "words": normal(20, 8), "positions": normal(10, 8), "segments": normal(2, 8), "gamma": normal(8),
    "beta": normal(8), "ids": integers(0, 20, 2, 3, dtype="int32"), "parts": integers(0, 2, 2, 3, dtype="int32"),
    "one": np.array(1, "int32"), "k": np.array(1, "int64"), "pads": np.array([0, 0, 1, 0, 0, 1], "int64"),
    "indices": np.array([[0, 1], [1, 2]], "int64"), "begin": np.array(1, "float32"), "end": np.array(9, "float32"),
    "zero": np.array(0, "float32"),
}  # fmt: skip
Nodes = list[onnx.NodeProto]


def contrib(kind: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(kind, names, outputs.split(), domain="com.microsoft", **attributes)


def standard(kind: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def of(nodes: Nodes, shapes: dict[str, tuple[int, ...]], results: list[str]) -> onnx.ModelProto:
    """A model with those of the constants that its nodes read."""
    read = {name for node in nodes for name in node.input}
    constants = {name: array for name, array in CONSTANTS.items() if name in read}
    types = [(name, TensorProto.UINT8) if name.startswith("u8") else name for name in results]
    return model_of(nodes, shapes, types, constants=constants, opset=17, domains=["com.microsoft"])


QUANTIZED = standard("QuantizeLinear", "x x_s x_z", "qx")


def attention(inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return contrib("Attention", inputs, outputs, num_heads=HEADS, **attributes)


def heads(inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return contrib("MultiHeadAttention", inputs, outputs, num_heads=HEADS, **attributes)


MODELS = {
    "attention": of([
        attention("x w bias", "a"),
        attention("x w bias ends", "b"),
        attention("x w bias ends_begins", "c"),
        attention("x w bias mask", "d", unidirectional=1),
        attention("x w bias mask_rows", "e"),
        attention("x w bias _ _ scores", "f", scale=0.3),
        attention("x w bias mask5 past", "g cache"),
    ], X, [*"abcdefg", "cache"]),
    "multi_head": of([
        heads("x y y bias", "a"),
        heads("x y y _ ends", "b"),
        heads("x y y bias mask5", "c"),
        heads("x z z bias", "d"),
        heads("x x x bias _ _ past_k past_v", "e k_next v_next", unidirectional=1),
    ], {**X, "y": (BATCH, KNOWN, WIDTH), "z": (BATCH, HEADS, KNOWN, DEPTH)}, [*"abcde", "k_next", "v_next"]),
    "rotary": of([
        contrib("RotaryEmbedding", "x places cosines sines", "a", num_heads=HEADS),
        contrib("RotaryEmbedding", "x first cosines sines", "b"),
        contrib("RotaryEmbedding", "y places cosines sines", "c", interleaved=1),
        contrib("RotaryEmbedding", "y places cosines sines", "d", rotary_embedding_dim=DEPTH, num_heads=HEADS),
    ], {**X, "y": (BATCH, HEADS, ROWS, DEPTH)}, [*"abcd"]),
    "quantized attention": of([
        QUANTIZED,
        contrib("QAttention", "qx w_u8 bias x_s w_s _ x_z w_z", "a", num_heads=HEADS),
        contrib("QAttention", "qx w_i8 bias x_s w_scales mask x_z", "b", num_heads=HEADS, unidirectional=1),
    ], X, ["a", "b"]),
    "integer products": of([
        QUANTIZED,
        contrib("MatMulIntegerToFloat", "qx w_i8 x_s w_scales x_z _ bias", "a"),
        contrib("DynamicQuantizeMatMul", "x w_i8 w_scales w_i8_z bias", "b"),
        contrib("DynamicQuantizeMatMul", "x w_u8 w_s w_z", "c"),
    ], X, ["a", "b", "c"]),
    "channels last": of([
        QUANTIZED,
        contrib("QLinearConv", "qx x_s x_z kernel w_s w_z y_s y_z kernel_bias", "u8a", channels_last=1, strides=[2, 2],
                pads=[1, 1, 1, 1]),
        contrib("NhwcMaxPool", "qx", "u8b", kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 1]),
        contrib("QLinearAveragePool", "qx x_s x_z y_s y_z", "u8c", kernel_shape=[2, 2], channels_last=1),
        contrib("QLinearGlobalAveragePool", "qx x_s x_z y_s y_z", "u8d", channels_last=1),
        standard("Greater", "x zero", "is_above"),
        standard("QuantizeLinear", "x y_s y_z", "other"),
        contrib("QLinearWhere", "is_above qx x_s x_z other y_s y_z y_s y_z", "u8e"),
    ], IMAGE, ["u8a", "u8b", "u8c", "u8d", "u8e"]),
    "as the standard": of([
        contrib("ExpandDims", "x one", "a"),
        contrib("GatherND", "x indices", "b"),
        contrib("Trilu", "x k", "c", upper=0),
        contrib("Pad", "x pads", "d"),
        contrib("GridSample", "y grid", "e", mode="bilinear", align_corners=1),
        contrib("Range", "begin end", "steps"),
        standard("Add", "x steps", "f"),
    ], {**X, "y": (1, 2, 4, 4), "grid": (1, 3, 3, 2)}, [*"abcdef"]),
    "others": of([
        contrib("EmbedLayerNormalization", "ids parts words positions segments gamma beta", "embedded", epsilon=1e-5),
        standard("Add", "embedded x", "a"),
        contrib("CDist", "y z", "b", metric="euclidean"),
        contrib("CDist", "y z", "c", metric="sqeuclidean"),
        standard("SimplifiedLayerNormalization", "x gamma", "d inverse", axis=-1, epsilon=1e-5),
        standard("SimplifiedLayerNormalization", "x gamma", "e", axis=-1, epsilon=1e-5),
    ], {**X, "y": (4, 8), "z": (3, 8)}, [*"abcde", "inverse"]),
}  # fmt: skip

ALWAYS = ["quantized attention", "channels last"]


@pytest.mark.parametrize("name", some_of(ALWAYS, sweep=sorted({*MODELS} - {*ALWAYS})))
def test_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(MODELS[name], tmp_path), states={})
    result = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions()).report["verify"]["host"]
    assert result["passed"] and result["reference"] == "onnxruntime"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (attention("x w bias _ _ _ one", "y"), "a past in a buffer of its own"),
        (attention("x w bias", "y", do_rotary=1), "a rotary embedding inside"),
        (attention("x w bias gamma", "y"), r"a mask of shape \[8\]"),
        (heads("x", "y"), "in one tensor, which onnxruntime reads on GPUs only"),
        (heads("x x x", "y p q scores"), "the scores as a result"),
        (heads("x x x _ _ _ past_k past_v one", "y"), "a past in a buffer of its own"),
        (contrib("MultiHeadAttention", "x x x", "y", num_heads=3), r"a tensor of shape \[2, 3, 8\] in 3 heads"),
        (contrib("RotaryEmbedding", "x first cosines sines", "y", scale=2.0), "packed batches, or a scale"),
        (contrib("CDist", "x x", "y", metric="cosine"), "its metric is 'cosine'"),
        (contrib("GroupQueryAttention", "x x x", "y"), "it generates text, .* bring it as .* 'com.microsoft.Group"),
        (contrib("DynamicQuantizeLSTM", "x x x", "y"), "quantizes inside it at run time"),
        (contrib("Unique", "x", "y"), "data decide the shape of its output"),
    ],
)
def test_refused(wrong: onnx.NodeProto, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved(of([wrong], X, ["y"]), tmp_path))


def test_reasons_are_of_operators_without_a_converter() -> None:
    assert {("com.microsoft", name) for name in CONTRIB_REASONS}.isdisjoint(converters())
