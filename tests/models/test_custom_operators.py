"""Operators that somebody else brings: compiled, run on the host and on a board, compared with their own reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.custom import registry
from relay_passes.composites import custom_use
from relay_passes.dataflow import bindings
from tests.support import custom_operators as custom
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.custom import CustomOperator

SAMPLES = [np.arange(32, dtype=np.int16).reshape(1, 32), np.zeros(1, np.int32)]


@pytest.fixture(autouse=True)
def brought(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test's own table of registered operators."""
    monkeypatch.setattr(registry, "_registered", {})
    for operator in (custom.ENVELOPE, custom.MISH, custom.MATCHED):
        tvm_ext.custom.register_operator(operator)
    yield


@pytest.mark.board
def test_states_constants_tables_scratch_and_several_results(tmp_path: Path) -> None:
    """C and references agree on both targets; the report names whose references they were."""
    package = tvm_ext.build(tvm_ext.load(custom.both(tmp_path)), "cortex_m4", tmp_path / "out", BuildOptions())
    for target in ("host", "qemu"):
        result = package.report["verify"][target]
        assert result["passed"] and result["differing"] == 0 and result["elements"] >= 340
        assert result["reference"] == "TVM with the CustomOperator's own reference of Envelope, Matched"
        assert "computed by the CustomOperator's own reference, not by another runtime" in result["own_reading"]
        assert [refusal["runtime"] for refusal in result["refused_by"]][:1] == ["TensorFlow Lite Micro"]
    assert (tmp_path / "out" / "envelope_step.h").exists()
    assert [step["kernel"] for step in package.report["steps"]] == ["custom", "copy", "custom"]
    assert package.report["macs"] == 40
    assert [state["name"] for state in package.report["states"]] == ["Envelope_0.state"]
    random = np.random.default_rng(3)
    call = tvm_ext.custom.CustomCall(operator="Envelope", inputs=(), outputs=(), options={"decay": 4})
    with package.session() as session:
        for _ in range(2):
            state = np.array([100], np.int32)
            for scale in (30000, 300, 3):
                samples = random.integers(-scale, scale, (1, 32)).astype(np.int16)
                expected, state = custom.ENVELOPE.reference(call, [samples, state])
                found = session.run({"samples": samples, "x": np.ones((1, 8), np.int8)})
                np.testing.assert_array_equal(found["level"], expected)
            session.reset()


@pytest.mark.sweep
def test_floats_between_built_in_operators(tmp_path: Path) -> None:
    package = tvm_ext.build(
        tvm_ext.load(custom.mish(tmp_path), shapes={"x": (1, 4, 4, 3)}), "host", tmp_path / "out", BuildOptions()
    )
    result = package.report["verify"]["host"]
    assert result["passed"] and result["max_abs_error"] < 1e-5
    assert [step["kernel"] for step in package.report["steps"]] == ["elementwise_f32", "custom", "elementwise_f32"]


@pytest.mark.sweep
def test_it_takes_other_shapes(tmp_path: Path) -> None:
    mod = tvm_ext.load(custom.mish(tmp_path), shapes={"x": (1, 6, 4, 3)})
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions())
    assert package.report["verify"]["host"]["passed"] and package.outputs["y"].shape == (1, 6, 4, 3)


def test_c_that_computes_something_else(tmp_path: Path) -> None:
    """A reference that disagrees with the C fails the build."""

    def other(call: tvm_ext.custom.CustomCall, arrays: object) -> list[np.ndarray]:
        level, state = custom.ENVELOPE.reference(call, arrays)  # type: ignore[arg-type]
        return [level + 1, state]

    tvm_ext.custom.register_operator(replace(custom.ENVELOPE, reference=other))
    with pytest.raises(VerificationFailed, match="differ"):
        tvm_ext.build(tvm_ext.load(custom.envelope(tmp_path)), "host", tmp_path / "out", BuildOptions())


def test_the_module_is_enough_for_its_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever compiles a module needs no registered operator; whoever verifies it is told which one is missing."""
    mod = tvm_ext.load(custom.envelope(tmp_path))
    monkeypatch.setattr(registry, "_registered", {})
    compiled = compile_module(mod, tvm_ext.Platform.load("host"), BuildOptions(verify=()))
    assert [call.implementation.kernel for call in compiled.program.kernel_calls()] == ["custom"]
    (use,) = (use for binding in bindings(mod["main"]) if (use := custom_use(binding.value)))
    with pytest.raises(VerificationFailed, match=r"custom operator 'Envelope' is not registered in this process"):
        registry.run_reference(use.operator, use.call, SAMPLES)


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        (
            lambda a, b: [a],
            r"returned int32\[1, 32\]; its results and states are declared as int32\[1, 32\], int32\[1\]",
        ),
        (lambda a, b: [a.astype(np.int64), b], r"returned int64\[1, 32\], int32\[1\]"),
        (lambda a, b: [], r"returned nothing"),
    ],
)
def test_a_reference_of_other_types(made: object, wrong: str, tmp_path: Path) -> None:
    def reference(call: tvm_ext.custom.CustomCall, arrays: object) -> list[np.ndarray]:
        return made(*custom.ENVELOPE.reference(call, arrays))  # type: ignore[operator,arg-type]

    tvm_ext.custom.register_operator(replace(custom.ENVELOPE, reference=reference))
    mod = tvm_ext.load(custom.envelope(tmp_path))
    (use,) = (use for binding in bindings(mod["main"]) if (use := custom_use(binding.value)))
    with pytest.raises(VerificationFailed, match=wrong):
        registry.run_reference(use.operator, use.call, SAMPLES)


@pytest.mark.sweep
def test_two_of_one_kind_share_a_function(tmp_path: Path) -> None:
    net = custom.TfliteWriter()
    x = net.input("x", (1, 8))
    first = net.operator("Mish", [x], net.tensor("a", (1, 8)))
    second = net.operator("Mish", [first], net.tensor("y", (1, 8)))
    package = tvm_ext.build(
        tvm_ext.load(custom.saved(net, [second], tmp_path, "twice")), "host", tmp_path / "out", BuildOptions()
    )
    assert package.report["verify"]["host"]["passed"]
    assert (tmp_path / "out" / "twice.c").read_text().count("TVM_EXT_STEP void") == 1


def test_it_stays_as_it_is_where_a_model_is_quantized(tmp_path: Path) -> None:
    """An operator of floats between integers, which nobody but its author can quantize."""
    mod, random = tvm_ext.load(custom.mish(tmp_path), shapes={"x": (1, 4, 4, 3)}), np.random.default_rng(0)
    samples = [{"x": random.normal(0, 1, (1, 4, 4, 3)).astype(np.float32)} for _ in range(4)]
    options = BuildOptions(quantize="int8")
    package = tvm_ext.build(mod, "host", tmp_path / "out", options, calibration=samples)
    assert "custom" in [step["kernel"] for step in package.report["steps"]]
    assert package.report["verify"]["host"]["passed"]


def test_the_name_in_the_file_is_only_a_name(tmp_path: Path) -> None:
    """Names that look like code or like modules are looked up among brought operators, and nowhere else."""
    for name in ("os:system", "tests.support.custom_operators:MISH", "__import__('os')", "../Envelope"):
        assert registry.custom_operator(name) is None
    assert isinstance(registry.custom_operator("Envelope"), CustomOperator)
