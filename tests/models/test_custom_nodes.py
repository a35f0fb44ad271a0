"""ONNX nodes of a domain of somebody's own: compiled by what was brought for them, on the host and on a board."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_ext
from codegen_c.custom import registry
from tests.models.onnx_models import model_of, saved
from tests.support import custom_operators as custom
from tvm_ext import BuildOptions

ENVELOPE = replace(custom.ENVELOPE, name="my.domain.Envelope")
MATCHED = replace(custom.MATCHED, name="my.domain.Matched")
MISH = replace(custom.MISH, name="my.domain.Mish")


@pytest.fixture(autouse=True)
def brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own table of registered operators."""
    monkeypatch.setattr(registry, "_registered", {})
    for operator in (ENVELOPE, MATCHED, MISH):
        tvm_ext.custom.register_operator(operator)


def envelope(**attributes: object) -> onnx.NodeProto:
    return helper.make_node("Envelope", ["samples"], ["level"], "follower", domain="my.domain", **attributes)


def both(folder: Path) -> Path:
    """Samples and their envelope, and beside them a vector and its match in a constant bank."""
    matched = helper.make_node("Matched", ["x", "bank"], ["score", "index"], "match", domain="my.domain")
    bank = np.random.default_rng(0).integers(-128, 128, (5, 8)).astype(np.int8)
    outputs = [(name, TensorProto.INT32) for name in ("level", "score", "index")]
    model = model_of(
        [envelope(decay=4), matched], {"samples": (1, 32), "x": (1, 8)}, outputs,
        constants={"bank": bank}, domains=["my.domain"],
    )  # fmt: skip
    for value, kind in zip(model.graph.input, (TensorProto.INT16, TensorProto.INT8), strict=True):
        value.type.tensor_type.elem_type = kind
    return saved(model, folder, "both.onnx")


@pytest.mark.board
def test_states_constants_tables_and_several_results(tmp_path: Path) -> None:
    """C and references agree on both targets, from run to run; the report names whose references they were."""
    package = tvm_ext.build(tvm_ext.load(both(tmp_path)), "cortex_m4", tmp_path / "out", BuildOptions())
    for target in ("host", "qemu"):
        result = package.report["verify"][target]
        assert result["passed"] and result["differing"] == 0 and result["elements"] >= 340
        listed = "my.domain.Envelope, my.domain.Matched"
        assert result["reference"] == f"TVM with the CustomOperator's own reference of {listed}"
        assert [refusal["runtime"] for refusal in result["refused_by"]] == ["onnxruntime"]
    assert [state["name"] for state in package.report["states"]] == ["follower.state"]
    call = tvm_ext.custom.CustomCall(operator="", inputs=(), outputs=(), options={"decay": 4})
    random, state = np.random.default_rng(3), np.array([100], np.int32)
    with package.session() as session:
        for scale in (30000, 300, 3):
            samples = random.integers(-scale, scale, (1, 32)).astype(np.int16)
            expected, state = ENVELOPE.reference(call, [samples, state])
            found = session.run({"samples": samples, "x": np.ones((1, 8), np.int8)})
            np.testing.assert_array_equal(found["level"], expected)


def test_floats_between_standard_operators(tmp_path: Path) -> None:
    """In a function of the model's own, too; the shape follows that of the input."""
    function = helper.make_function(
        "own", "Bent", ["a"], ["b"], [helper.make_node("Mish", ["a"], ["b"], domain="my.domain")],
        [helper.make_opsetid("my.domain", 1)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Neg", ["x"], ["negative"]),
        helper.make_node("Bent", ["negative"], ["bent"], domain="own"),
        helper.make_node("Abs", ["bent"], ["y"]),
    ]
    model = model_of(nodes, {"x": (1, "rows", 3)}, ["y"], functions=[function], domains=["own", "my.domain"])
    mod = tvm_ext.load(saved(model, tmp_path), shapes={"x": (1, 6, 3)})
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions())
    result = package.report["verify"]["host"]
    assert result["passed"] and result["max_abs_error"] < 1e-5
    assert [step["kernel"] for step in package.report["steps"]] == ["elementwise_f32", "custom", "elementwise_f32"]
    assert package.outputs["y"].shape == (1, 6, 3)


def test_options_of_all_kinds(tmp_path: Path) -> None:
    seen = list[tvm_ext.custom.CustomCall]()
    tvm_ext.custom.register_operator(replace(ENVELOPE, refuses=lambda call: seen.append(call)))
    node = envelope(decay=4, gain=0.5, mode="slow", taps=[1, 2], weights=[0.25, 0.5])
    model = model_of([node], {"samples": (1, 32)}, [("level", TensorProto.INT32)], domains=["my.domain"])
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT16
    tvm_ext.load(saved(model, tmp_path))
    assert seen[0].options == {"decay": 4, "gain": 0.5, "mode": "slow", "taps": (1, 2), "weights": (0.25, 0.5)}
    assert [tensor.name for tensor in seen[0].present] == ["samples"]
