"""ONNX nodes of a domain of somebody's own that are not brought, or not as the file uses them: named with why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from codegen_c.custom import registry
from tests.models.onnx_models import model_of, saved
from tests.support import custom_operators as custom
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.custom import CustomOperator, CustomTensor

ENVELOPE = replace(custom.ENVELOPE, name="my.domain.Envelope")


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own table of registered operators."""
    monkeypatch.setattr(registry, "_registered", {})


def refused(model: onnx.ModelProto, folder: Path, reason: str, operator: CustomOperator | None = ENVELOPE) -> None:
    if operator is not None:
        tvm_ext.custom.register_operator(operator)
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved(model, folder))


def of_node(node: onnx.NodeProto, kind: int = TensorProto.INT16, **named: np.ndarray) -> onnx.ModelProto:
    outputs = [(name, TensorProto.INT32) for name in node.output]
    model = model_of([node], {"samples": (1, 32)}, outputs, constants=named, domains=[node.domain])
    model.graph.input[0].type.tensor_type.elem_type = kind
    return model


def envelope(inputs: tuple[str, ...] = ("samples",), **attributes: object) -> onnx.NodeProto:
    return helper.make_node("Envelope", list(inputs), ["level"], "follower", domain="my.domain", **attributes)


def test_a_missing_operator_says_how_to_bring_it(tmp_path: Path) -> None:
    way = r"bring it as a tvm_ext.custom.CustomOperator, registered by .*, named 'my.domain.Envelope'"
    refused(of_node(envelope(decay=4)), tmp_path, way, operator=None)
    constants = envelope(("a",), decay=4)
    refused(of_node(constants, a=np.zeros((1, 32), np.int16)), tmp_path, way, operator=None)


def test_a_plain_name_is_not_enough(tmp_path: Path) -> None:
    """An operator of TensorFlow Lite files is none of a domain."""
    refused(of_node(envelope(decay=4)), tmp_path, "named 'my.domain.Envelope'", operator=custom.ENVELOPE)


def test_calls_that_it_does_not_take(tmp_path: Path) -> None:
    refused(of_node(envelope(decay=4), TensorProto.INT32), tmp_path, r"it supports int16 only, not int32\[1, 32\]")
    half = of_node(envelope(decay=4), TensorProto.FLOAT16)
    refused(half, tmp_path, r"its tensor 'samples' is of type float16; C11 has float32")
    known = of_node(envelope(("a",), decay=4), a=np.zeros((1, 32), np.int16))
    refused(known, tmp_path, "all its inputs are constants")
    table = envelope(decay=4, table=numpy_helper.from_array(np.zeros(2, np.float32)))
    refused(of_node(table), tmp_path, "its attribute 'table' is of kind TENSOR; .* Hand it in as an input")


def test_results_that_are_not_the_file_s(tmp_path: Path) -> None:
    two = replace(ENVELOPE, outputs=lambda call: [CustomTensor(shape=(1,), dtype="int32")] * 2)
    reason = r"it has 1 outputs in the file; by the operator's definition: int32\[1\], int32\[1\]"
    refused(of_node(envelope(decay=4)), tmp_path, reason, two)
    other = replace(ENVELOPE, outputs=lambda call: [CustomTensor(shape=(1, 32), dtype="int16")])
    refused(of_node(envelope(decay=4)), tmp_path, r"'level' is int16\[1, 32\] here, int32 in the file", other)


@pytest.mark.parametrize("kind", ["If", "Loop"])
def test_a_state_where_it_does_not_run_once(kind: str, tmp_path: Path) -> None:
    """A branch that may not be taken, passes that are written out: neither is one state of one run."""
    inner = helper.make_node("Envelope", ["samples"], ["inner"], "follower", domain="my.domain", decay=4)
    result = helper.make_tensor_value_info("inner", TensorProto.INT32, (1, 32))
    if kind == "If":
        bodies = [helper.make_graph([inner], name, [], [result]) for name in ("yes", "no")]
        node = helper.make_node("If", ["c"], ["level"], then_branch=bodies[0], else_branch=bodies[1])
        constants = dict[str, np.ndarray]()
    else:
        numbers = [helper.make_tensor_value_info("i", TensorProto.INT64, ()),
                   helper.make_tensor_value_info("go", TensorProto.BOOL, ())]  # fmt: skip
        body = helper.make_graph([inner, helper.make_node("Identity", ["go"], ["on"])], "body", numbers,
                                 [helper.make_tensor_value_info("on", TensorProto.BOOL, ()), result])  # fmt: skip
        node = helper.make_node("Loop", ["most", ""], ["level"], body=body)
        constants = {"most": np.array(2, np.int64)}
    model = model_of([node], {"samples": (1, 32), "c": ()}, [("level", TensorProto.INT32)], constants=constants,
                     domains=["my.domain"])  # fmt: skip
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT16
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.BOOL
    refused(model, tmp_path, "it keeps a state, and stands in a loop, or in a branch that a run may not take")
