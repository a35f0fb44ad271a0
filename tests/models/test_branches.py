"""Of an If whose condition is known only at run time, a run executes one branch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tests.support.onnx_models import saved
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.report.page.grids import costs, layer_grid
from tvm_ext.report.page.page import report_page
from tvm_ext.report.tables import totals_table
from tvm_ext.report.timeline import timeline_of

SHAPE = (1, 8, 16, 16)
pytestmark = pytest.mark.filterwarnings("ignore:.*both branches are compiled")


class Graph:
    """Nodes and constants of a graph whose tensors have names that begin alike."""

    def __init__(self, name: str) -> None:
        self.name, self.nodes = name, list[onnx.NodeProto]()
        self.constants, self.rng = list[onnx.TensorProto](), np.random.default_rng(len(name))

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        output = f"{self.name}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))
        return output

    def constant(self, array: np.ndarray) -> str:
        name = f"{self.name}_w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def convolution(self, x: str, before: int, after: int) -> str:
        weights = self.constant(self.rng.normal(size=(after, before, 3, 3)) * 0.2)
        return self.node("Conv", x, weights, pads=[1, 1, 1, 1])

    def body(self, output: str) -> onnx.GraphProto:
        value = helper.make_tensor_value_info(output, TensorProto.FLOAT, SHAPE)
        return helper.make_graph(self.nodes, self.name, [], [value], self.constants)


def layers(name: str, x: str, inner: int) -> onnx.GraphProto:
    """Two convolutions, from 8 channels to `inner` and back."""
    graph = Graph(name)
    hidden = graph.node("Relu", graph.convolution(x, 8, inner))
    return graph.body(graph.convolution(hidden, inner, 8))


def exceeds(graph: Graph, x: str, threshold: float) -> str:
    """Add the comparison of a tensor's mean with a threshold."""
    return graph.node("Greater", graph.node("ReduceMean", x, keepdims=0), graph.constant(np.array(threshold)))


def model(threshold: float, *, nested: bool = False) -> onnx.ModelProto:
    """A convolution, then many or few more of them. nested: the branch of many decides once more."""
    graph = Graph("main")
    shared = graph.node("Relu", graph.convolution("x", 3, 8))
    many = layers("many", shared, 32)
    if nested:
        outer = Graph("outer")
        first = outer.convolution(shared, 8, 8)
        inner = exceeds(outer, first, 0.0)
        many = outer.body(
            outer.node("If", inner, then_branch=layers("deep", first, 16), else_branch=layers("flat", shared, 4))
        )
    chosen = graph.node("If", exceeds(graph, shared, threshold), then_branch=many, else_branch=layers("few", shared, 8))
    output = graph.node("Relu", chosen)
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 3, 16, 16)), (output, SHAPE))
    ]
    made = helper.make_graph(graph.nodes, "main", ports[:1], ports[1:], graph.constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.board
def test_a_run_executes_one_branch(tmp_path: Path) -> None:
    """The branches have 1,179,648 and 294,912 multiply-accumulates."""
    counts: dict[bool, int] = {}
    for takes_many, threshold in ((True, -100.0), (False, 100.0)):
        path = saved(model(threshold), tmp_path, f"branches_{takes_many}".lower())
        options = BuildOptions(verify=("host", "qemu"))
        folder = tmp_path / f"out_{takes_many}"
        package = tvm_ext.build(path, "cortex_m4", folder, options)
        assert all(package.report["verify"][target]["passed"] for target in ("host", "qemu"))
        counts[takes_many] = package.report["verify"]["qemu"]["instructions"]
        assert "} else {" in (folder / f"{path.stem}.c").read_text()
        profile = package.profile({"x": np.ones((1, 3, 16, 16), np.float32)})
        assert [name for name in profile.skipped or () if "permute" not in name] == (
            ["else_few_0", "else_few_2"] if takes_many else ["then_many_0", "then_many_2"]
        )
        assert not {layer.name for layer in profile.layers} & set(profile.skipped)
    assert 0.6 * 1_179_648 < counts[True] - counts[False] < 2 * 1_179_648


@pytest.mark.parametrize("nested", some_of([True], sweep=[False]))
def test_both_sides_give_the_numbers_of_onnxruntime(nested: bool, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = saved(model(0.35, nested=nested), tmp_path)
    with pytest.warns(ModelNotice, match="a run skips steps of the branch that is not taken"):
        module = tvm_ext.load(path)
    package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions(verify=("host",)))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for scale in (0.1, 0.3, 1.0, 3.0, -1.0):
        x = (scale * (1 + rng.normal(size=(1, 3, 16, 16)))).astype(np.float32)
        (found,) = package.run({"x": x}).values()
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


SHARED_MACS = 3 * 8 * 9 * 256
MANY_MACS, FEW_MACS = 2 * 8 * 32 * 9 * 256, 2 * 8 * 8 * 9 * 256


def test_predictions_are_of_the_worst_and_the_best_case(tmp_path: Path) -> None:
    """A run never has the multiply-accumulates of both branches."""
    path = saved(model(0.35), tmp_path)
    report = tvm_ext.build(path, "cortex_m4", tmp_path / "out", BuildOptions(verify=())).report
    assert report["macs"] - report["macs_best_case"] == MANY_MACS - FEW_MACS
    assert SHARED_MACS + MANY_MACS <= report["macs"] < SHARED_MACS + MANY_MACS + FEW_MACS
    predicted, steps = report["prediction"], report["steps"]
    worst = [step for step in steps if step.get("in_worst_case", True)]
    few = [step for step in steps if not step.get("in_worst_case", True)]
    assert few[0]["name"] == "else_few_0" and all(step["guards"][0]["holds"] is False for step in few)
    assert abs(sum(step["predicted_cycles"] for step in worst) - predicted["cycles"]) <= len(worst)
    assert sum(step["macs"] for step in worst) == report["macs"]
    for key in ("cycles", "instructions", "ms"):
        assert 0 < predicted[f"{key}_best_case"] < predicted[key]
    assert {one.step for one in timeline_of(report)} == {step["name"] for step in worst}
    cells = [str(cell) for column in totals_table(report).columns for cell in column.cells]
    assert f"{report['macs']:,}; best case {report['macs_best_case']:,}" in cells
    assert sum("not in the worst case" in cost.text for cost in costs(report)[1]) == len(few)
    assert "runs if" in layer_grid(report).headings and "best case" in report_page(report)
    found = tvm_ext.estimate(path, "cortex_m4")
    assert found.best_case and (found.macs, found.best_case.macs) == (report["macs"], report["macs_best_case"])
    assert (found.predicted_cycles, found.best_case.cycles) == (predicted["cycles"], predicted["cycles_best_case"])
    assert "best case" in repr(found)


def test_a_model_without_branches_has_no_best_case(tmp_path: Path) -> None:
    net = model(0.35)
    net.graph.node.pop()
    net.graph.node.pop()
    net.graph.output[0].name = net.graph.node[1].output[0]
    report = tvm_ext.build(saved(net, tmp_path), "cortex_m4", tmp_path / "out", BuildOptions(verify=())).report
    assert "macs_best_case" not in report and set(report["prediction"]) == {
        "note", "cycles", "cycles_in_default_memory", "moved"
    }  # fmt: skip
    assert not any("guards" in step for step in report["steps"])


def test_a_branch_in_parts_stays_right(tmp_path: Path) -> None:
    """Sequences of rows run for both branches, so no step whose results they read is skipped."""
    path = saved(model(0.35), tmp_path)
    whole = tvm_ext.estimate(path, "host").arena_bytes
    package = tvm_ext.build(path, "host", tmp_path / "out", BuildOptions(verify=("host",), ram=whole * 2 // 3))
    assert package.report["fit"]["attempts"][-1]["method"] != "whole"
    assert package.report["verify"]["host"]["passed"]


@pytest.mark.parametrize(("threshold", "branch"), [(-100.0, "else_few"), (1e30, "then_many")])
def test_a_branch_that_no_sample_takes_gets_a_warning(threshold: float, branch: str, tmp_path: Path) -> None:
    options = BuildOptions(verify=("host",))
    report = tvm_ext.build(saved(model(threshold), tmp_path), "host", tmp_path / "out", options).report
    (said,) = [text for text in report["verify"]["host"]["warnings"] if "takes the branch of" in text]
    assert branch in said and "the C code of the branch was compiled but not run" in said
