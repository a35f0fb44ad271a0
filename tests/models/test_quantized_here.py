"""Before a model is quantized here its float form is compared with the file's own runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, transform
from tvm.relax.frontend.onnx import onnx_frontend

import tvm_ext
from relay_passes.dataflow import bindings, constant, infer, rebuild, with_main
from tests.support.tflite_models import RELU, Network
from tests.support.tflite_runners import saved_tflite
from tvm_ext import BuildOptions
from tvm_ext.compilation import stages
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.report.tables import report_tables
from tvm_ext.verification.reference_runtimes.ask import run_module

INT8 = BuildOptions(quantize="int8", verify=("host",))
RANDOM = np.random.default_rng(2)


def network(path: Path, function: str = "LeakyRelu") -> Path:
    """A convolution, a function of each element, a dense layer of three classes."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node(function, ["c"], ["f"]),
        helper.make_node("Flatten", ["f"], ["v"]),
        helper.make_node("MatMul", ["v", "d"], ["y"]),
    ]
    weights = {"w": RANDOM.standard_normal((4, 1, 3, 3)) * 0.3, "d": RANDOM.standard_normal((144, 3)) * 0.1}
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    graph = helper.make_graph(nodes, "small", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def calibration(count: int = 12) -> dict[str, np.ndarray]:
    return {"x": RANDOM.standard_normal((count, 1, 8, 8)).astype(np.float32)}


def _misread(monkeypatch: pytest.MonkeyPatch) -> None:
    """LeakyRelu is imported with another slope than the file's."""

    def wrong(cls: type, bb: relax.BlockBuilder, inputs: Any, attr: Any, params: object) -> relax.Expr:
        return relax.op.nn.leakyrelu(inputs[0], 0.3)

    for version in ("_impl_v1", "_impl_v6", "_impl_v16"):
        monkeypatch.setattr(onnx_frontend.LeakyRelu, version, classmethod(wrong), raising=False)


@pytest.mark.parametrize("options", [INT8, BuildOptions(verify=("host",))], ids=["int8", "float"])
def test_an_operator_that_is_imported_wrong_is_refused(
    options: BuildOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = network(tmp_path / "model.onnx")
    _misread(monkeypatch)
    given = {"calibration": calibration()} if options.quantize == "int8" else {}
    message = "the first tensor that differs is f" if given else "read the file differently"
    with pytest.raises(VerificationFailed, match=message):
        tvm_ext.build(path, "host", tmp_path / "package", options, **given)
    assert not (tmp_path / "package").exists()


def test_without_verification_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = network(tmp_path / "model.onnx")
    _misread(monkeypatch)
    options = BuildOptions(quantize="int8", verify=())
    package = tvm_ext.build(path, "host", tmp_path / "package", options, calibration=calibration())
    assert package.report["comparisons"] == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "activations of 8 bits, weights of 8"),
        ({"activations": "int16"}, "activations of 16 bits, weights of 8"),
        ({"weights": "int4"}, "activations of 8 bits, weights of 4 or 8"),
    ],
)
def test_the_report_leads_from_the_file_to_the_c(more: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = network(tmp_path / "model.onnx")
    options = BuildOptions(quantize="int8", verify=("host",), **more)
    package = tvm_ext.build(path, "host", tmp_path / "package", options, calibration=calibration())
    first, quantized, last = package.report["comparisons"]
    assert first["against"] == "onnxruntime" and first["own_reading"] is None and first["of_tolerance"] < 0.5
    assert said in quantized["form"] and quantized["against"] == "the float model in onnxruntime"
    assert quantized["snr_db"] > 10 and quantized["top1_agreement"] >= 0.75 and quantized["samples"] == 8
    assert last == {**last, "form": "the C code", "against": "the quantized model in TVM"}
    assert package.report["verify"]["host"]["own_reading"] is None
    assert len(report_tables(package.report)) == len(report_tables({**package.report, "comparisons": []})) + 1
    readme = (tmp_path / "package" / "README.md").read_text(encoding="utf-8")
    assert "own reading" not in readme and "the float model in onnxruntime" in readme


def test_samples_that_are_an_iterator_are_read_once(tmp_path: Path) -> None:
    path, samples = network(tmp_path / "model.onnx"), calibration()["x"]
    given = ({"x": sample[None]} for sample in samples)
    assert tvm_ext.build(path, "host", tmp_path / "package", INT8, calibration=given).report["comparisons"]


def test_without_a_runtime_it_is_still_our_own_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_ext.verification.reference_runtimes.ask._run_on_file", lambda *_, **__: "is not installed")
    path = network(tmp_path / "model.onnx")
    package = tvm_ext.build(path, "host", tmp_path / "package", INT8, calibration=calibration())
    assert "quantized here" in package.report["verify"]["host"]["own_reading"]


def test_a_module_that_tvm_does_not_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_ext.verification.reference_runtimes.ask._run_here", lambda *_: "out of memory")
    with pytest.raises(VerificationFailed, match="TVM cannot run the module: out of memory"):
        run_module(tvm_ext.load(network(tmp_path / "model.onnx")), [])


def test_a_tflite_file_quantized_here_rounds_once(tmp_path: Path) -> None:
    """Its floats say nothing of TensorFlow Lite's integers; C and QDQ form are equal byte for byte."""
    net = Network()
    hidden = net.dense(net.input((1, 8), "x"), 16, "hidden", activation=RELU)
    bias = net.writer.constant("bias", RANDOM.standard_normal(16).astype(np.float32))
    path = saved_tflite(net.writer.finish([net.binary("ADD", hidden, bias, "y")]), tmp_path)
    samples = {"x": RANDOM.standard_normal((12, 1, 8)).astype(np.float32)}
    package = tvm_ext.build(tvm_ext.load(path), "cortex_m4", tmp_path / "out", INT8, calibration=samples)
    assert package.interface.rounding == "onnx" == package.report["model"]["rounding"]
    assert package.report["verify"]["host"]["differing"] == 0
    assert {step["kernel"] for step in package.report["steps"]} == {"qdense_dsp", "qaffine_i8"}


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "module"])
def test_a_float_model_that_a_pass_rewrites_wrongly_is_refused(
    is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong layout of 0.63 passed in silence, because only the loaded and the quantized module were compared."""

    @transform.module_pass(opt_level=0, name="Wrong")
    def wrong(mod: tvm.IRModule, _context: transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        *steps, last = bindings(main)
        x, weights = last.value.args
        changed = infer(relax.op.matmul(x, constant(weights.value.numpy() * np.float32(1.05))))
        return with_main(mod, rebuild(main, [*steps, relax.VarBinding(last.var, changed)]))

    real = stages.attention
    monkeypatch.setattr(stages, "attention", lambda: [*real(), wrong])
    module = tvm_ext.load(network(tmp_path / "small.onnx"))
    if not is_file:
        module = ModelOrigin().write(module)
    message = "read the float model in the file differently" if is_file else "passes of tvm_ext change the outputs"
    with pytest.raises(VerificationFailed, match=message):
        tvm_ext.build(module, "host", tmp_path / "out", INT8, calibration=calibration())
