"""Reference runtimes of what a model means: the format's own runtime first, and the reasons where there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, model_of, saved
from tests.support.packages import HOST_ONLY
from tests.support.peers import peer
from tests.support.tflite_models import NETWORKS
from tests.support.tflite_runners import saved_tflite
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.verification.reference_runtimes import ask as asking
from tvm_ext.verification.reference_runtimes.ask import ask
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import deviation


def host_result(path: Path, folder: Path) -> dict[str, object]:
    return tvm_ext.build(tvm_ext.load(path), "host", folder / "out", HOST_ONLY).report["verify"]["host"]


def samples(mod: tvm.IRModule, count: int = 2) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    specs = {p.name: ([int(d) for d in p.ty.shape.values], str(p.ty.dtype)) for p in mod["main"].params}
    return [
        {n: random.integers(0, 9, shape).astype(dtype) for n, (shape, dtype) in specs.items()} for _ in range(count)
    ]


def tflite_names(data: bytes, folder: Path) -> tuple[tvm.IRModule, list[str]]:
    mod = tvm_ext.load(saved_tflite(data, folder))
    return mod, [binding.var.name for block in mod["main"].body.blocks for binding in block.bindings]


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Reference runtimes that are not installed."""
    kept = {
        kind: tuple(replace(w, module="nothing", needs="nothing") if w.name in names else w for w in runtimes)
        for kind, runtimes in asking._OF_FORMAT.items()
    }
    monkeypatch.setattr(asking, "_OF_FORMAT", kept)


def test_tflite_is_compared_with_tensorflow_lite_micro(tmp_path: Path) -> None:
    """Byte by byte: nothing differs at all, and inner tensors are compared too."""
    peer("tflite_micro")
    found = host_result(saved_tflite(NETWORKS["ds_cnn"](int8=True), tmp_path), tmp_path)
    assert found["reference"] == "TensorFlow Lite Micro" and found["own_reading"] is None
    assert found["differing"] == 0 and found["tensors_compared"] >= 7


def test_both_tflite_runtimes_give_inner_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer("tflite_micro")
    peer("ai_edge_litert")
    mod, names = tflite_names(NETWORKS["resnet"](int8=True), tmp_path)
    given = samples(mod)
    micro = ask(mod, given, names, quantized_here=False)
    without(monkeypatch, "TensorFlow Lite Micro")
    lite = ask(mod, given, names, quantized_here=False)
    assert (micro.runtime, lite.runtime) == ("TensorFlow Lite Micro", "LiteRT")
    assert lite.refusals[0].reason == "is not installed (pip install 'tvm-ext[reference]')"
    assert micro.inner[0].keys() == lite.inner[0].keys() and len(micro.inner[0]) >= 10
    for one, other in zip(micro.inner + micro.outputs, lite.inner + lite.outputs, strict=True):
        for name, array in one.items():
            assert np.abs(array.astype(int) - other[name]).max() <= 1, name


def test_where_no_runtime_is_installed_it_is_our_own_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "TensorFlow Lite Micro", "LiteRT")
    path = saved_tflite(NETWORKS["autoencoder"](), tmp_path)
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", HOST_ONLY)
    found = package.report["verify"]["host"]
    assert found["reference"] == "TVM" and "is not installed" in found["own_reading"]
    assert [refusal["runtime"] for refusal in found["refused_by"]] == ["TensorFlow Lite Micro", "LiteRT"]
    assert "Compared with our own reading only" in (package.folder / "README.md").read_text()


def test_shapes_that_tensorflow_lite_micro_cannot_take_go_to_litert(tmp_path: Path) -> None:
    peer("ai_edge_litert")
    path = saved_tflite(NETWORKS["ds_cnn"](signature=(-1, 25, 10, 1)), tmp_path)
    mod = tvm_ext.load(path, shapes={"image": (2, 25, 10, 1)})
    found = ask(mod, samples(mod), [], quantized_here=False)
    assert found.runtime == "LiteRT" and found.outputs[0]["probabilities"].shape[0] == 2


def test_a_relax_module_is_run_by_tvm_which_is_not_our_reading(tmp_path: Path) -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                y = R.add(x, x)
                R.output(y)
            return y

    found = host_result_of(Module, tmp_path)
    assert found["reference"] == "TVM" and found["own_reading"] is None and found["refused_by"] == []


def host_result_of(mod: tvm.IRModule, folder: Path) -> dict[str, object]:
    return tvm_ext.build(tvm_ext.load(mod), "host", folder / "out", HOST_ONLY).report["verify"]["host"]


def test_what_onnxruntime_refuses_is_our_own_reading(tmp_path: Path) -> None:
    """Whole-number products with a zero point for each column are not in onnxruntime."""
    values = [
        helper.make_tensor_value_info("a", TensorProto.UINT8, [2, 3]),
        helper.make_tensor_value_info("b", TensorProto.UINT8, [3, 2]),
    ]
    zero = helper.make_tensor("zero", TensorProto.UINT8, [], [1])
    result = helper.make_tensor_value_info("y", TensorProto.INT32, [2, 2])
    nodes = [helper.make_node("MatMulInteger", ["a", "b", "zero"], ["y"])]
    graph = helper.make_graph(nodes, "g", values, [result], [zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=8)
    mod = tvm_ext.load(saved(model, tmp_path))
    path = Path(str(ModelOrigin.read(mod).path))
    path.write_bytes(path.read_bytes() + b"\x00")  # another file by now
    found = ask(mod, samples(mod), [], quantized_here=False)
    assert found.runtime == "TVM" and "onnxruntime" in found.own_reading


@pytest.mark.parametrize(
    ("limits", "reason"), [(ChildLimits(seconds=0.001), "did not end within"), (ChildLimits(memory_bytes=1 << 27), "")]
)
def test_a_reference_beyond_its_limits_refuses(
    limits: ChildLimits, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["branches"](), tmp_path))
    monkeypatch.setattr(asking, "LIMITS", limits)
    monkeypatch.setattr(asking, "_MOST_MACS_HERE", -1)
    with pytest.raises(VerificationFailed, match=f"no reference runtime can run the model.*onnxruntime: .*{reason}"):
        ask(mod, samples(mod), [], quantized_here=False)


def test_with_verify_none_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("tvm_ext.building.subject.ask", nobody)
    monkeypatch.setattr("tvm_ext.building.selftest.reference", None)
    mod = tvm_ext.load(saved(SMALL_MODELS["branches"](), tmp_path))
    package = tvm_ext.build(mod, "host", tmp_path / "out", tvm_ext.BuildOptions(verify=()))
    name = package.report["model"]["name"]
    assert "outputs are unknown without verification" in (package.folder / f"{name}_vectors.h").read_text()
    assert json.loads((package.folder / "report.json").read_text())["verify"] == {"host": None, "qemu": None}


def test_a_module_goes_to_the_child_as_it_is(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["branches"](), tmp_path))
    tvm.ir.assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(mod)), mod)


@pytest.mark.parametrize(("scale", "reference"), [(0.6, "TVM"), (2.0, "onnxruntime")])
def test_onnxruntime_is_not_asked_where_it_leaves_the_standard(tmp_path: Path, scale: float, reference: str) -> None:
    """Between aligned corners a row of four becomes [1, 3.14]: the standard's own numbers, where onnxruntime has 4."""
    node = helper.make_node(
        "Resize", ["x", "", "s"], ["y"], mode="linear", coordinate_transformation_mode="align_corners"
    )
    model = model_of([node], {"x": (1, 1, 1, 4)}, ["y"], {"s": np.array([1, 1, 1, scale], "float32")}, opset=19)
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out", HOST_ONLY)
    assert package.report["verify"]["host"]["reference"] == reference
    if reference == "TVM":
        assert "differently from the standard" in package.report["verify"]["host"]["own_reading"]
        found = package.run({"x": np.arange(1, 5, dtype="float32").reshape(1, 1, 1, 4)})["y"]
        np.testing.assert_allclose(found.ravel(), [1, 3.142857], rtol=1e-6)


def test_scores_of_causal_attention_are_not_asked_of_onnxruntime() -> None:
    """It gives the least finite number for a masked score; the standard, minus infinity."""
    outputs = ["y", "", "", "scores"]
    for mode, count, expected in ((2, 4, True), (1, 4, False), (2, 1, False)):
        node = helper.make_node("Attention", list("qkv"), outputs[:count], is_causal=1, qk_matmul_output_mode=mode)
        model = model_of([node], dict.fromkeys("qkv", (1, 1, 2, 4)), outputs[:count][::3], opset=23)
        assert (deviation(model) is not None) == expected
