"""Builds from model to package to numbers on the host."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from codegen_c.program.interface import Interface
from tests.support.onnx_models import NODE, SMALL_MODELS, gathers, model_of, nasty_names, saved, symbolic_batch, weights
from tests.support.packages import Packages, assert_close, sample
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package
from tvm_ext.execution.host_model import library_sources
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

STREAM = BuildOptions(io="stream", verify=("host",))
SMALL = BuildOptions(io="caller", optimize="size", verify=("host",))


@pytest.mark.parametrize("name", some_of(["kws_fp32"], sweep=["kws_int8", "resnet_fp32", "resnet_int8"]))
def test_shared_models_give_the_stored_outputs(packages: Packages, shared_models: Path, name: str) -> None:
    """int8 end to end: as far from onnxruntime as it is from itself; operators are judged one by one by verify."""
    package = packages.shared(name)
    stored = np.load(shared_models / f"{name}.npz")
    (input_name,), (output_name,) = package.inputs, package.outputs
    found = package.run({input_name: stored["in0"]})[output_name]
    if name.endswith("int8"):
        assert np.abs(found.astype(int) - stored["out0"]).max() <= 19
        assert found.argmax() == stored["out0"].argmax()
    else:
        assert_close({"y": found}, {"y": stored["out0"]})
    assert package.report["verify"]["host"]["passed"]


@pytest.mark.parametrize(("name", "alive_bytes"), [("kws_fp32", 64_000), ("resnet_fp32", 196_608)])
def test_arenas_are_small(packages: Packages, name: str, alive_bytes: int) -> None:
    """Scratch, inputs and outputs count. alive_bytes: whole tensors at the widest step; overlap may do with less."""
    report = packages.shared(name, options=BuildOptions(verify=())).report
    assert report["arena_bytes"] <= alive_bytes + 256
    assert report["lower_bound_bytes"] <= report["arena_bytes"]
    assert next(m for m in report["memories"] if m["name"] == "ram")["used_bytes"] == report["arena_bytes"]


def test_equal_weights_stand_once(tmp_path: Path) -> None:
    """Three layers, two of one matrix; their biases are all zeros."""
    nodes = [NODE("Gemm", [source, matrix, "b"], [target], name=target)
             for source, matrix, target in (("x", "v", "h"), ("h", "w", "i"), ("i", "v", "y"))]  # fmt: skip
    constants = {"v": weights(8, 8, seed=1), "w": weights(8, 8, seed=2), "b": np.zeros(8, np.float32)}
    path = saved(model_of(nodes, {"x": (1, 8)}, ["y"], constants), tmp_path)
    package = tvm_ext.build(path, "host", tmp_path / "package", BuildOptions())
    assert package.report["verify"]["host"]["passed"] and package.report["weights_bytes"] == (2 * 64 + 8) * 4


def test_int8_specs_carry_scale_and_zero_point(packages: Packages) -> None:
    package = packages.shared("kws_int8")
    for spec in (*package.inputs.values(), *package.outputs.values()):
        assert spec.dtype == "int8" and spec.scale > 0 and -128 <= spec.zero_point <= 127
    assert all(spec.scale is None for spec in packages.shared("kws_fp32").inputs.values())


@pytest.mark.parametrize("name", some_of([*SMALL_MODELS][::2], sweep=[*SMALL_MODELS][1::2]))
@pytest.mark.parametrize("options", some_of([BuildOptions(verify=("host",))], sweep=[SMALL]), ids=["arena", "caller"])
def test_small_models(packages: Packages, name: str, options: BuildOptions) -> None:
    """Every name, shape and type as the model says, values as onnxruntime computes them."""
    make = SMALL_MODELS[name]
    package = packages.small(name, make, options=options)
    model = make()
    assert list(package.inputs) == [value.name for value in model.graph.input]
    inputs = sample(package)
    (expected,) = onnx_outputs(model, [inputs])
    assert_close(package.run(inputs), expected)
    assert package.report["verify"]["host"]["passed"]
    assert package.report["options"].items() >= {"optimize": options.optimize, "io": options.io}.items()


def test_caller_io_keeps_ports_out_of_the_arena(packages: Packages) -> None:
    name, make = "branches", SMALL_MODELS["branches"]
    inside = packages.small(name, make, options=BuildOptions(verify=("host",)))
    outside = packages.small(name, make, options=SMALL)
    assert outside.report["arena_bytes"] <= inside.report["arena_bytes"]
    last = outside.report["steps"][-1]["outputs"][0]
    assert (last["memory"], last["offset"]) == (None, None)


def test_a_package_opens_again_and_wherever_it_is_moved(packages: Packages, tmp_path: Path) -> None:
    package = packages.small("nasty_names", nasty_names)
    moved = tmp_path / "else where"
    shutil.copytree(package.folder, moved)
    again = Package.load(moved)
    assert (again.inputs, again.outputs, again.report) == (package.inputs, package.outputs, package.report)
    assert again.platform == tvm_ext.Platform.load("host")
    inputs = sample(package)
    for name, array in package.run(inputs).items():
        np.testing.assert_array_equal(again.run(inputs)[name], array)


def test_symbolic_batch(tmp_path: Path) -> None:
    path = saved(symbolic_batch(), tmp_path)
    package = tvm_ext.build(tvm_ext.load(path, shapes={"x": (3, 6)}), "host", tmp_path / "out")
    assert package.inputs["x"].shape == (3, 6) and package.outputs["y"].shape == (3, 4)
    inputs = sample(package)
    (expected,) = onnx_outputs(symbolic_batch(), [inputs])
    assert_close(package.run(inputs), expected)


def test_indices_keep_their_type(packages: Packages) -> None:
    package = packages.small("gathers", gathers)
    assert package.inputs["rows"].dtype == "int64"
    assert "int64_t *gathers_rows(void);" in (package.folder / "gathers.h").read_text()


@pytest.mark.parametrize("name", ["kws_int8", "kws_fp32"])
def test_the_self_test_runs_in_a_copy_and_can_fail(packages: Packages, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "a copy"
    shutil.copytree(packages.shared(name).folder, copy)
    good = _make_selftest(copy)
    assert good.returncode == 0 and "PASS 1 vectors" in good.stdout, good.stdout + good.stderr
    _change_weights(copy / f"{name}_weights.c")
    bad = _make_selftest(copy)
    assert bad.returncode != 0 and "FAIL vector 0" in bad.stdout


def test_a_models_name_may_be_that_of_a_header(tmp_path: Path) -> None:
    path = saved(SMALL_MODELS["unused_input"](), tmp_path, "math")
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out")
    assert package.report["model"]["name"] == "model_math"


@pytest.mark.parametrize("options", [BuildOptions(verify=("host",)), SMALL, STREAM], ids=["arena", "caller", "stream"])
def test_the_public_header_is_cplusplus(packages: Packages, tmp_path: Path, options: BuildOptions) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    package = packages.small("nasty_names", nasty_names, options=options)
    interface: Interface = package.interface
    types = [f"{p.c_type} *" for p in interface.inputs] + [f"{p.c_type} *" for p in interface.outputs]
    pointers = ", ".join(f"static_cast<{kind}>(nullptr)" for kind in types)
    struct = f"static_cast<const {interface.io_struct} *>(nullptr)"
    call = {"arena": "", "caller": pointers, "stream": struct}[interface.io]
    source = tmp_path / "main.cpp"
    source.write_text(
        f'#include "{interface.model}.h"\nint main() {{ return static_cast<int>({interface.run}({call})); }}\n'
    )
    flags = ["-std=c++14", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(package.folder)]
    objects = []
    for file in library_sources(package.folder, interface.model):
        objects.append(tmp_path / f"{file.stem}.o")
        subprocess.run(["gcc", "-c", str(file), "-I", str(package.folder), "-o", str(objects[-1])], check=True)
    command = ["g++", *flags, str(source), *map(str, objects), "-lm", "-o", str(tmp_path / "main")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_report_tells_of_the_model(packages: Packages) -> None:
    report = packages.shared("kws_fp32").report
    assert report == json.loads((packages.shared("kws_fp32").folder / "report.json").read_text())
    assert report["macs"] == 2_656_768
    assert report["model"]["format"] == "onnx" and len(report["model"]["sha256"]) == 64
    nodes = [node for step in report["steps"] for node in step["source_nodes"]]
    assert len(nodes) == len({*nodes}) >= len(report["steps"])
    for index, step in enumerate(report["steps"]):
        assert step["index"] == index
        for output in step["outputs"]:
            assert output["begin"] <= index < output["end"] <= len(report["steps"])


def _make_selftest(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "selftest"], cwd=folder, capture_output=True, text=True, timeout=300)


def _change_weights(path: Path) -> None:
    """Every number of the largest table but the first becomes 1."""
    text = path.read_text(encoding="utf-8")
    tables = text.split("= {")
    largest = max(range(1, len(tables)), key=lambda index: len(tables[index].split("};")[0]))
    numbers, rest = tables[largest].split("};", 1)
    one = "1.0f" if "f," in numbers else "1"
    tables[largest] = ", ".join(one for _ in numbers.strip().strip(",").split(",")) + "};" + rest
    path.write_text("= {".join(tables), encoding="utf-8")


def test_files_of_a_newer_format_than_onnxruntimes(tmp_path: Path) -> None:
    """Exporters write the newest version of the file format; the operators in it may be old."""
    model = SMALL_MODELS["branches"]()
    model.ir_version = onnx.IR_VERSION
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out")
    assert package.report["verify"]["host"]["reference"] == "onnxruntime"
