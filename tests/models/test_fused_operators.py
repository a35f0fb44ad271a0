"""onnxruntime's operators that stand for several of the standard's, against onnxruntime itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tvm_ext
from tests.models.onnx_models import model_of, saved
from tvm_ext import BuildOptions
from tvm_ext.core.errors import UnsupportedModel

RANDOM = np.random.default_rng(0)
CONSTANTS = {
    "w": RANDOM.normal(0, 1, (4, 3, 3, 3)), "four": RANDOM.normal(0, 1, 4), "eight": RANDOM.normal(0, 1, 8),
    "beta": RANDOM.normal(0, 1, 8), "bias": RANDOM.normal(0, 1, 8), "dense": RANDOM.normal(0, 1, (8, 4)),
}  # fmt: skip


def node(kind: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    names = [name.strip("_") for name in outputs.split()]
    return helper.make_node(kind, inputs.split(), names, domain="com.microsoft", **attributes)


def of(*nodes: onnx.NodeProto, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    constants = {name: array.astype(np.float32) for name, array in CONSTANTS.items()}
    results = [name for made in nodes for name in made.output if name]
    return model_of(nodes, shapes, results, constants=constants, opset=17, domains=["com.microsoft"])


CONVOLUTIONS = of(
    node("FusedConv", "x w four", "a", activation="Relu", pads=[1, 1, 1, 1]),
    node("FusedConv", "x w", "b", activation="LeakyRelu", activation_params=[0.1]),
    node("FusedConv", "x w four", "c", activation="Clip", activation_params=[0.0, 6.0]),
    node("FusedConv", "x w four z", "d", activation="Tanh"),
    x=(1, 3, 6, 6), z=(1, 4, 4, 4),
)  # fmt: skip
MATRICES = of(
    node("FusedMatMul", "x y", "a", alpha=0.5, transB=1),
    node("FusedMatMul", "x y", "b", transA=1),
    node("FusedMatMul", "x dense", "c", alpha=-2.0),
    node("FusedGemm", "z dense four", "d", activation="LeakyRelu", activation_alpha=0.2, alpha=0.5),
    node("QuickGelu", "x", "e", alpha=1.5),
    x=(1, 4, 8), y=(1, 4, 8), z=(2, 8),
)  # fmt: skip
NORMS = of(
    node("SkipLayerNormalization", "x y eight beta bias", "a _ _ sum", epsilon=1e-5),
    node("SkipLayerNormalization", "x y eight", "b", epsilon=1e-5),
    node("SkipSimplifiedLayerNormalization", "x y eight bias", "c _ _ total", epsilon=1e-5),
    x=(1, 4, 8), y=(1, 4, 8),
)  # fmt: skip


@pytest.mark.parametrize("model", [CONVOLUTIONS, MATRICES, NORMS], ids=["convolutions", "matrices", "norms"])
def test_as_onnxruntime_has_them(model: onnx.ModelProto, tmp_path: Path) -> None:
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path), states={}), "host", tmp_path / "out", BuildOptions())
    result = package.report["verify"]["host"]
    assert result["passed"] and result["reference"] == "onnxruntime" and result["max_rel_error"] < 1e-4
    assert list(package.outputs) == [output.name for output in model.graph.output]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (node("FusedMatMul", "x x", "y", transBatchA=1), "a batch axis that moves"),
        (node("FusedMatMul", "eight x", "y", transA=1), "a vector, of which no two axes can be exchanged"),
        (node("SkipLayerNormalization", "x x eight", "y mean"), "its mean or deviation, which are for training"),
        (node("FusedGemm", "x dense", "y", activation="Swish"), "the activation swish is not known"),
    ],
)
def test_refused(wrong: onnx.NodeProto, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved(of(wrong, x=(8, 8)), tmp_path))
