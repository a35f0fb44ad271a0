"""Models quantized here, built, run and compared: digits by its accuracy, others step by step with TVM."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from rich.console import Console
from tvm import relax

import tvm_ext
from tests.passes.modules import module_of
from tests.support.onnx_models import model_of, saved, weights
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.core.errors import BadOptions, UnsupportedModel
from tvm_ext.execution.host_model import HostModel
from tvm_ext.report.tables import report_tables

INT8 = BuildOptions(quantize="int8", verify=("host",))
UNVERIFIED = BuildOptions(quantize="int8", verify=())


@pytest.fixture(scope="module")
def calibration(digits: Path) -> Path:
    return digits / "digits_calibration.npz"


@pytest.fixture(scope="module")
def quantized(digits: Path, calibration: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    module = tvm_ext.load(digits / "digits.onnx")
    return tvm_ext.build(module, "host", tmp_path_factory.mktemp("int8") / "digits", INT8, calibration=calibration)


def accuracy(package: Package, digits: Path) -> float:
    """Part of the held-out images that a package names rightly."""
    held_out = np.load(digits / "digits_test.npz")
    images = (held_out["images"] / 16).astype("float32").reshape(-1, 1, 1, 8, 8)
    spec = package.inputs["image"]
    if spec.scale is not None:
        images = np.clip(np.rint(images / spec.scale) + spec.zero_point, -128, 127).astype("int8")
    with HostModel(package.folder, package.interface) as model:
        guesses = [model.run({"image": image})["probabilities"].argmax() for image in images]
    return float(np.mean(guesses == held_out["labels"]))


def test_accuracy_falls_by_half_a_point_at_most(quantized: Package, digits: Path, tmp_path: Path) -> None:
    module = tvm_ext.load(digits / "digits.onnx")
    in_float = tvm_ext.build(module, "host", tmp_path / "float", BuildOptions(verify=()))
    before, after = accuracy(in_float, digits), accuracy(quantized, digits)
    assert before > 0.97 and after >= before - 0.005
    small = tvm_ext.build(
        module, "host", tmp_path / "small", replace(UNVERIFIED, optimize="size"),
        calibration=digits / "digits_calibration.npz",
    )  # fmt: skip
    assert small.report["weights_bytes"] < in_float.report["weights_bytes"] * 0.35


def test_calibration_images_are_not_held_out(digits: Path, calibration: Path) -> None:
    with np.load(calibration, allow_pickle=False) as arrays:
        used = {image.tobytes() for image in np.rint(arrays["image"] * 16).astype("uint8").reshape(-1, 64)}
    held_out = np.load(digits / "digits_test.npz")["images"].reshape(-1, 64)
    assert len(used) == 100 and not used & {image.tobytes() for image in held_out}


def test_everything_is_integers_and_agrees_with_tvm(quantized: Package) -> None:
    report = quantized.report
    assert {out["dtype"] for step in report["steps"] for out in step["outputs"]} == {"int8"}
    assert not any("f32" in step["kernel"] or step["kernel"] == "generic" for step in report["steps"])
    host = report["verify"]["host"]
    assert host["passed"] and host["reference"] == "TVM" and host["tensors_compared"] == len(report["steps"])
    assert quantized.inputs["image"].dtype == "int8" and quantized.inputs["image"].scale == pytest.approx(1 / 255)
    assert quantized.outputs["probabilities"].scale == 1 / 256


def test_the_report_says_what_was_measured(quantized: Package) -> None:
    quantization = quantized.report["quantization"]
    assert [operator["name"] for operator in quantization["operators"]] == [
        "stem/Conv", "body/Conv", "body/MaxPool", "depthwise/Conv", "pointwise/Conv", "pool/GlobalAveragePool",
        "dense/Gemm", "Softmax",
    ]  # fmt: skip
    assert all(operator["snr_db"] > 30 and operator["dtype"] == "int8" for operator in quantization["operators"])
    assert quantization["left_float"] == [] and quantization["samples"] == 100
    assert quantization["accuracy_float"] >= 0.99 and quantization["accuracy_int8"] >= 0.99
    console = Console(width=120, record=True, file=io.StringIO())
    for table in report_tables(quantized.report):
        console.print(table)
    text = console.export_text()
    assert "Quantization" in text and "depthwise/Conv" in text and "quantized 100.00%" in text


def test_a_dict_and_samples_one_by_one_give_the_same_bytes(digits: Path, calibration: Path, tmp_path: Path) -> None:
    with np.load(calibration, allow_pickle=False) as file:
        arrays = {"image": file["image"][:20], "labels": file["labels"][:20]}
    single = ({"image": image, "labels": label} for image, label in zip(*arrays.values(), strict=True))
    np.savez(tmp_path / "c.npz", **arrays)
    sources = {}
    for name, source in (("dict", arrays), ("single", single), ("file", tmp_path / "c.npz")):
        module = tvm_ext.load(digits / "digits.onnx")
        package = tvm_ext.build(module, "host", tmp_path / name, UNVERIFIED, calibration=source)
        sources[name] = {path.name: path.read_bytes() for path in package.folder.glob("*.[ch]")}
    assert sources["dict"] == sources["single"] == sources["file"]


def test_float_borders(digits: Path, calibration: Path, tmp_path: Path) -> None:
    options = replace(INT8, io_type="float32")
    package = tvm_ext.build(
        tvm_ext.load(digits / "digits.onnx"), "host", tmp_path / "out", options, calibration=calibration
    )
    assert package.inputs["image"].dtype == package.outputs["probabilities"].dtype == "float32"
    assert accuracy(package, digits) >= 0.985


def test_operators_left_float(digits: Path, calibration: Path, tmp_path: Path) -> None:
    """A demand that int8 alone does not meet: some operators are float, and the whole still verifies."""
    options = replace(INT8, min_snr_db=55.0)
    package = tvm_ext.build(
        tvm_ext.load(digits / "digits.onnx"), "host", tmp_path / "out", options, calibration=calibration
    )
    quantization = package.report["quantization"]
    left = {entry["name"]: entry["reason"] for entry in quantization["left_float"]}
    kinds = {operator["name"]: operator["dtype"] for operator in quantization["operators"]}
    assert left and all(kinds[name] == "float32" and "55 dB are asked for" in left[name] for name in left)
    assert "int8" in kinds.values() and package.report["verify"]["host"]["passed"]


def test_a_processor_without_fpu(digits: Path, calibration: Path, tmp_path: Path) -> None:
    platform = Platform.load("host")
    without = replace(platform, processors=tuple(replace(p, fpu="none") for p in platform.processors))
    module = tvm_ext.load(digits / "digits.onnx")
    options = replace(UNVERIFIED, min_snr_db=1000.0)
    package = tvm_ext.build(module, without, tmp_path / "out", options, calibration=calibration)
    assert {operator["dtype"] for operator in package.report["quantization"]["operators"]} == {"int8"}
    with pytest.raises(BadOptions, match="no FPU"):
        tvm_ext.build(module, without, tmp_path / "io", replace(UNVERIFIED, io_type="float32"), calibration=calibration)


def test_float_code_inside_a_chain_is_named_where_there_is_no_fpu(tmp_path: Path) -> None:
    """A channel's own divisor: int8 on both sides, but no integer kernel divides by it."""
    x = relax.Var("x", relax.TensorType((1, 3, 4, 4), "float32"))
    divisors = relax.const(np.array([1.0, 2.0, 3.0], "float32").reshape(1, 3, 1, 1))
    module = module_of([x], lambda b: b.emit(relax.op.exp(b.emit(relax.op.nn.relu(relax.op.divide(x, divisors))))))
    platform = Platform.load("host")
    without = replace(platform, processors=tuple(replace(p, fpu="none") for p in platform.processors))
    samples = {"x": np.random.default_rng(0).normal(size=(2, 1, 3, 4, 4)).astype("float32")}
    with pytest.raises(UnsupportedModel, match="no FPU, and these operators have no integer kernel"):
        tvm_ext.build(module, without, tmp_path / "out", UNVERIFIED, calibration=samples)
    package = tvm_ext.build(module, platform, tmp_path / "out", INT8, calibration=samples)
    assert any(step["kernel"] == "generic" for step in package.report["steps"])


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["kws_fp32", "resnet_fp32"])
def test_networks_with_random_samples(name: str, shared_models: Path, tmp_path: Path) -> None:
    module = tvm_ext.load(shared_models / f"{name}.onnx")
    (param,) = module["main"].params
    shape = tuple(int(extent) for extent in param.ty.shape.values)
    samples = np.random.default_rng(0).normal(size=(4, *shape)).astype("float32")
    package = tvm_ext.build(module, "host", tmp_path / "out", INT8, calibration={param.name: samples})
    assert all(operator["snr_db"] > 20 for operator in package.report["quantization"]["operators"])
    assert package.report["quantization"]["accuracy_int8"] is None
    assert {out["dtype"] for step in package.report["steps"] for out in step["outputs"]} == {"int8"}


@pytest.mark.board
@pytest.mark.parametrize("min_snr_db", some_of([55.0], sweep=[10.0]))
def test_on_a_board(min_snr_db: float, digits: Path, calibration: Path, tmp_path: Path) -> None:
    options = BuildOptions(quantize="int8", min_snr_db=min_snr_db, verify=("host", "qemu"))
    module = tvm_ext.load(digits / "digits.onnx")
    package = tvm_ext.build(module, "cortex_m4", tmp_path / "out", options, calibration=calibration)
    assert package.report["verify"]["qemu"]["passed"]


def test_float_models_have_no_such_report(digits: Path, tmp_path: Path) -> None:
    package = tvm_ext.build(tvm_ext.load(digits / "digits.onnx"), "host", tmp_path / "out", BuildOptions(verify=()))
    assert json.loads((package.folder / "report.json").read_text())["quantization"] is None


def test_a_decoder_is_integers_throughout(tmp_path: Path) -> None:
    """Its transposed convolutions too, also one with groups, which becomes a layer for each group."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("ConvTranspose", ["r", "w1", "b1"], ["t"], strides=[2, 2], name="plain"),
        node("Relu", ["t"], ["u"]),
        node("ConvTranspose", ["u", "w2"], ["v"], group=2, name="grouped"),
        node("Conv", ["v", "w3"], ["y"]),
    ]
    constants = {
        "w0": weights(6, 3, 3, 3), "w1": weights(6, 4, 2, 2), "b1": weights(4),
        "w2": weights(4, 2, 2, 2), "w3": weights(2, 4, 1, 1),
    }  # fmt: skip
    module = tvm_ext.load(saved(model_of(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants), tmp_path))
    samples = {"x": np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)}
    package = tvm_ext.build(module, "host", tmp_path / "out", INT8, calibration=samples)
    assert "qconv2d_transpose_i8" in [step["kernel"] for step in package.report["steps"]]
    left = [node for operation in package.report["float_operations"] for node in operation["source_nodes"]]
    assert not {"grouped", "plain"} & {*left}
    assert package.report["verify"]["host"]["passed"]


def test_normalizations_of_channels_are_integers(tmp_path: Path) -> None:
    """InstanceNorm with the ReLU after it, GroupNorm, and InstanceNorm of a sequence."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1]),
        node("InstanceNormalization", ["c", "s0", "b0"], ["i"], name="instances"),
        node("Relu", ["i"], ["r"]),
        node("Conv", ["r", "w1"], ["d"]),
        node("GroupNormalization", ["d", "s1", "b1"], ["g"], num_groups=2, name="groups"),
        node("Reshape", ["g", "shape"], ["q"]),
        node("InstanceNormalization", ["q", "s2", "b2"], ["y"], name="rows"),
    ]
    constants = {
        "w0": weights(6, 3, 3, 3), "w1": weights(4, 6, 1, 1), "shape": np.array([1, 8, 32], np.int64),
        **{f"{name}{i}": weights(n, seed=i) for i, n in enumerate((6, 4, 8)) for name in "sb"},
    }  # fmt: skip
    module = tvm_ext.load(
        saved(model_of(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants, opset=21, ir_version=10), tmp_path)
    )
    samples = {"x": np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)}
    package = tvm_ext.build(module, "host", tmp_path / "out", INT8, calibration=samples)
    assert [step["kernel"] for step in package.report["steps"]].count("qgroup_normalize_i8") == 3
    assert not package.report["float_operations"] and package.report["verify"]["host"]["passed"]
    assert not any("unary" in step["kernel"] for step in package.report["steps"])


def test_resizes_are_integers(tmp_path: Path) -> None:
    """Both axes of a resize are one integer kernel, also with cubic weights below zero."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Resize", ["c", "", "s"], ["r"], mode="linear"),
        helper.make_node("Resize", ["r", "", "s"], ["y"], mode="cubic"),
    ]
    constants = {"w": weights(6, 3, 3, 3), "s": np.array([1, 1, 2, 1.5], np.float32)}
    module = tvm_ext.load(saved(model_of(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants, opset=18), tmp_path))
    samples = {"x": np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)}
    package = tvm_ext.build(module, "host", tmp_path / "out", INT8, calibration=samples)
    kernels = [step["kernel"] for step in package.report["steps"]]
    assert kernels.count("qinterpolate_i8") == 2 and "generic" not in kernels
    assert not package.report["float_operations"] and package.report["verify"]["host"]["passed"]


def test_constants_beside_activations_are_integers(tmp_path: Path) -> None:
    """A class token ahead of tokens is one copy of quantized numbers, also where its numbers are the largest."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Concat", ["token", "m", "token"], ["c"], axis=1),
        helper.make_node("MatMul", ["c", "v"], ["y"]),
    ]
    constants = {"w": weights(8, 16), "v": weights(16, 4), "token": 10 * weights(1, 1, 16)}
    module = tvm_ext.load(saved(model_of(nodes, {"x": (1, 5, 8)}, ["y"], constants, opset=18), tmp_path))
    samples = {"x": np.random.default_rng(0).normal(size=(8, 1, 5, 8)).astype(np.float32)[:, 0]}
    package = tvm_ext.build(module, "host", tmp_path / "out", INT8, calibration=samples)
    assert "concat" in [step["kernel"] for step in package.report["steps"]]
    assert not package.report["float_operations"] and package.report["verify"]["host"]["passed"]
