"""Verification notices what is wrong, and a package that was not verified says so everywhere."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rich.console import Console

import tvm_ext
import tvm_ext.building.subject
from codegen_c.backend.build import Compiled
from codegen_c.kernels.measurements import KernelMeasurements
from codegen_c.program import reference
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module, compiler_of
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.report.tables import report_tables
from tvm_ext.verification.account import sources
from tvm_ext.verification.input_ranges import random_inputs
from tvm_ext.verification.judgement import against_steps, check_steps
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs
from tvm_ext.verification.reference_runtimes.reference_result import ReferenceResult
from tvm_ext.verification.verify import compare, difference


@pytest.fixture(scope="module")
def kws_int8(shared_models: Path) -> Compiled:
    return compile_module(tvm_ext.load(shared_models / "kws_int8.onnx"), Platform.load("host"), BuildOptions())


def with_wrong_constant(compiled: Compiled) -> Compiled:
    """The C gets other weights in its first layer; the references keep theirs."""
    constants = dict(compiled.program.constants)
    name = next(key for key, value in constants.items() if value.data.ndim >= 2 or value.data.size > 8)
    data = constants[name].data.copy()
    data.reshape(-1)[:] = data.reshape(-1)[::-1] + 1
    constants[name] = replace(constants[name], data=data)
    return replace(compiled, program=replace(compiled.program, constants=constants))


@pytest.mark.parametrize("name", ["float", "int8"])
def test_wrong_weights_fail_the_build_and_leave_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "float":
        path = saved(SMALL_MODELS["branches"](), tmp_path)
    else:
        path = request.getfixturevalue("shared_models") / "kws_int8.onnx"
    _replace_compile(monkeypatch, with_wrong_constant)
    message = (
        "host: output probabilities.* differs from onnxruntime by"
        if name == "float"
        else "differs from its kernel's reference"
    )
    with pytest.raises(VerificationFailed, match=message):
        tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out")
    assert {item.name for item in tmp_path.iterdir()} <= {"small.onnx"}


def test_an_older_package_survives_a_failed_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["branches"](), tmp_path))
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions(verify=()))
    before = {file: file.read_bytes() for file in package.folder.rglob("*") if file.is_file()}
    _replace_compile(monkeypatch, with_wrong_constant)
    with pytest.raises(VerificationFailed):
        tvm_ext.build(mod, "host", tmp_path / "out")
    assert {file: file.read_bytes() for file in package.folder.rglob("*") if file.is_file()} == before


def test_integer_steps_of_a_right_model_pass(kws_int8: Compiled, shared_models: Path) -> None:
    found = check_steps(kws_int8, [_sample(kws_int8)], _said(kws_int8, onnx.load(shared_models / "kws_int8.onnx")))
    assert found.passed and found.tensors_compared >= 10


def test_a_kernel_that_misses_its_reference_is_named(kws_int8: Compiled) -> None:
    """Rule (a): one wrong weight table, exactly the step that reads it."""
    wrong = with_wrong_constant(kws_int8)
    changed = next(n for n, c in wrong.program.constants.items() if c is not kws_int8.program.constants[n])
    step = next(call for call in wrong.program.kernel_calls() if changed in call.constants)
    errors = check_steps(wrong, [_sample(kws_int8)]).against_reference
    assert len(errors) == 1 and errors[0].startswith(f"{step.name}: ")


def test_an_operator_off_from_onnxruntime_is_named(kws_int8: Compiled, shared_models: Path) -> None:
    """Rule (b): the program is as before, onnxruntime is given a model with one output scale changed."""
    model = onnx.load(shared_models / "kws_int8.onnx")
    quantize = [node for node in model.graph.node if node.op_type == "QuantizeLinear"][2]
    scale = next(value for value in model.graph.initializer if value.name == quantize.input[1])
    doubled = numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(1.5), f"{scale.name}_other")
    model.graph.initializer.append(doubled)
    quantize.input[1] = doubled.name
    found = check_steps(kws_int8, [_sample(kws_int8)], _said(kws_int8, model))
    assert found.against_reference == ()
    assert any("LSB from onnxruntime's" in error and quantize.output[0] in error for error in found.against_runtime)


def test_a_package_that_gives_something_else_than_its_last_step_is_noticed(kws_int8: Compiled) -> None:
    """Its outputs in another order, as if the header named the wrong place."""
    sample = _sample(kws_int8)
    (port,) = kws_int8.interface.outputs
    values = reference.run(kws_int8.program, {p.name: sample[p.source] for p in kws_int8.interface.inputs})[port.name]
    steps = check_steps(kws_int8, [sample])
    assert steps.passed and against_steps([{port.source: values}], steps) == []
    (error,) = against_steps([{port.source: values[:, ::-1]}], steps)
    assert error.startswith(f"output {port.source}: differs by ")


def test_not_verified_is_said_everywhere(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["branches"](), tmp_path))
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions(verify=()))
    assert package.report["verify"] == {"host": None, "qemu": None}
    assert json.loads((package.folder / "report.json").read_text())["verify"] == {"host": None, "qemu": None}
    assert "not verified" in (package.folder / "README.md").read_text().lower()
    assert "NOT VERIFIED" in _shown(package.report)


def test_verified_is_said_too(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["branches"](), tmp_path))
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions(verify=("host",)))
    host = package.report["verify"]["host"]
    assert host["passed"] and host["elements"] > 0 and host["reference"] == "onnxruntime"
    assert 0 <= host["max_abs_error"] < 1e-5
    readme = (package.folder / "README.md").read_text()
    assert "Verified on" in readme and "own reading" not in readme + _shown(package.report)
    assert "NOT VERIFIED" not in _shown(package.report)


def test_a_model_whose_file_changed_is_compared_with_tvm(tmp_path: Path) -> None:
    path = saved(SMALL_MODELS["branches"](), tmp_path)
    mod = tvm_ext.load(path)
    saved(SMALL_MODELS["gathers"](), tmp_path)
    package = tvm_ext.build(mod, "host", tmp_path / "out")
    found = package.report["verify"]["host"]
    assert found["reference"] == "TVM" and found["passed"] and "has changed since" in found["own_reading"]
    assert "compared with our own reading only: onnxruntime: " in " ".join(_shown(package.report).split())


@pytest.mark.parametrize(
    ("found", "passes"),
    [
        ([1.0, 2.0], True),
        ([1.0, 2.0 + 1.9e-4], True),
        ([1.0, 2.0 + 2.2e-4], False),
        ([1.0, np.nan], False),
        ([1.0, np.inf], False),
        ([[1.0, 2.0]], False),
    ],
)
def test_float_comparison(found: list[float], passes: bool) -> None:
    wanted = [{"y": np.array([1.0, 2.0])}]
    assert compare([{"y": np.array(found)}], wanted, tolerance=1e-4).passed is passes


def test_what_is_not_a_number_must_be_so_on_both_sides() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert difference(odd, odd) == (0.0, 0.0)
    assert difference(np.array([np.inf]), np.array([-np.inf]))[0] == np.inf
    assert difference(np.zeros(3), np.zeros(3)) == (0.0, 0.0)
    assert difference(np.array([1e-30]), np.zeros(1))[1] == np.inf


def test_errors_without_a_number_are_none_in_json() -> None:
    """JSON has no infinity: a difference from nothing but zeros has no size relative to them."""
    found, wanted = [{"y": np.array([1], np.int8)}], [{"y": np.array([0], np.int8)}]
    result = compare(found, wanted, tolerance=1e-4, judge_integers=False).to_json()
    assert result["max_abs_error"] == 1 and result["max_rel_error"] is None
    json.dumps(result, allow_nan=False)


def test_integers_are_judged_only_where_asked() -> None:
    found, wanted = [{"y": np.array([3], np.int8)}], [{"y": np.array([4], np.int8)}]
    assert not compare(found, wanted, tolerance=1e-4).passed
    unjudged = compare(found, wanted, tolerance=1e-4, judge_integers=False)
    assert unjudged.passed and unjudged.max_abs_error == 1


def _said(compiled: Compiled, model: onnx.ModelProto) -> ReferenceResult:
    found = onnx_outputs(model, [_sample(compiled)], sources(compiled.program))
    names = {output.name for output in model.graph.output}
    outputs = [{name: values[name] for name in names} for values in found]
    return ReferenceResult(runtime="onnxruntime", own_reading="", outputs=outputs, inner=found)


def _sample(compiled: Compiled) -> dict[str, np.ndarray]:
    ports = compiled.interface.inputs
    return random_inputs({port.source: (port.shape, port.dtype) for port in ports}, seed=0)


def _replace_compile(monkeypatch: pytest.MonkeyPatch, change: Callable[[Compiled], Compiled]) -> None:
    def changed(*arguments: Any) -> Callable[[KernelMeasurements], tuple[Any, Compiled]]:
        def compiled_by(figures: KernelMeasurements) -> tuple[Any, Compiled]:
            module, compiled = compiler_of(*arguments)(figures)
            return module, change(compiled)

        return compiled_by

    monkeypatch.setattr(tvm_ext.building.subject, "compiler_of", changed)


def _shown(report: dict[str, object]) -> str:
    console = Console(file=io.StringIO(), width=140)
    for table in report_tables(report):
        console.print(table)
    return console.file.getvalue()
