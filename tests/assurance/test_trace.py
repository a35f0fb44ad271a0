"""trace.json is complete both ways: every operator of the model, and every line of the model's C."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tvm import relax

import tvm_ext
from tests.passes.modules import module_of
from tests.support.kinds import KINDS, OFTEN
from tests.support.onnx_models import model_of, saved, weights
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_model
from tvm_ext.core.decisions.models import ModelOrigin

NODE = helper.make_node
Trace = dict[str, Any]


def traced(module: Any, platform: Platform, options: BuildOptions) -> tuple[Trace, dict[str, str]]:
    """The map, and the texts that it describes."""
    module, compiled = compile_model(tvm_ext.load(module), platform, options)
    nodes = ModelOrigin.read(module).nodes
    trace = json.loads(compiled.trace(nodes))
    assert [entry["name"] for entry in trace["nodes"]] == [node.name for node in nodes]
    return trace, compiled.sources()


def check(trace: Trace, sources: dict[str, str]) -> None:
    """Every line is of one piece; each step and function names nodes; each node has lines or a reason."""
    names = {node["name"] for node in trace["nodes"]}
    with_code = {node["name"] for node in trace["nodes"] if node["became"] == "code"}
    for file in {entry["file"] for entry in trace["code"]}:
        lines = [entry["lines"] for entry in trace["code"] if entry["file"] == file]
        assert lines[0][0] == 1 and lines[-1][1] == sources[file].count("\n") + 2, file
        assert all(end == begin for (_, end), (begin, _) in pairwise(lines)), file
    for entry in trace["code"]:
        text = "\n".join(sources[entry["file"]].split("\n")[entry["lines"][0] - 1 : entry["lines"][1] - 1])
        assert {*entry["nodes"], *entry["serves"]} <= names, entry
        assert entry["is"] == "text" or entry["nodes"] or entry["serves"], entry
        assert entry["is"] not in ("function", "constant") or entry["name"] in text, entry
        assert entry["is"] != "text" or "TVM_EXT_STEP void" not in text, entry
    for node in trace["nodes"]:
        if node["became"] == "code":
            assert node["steps"] and node["lines"], node
            for place in node["lines"]:
                matching = [e for e in trace["code"] if (e["file"], e["lines"]) == (place["file"], place["lines"])]
                assert [node["name"] in entry["nodes"] for entry in matching] == [True], node
        else:
            assert node["became"] == "unused" or node["into"], node
            assert {*node["into"]} <= with_code, node


@pytest.mark.parametrize("name", some_of(OFTEN, sweep=[name for name in KINDS if name not in OFTEN]))
def test_kinds(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    check(*traced(kind.source(tmp_path), kind.platform, kind.options))


@pytest.mark.parametrize("name", ["kws_fp32", "kws_int8", "resnet_int8"])
def test_shared_models(name: str, shared_models: Path) -> None:
    trace, sources = traced(shared_models / f"{name}.onnx", Platform.load("cortex_m4"), BuildOptions())
    check(trace, sources)
    model = onnx.load(shared_models / f"{name}.onnx")
    operators = {node["operator"]: node["became"] for node in trace["nodes"] if node["operator"] in ("Conv", "MatMul")}
    assert len(trace["nodes"]) == len(model.graph.node) and set(operators.values()) == {"code"}


def test_digits_quantized_here(digits: Path) -> None:
    options = BuildOptions(quantize="int8")
    module, compiled = compile_model(
        tvm_ext.load(digits / "digits.onnx"), Platform.load("cortex_m55"), options, digits / "digits_calibration.npz"
    )
    nodes = ModelOrigin.read(module).nodes
    check(json.loads(compiled.trace(nodes)), compiled.sources())


def test_what_becomes_of_operators_without_code(tmp_path: Path) -> None:
    """Numbers known when compiled, a view of a tensor, a batch norm in the weights before it, what nobody reads."""
    nodes = [
        NODE("Add", ["w", "w"], ["w2"], "twice"),
        NODE("Conv", ["x", "w2"], ["c"], "conv"),
        NODE("BatchNormalization", ["c", "one", "zero", "zero", "one"], ["n"], "norm"),
        NODE("Reshape", ["n", "shape"], ["y"], "view"),
        NODE("Sigmoid", ["x"], ["lost"], "nobody"),
    ]
    constants = {
        "w": weights(4, 2, 3, 3), "one": np.ones(4, np.float32), "zero": np.zeros(4, np.float32),
        "shape": np.array([1, 64]),
    }  # fmt: skip
    path = saved(model_of(nodes, {"x": (1, 2, 6, 6)}, ["y"], constants), tmp_path)
    trace, sources = traced(path, Platform.load("host"), BuildOptions())
    check(trace, sources)
    fates = {node["name"]: (node["became"], node.get("into")) for node in trace["nodes"]}
    assert fates["twice"] == ("constant", ["conv"])
    assert fates["conv"] == ("code", None)
    assert fates["norm"][0] in ("folded", "code")
    assert fates["view"] == ("folded", ["conv"] if fates["norm"][0] == "folded" else ["norm"])
    assert fates["nobody"] == ("unused", [])


def test_a_relax_module(tmp_path: Path) -> None:
    """Its operators have no names but those of their results."""
    x = relax.Var("x", relax.TensorType((1, 4), "float32"))
    module = module_of([x], lambda builder: relax.op.sigmoid(builder.emit(relax.op.add(x, x))))
    check(*traced(module, Platform.load("host"), BuildOptions()))


def test_a_wrong_map_is_noticed(tmp_path: Path) -> None:
    kind = KINDS["float_host"]
    trace, sources = traced(kind.source(tmp_path), kind.platform, replace(kind.options))
    check(trace, sources)
    function = next(entry for entry in trace["code"] if entry["is"] == "function" and entry["nodes"])
    for key, wrong in (("nodes", []), ("lines", [function["lines"][0] + 1, function["lines"][1]])):
        right, function[key] = function[key], wrong
        with pytest.raises(AssertionError):
            check(trace, sources)
        function[key] = right
