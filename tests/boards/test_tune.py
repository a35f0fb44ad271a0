"""Kernels chosen by what they measure on a board: figures, outputs, limits of memory, and what is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import helper
from typer.testing import CliRunner

import tvm_ext
from codegen_c.kernels import registry
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.operators.kinds import QConv2d
from tests.support.onnx_models import model_of, saved, weights
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.command_line.main import app
from tvm_ext.command_line.show import stdout
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.report.tables import report_tables
from tvm_ext.tuning import measure
from tvm_ext.tuning.measure import Bench

pytestmark = [pytest.mark.board, pytest.mark.usefixtures("cache")]

M4 = Platform.load("cortex_m4")
INT8 = BuildOptions(quantize="int8", verify=(), name="m")
TUNED = replace(INT8, tune=True)
SAMPLES = {"x": np.random.default_rng(5).normal(size=(4, 1, 3, 20, 12)).astype(np.float32)}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, a depthwise one that several strips compute, and a pointwise one."""
    arrays = {"a": weights(8, 3, 3, 3), "b": weights(8, 1, 3, 3, seed=1), "c": weights(6, 8, 1, 1, seed=2)}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["conv", "b"], ["depthwise"], pads=[1, 1, 1, 1], group=8),
        helper.make_node("Conv", ["depthwise", "c"], ["y"]),
    ]
    model = model_of(nodes, {"x": (1, 3, 20, 12)}, ["y"], arrays)
    return saved(model, tmp_path_factory.mktemp("network"), "m")


@pytest.fixture(scope="module")
def loaded(network: Path) -> tvm.IRModule:
    return tvm_ext.load(network)


def built(loaded: tvm.IRModule, folder: Path, options: BuildOptions, platform: Platform = M4) -> Package:
    calibration = SAMPLES if options.quantize == "int8" else None
    return tvm_ext.build(loaded, platform, folder, options, calibration=calibration, jobs=2)


@pytest.fixture(scope="module")
def plain(loaded: tvm.IRModule, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return built(loaded, tmp_path_factory.mktemp("plain") / "m", INT8)


@pytest.fixture(scope="module")
def tuned(loaded: tvm.IRModule, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return built(loaded, tmp_path_factory.mktemp("tuned") / "m", TUNED)


def layers(package: Package) -> list[dict[str, Any]]:
    return package.report["tuning"]["layers"]


def way(candidate: dict[str, Any]) -> str:
    return f"{candidate['kernel']} {'x'.join(map(str, candidate['block']))}".strip()


def figure(layer: dict[str, Any], named: str, key: str) -> int:
    (found,) = (one[key] for one in layer["candidates"] if way(one) == named)
    return found


def test_the_least_cycles_are_taken(tuned: Package) -> None:
    tuning = tuned.report["tuning"]
    assert tuning["metric"] == "estimated cycles" and tuning["core"]["source"] and tuning["board"] == "mps2-an386"
    assert len(layers(tuned)) == tuning["layers_measured"] == 3
    for layer in layers(tuned):
        measured = [one for one in layer["candidates"] if one["not_measured"] is None]
        assert len(measured) > 1 and way(min(measured, key=lambda one: one["estimated_cycles"])) == layer["chosen"]
    depthwise = layers(tuned)[1]
    assert depthwise["chosen"] != depthwise["modelled"], "higher strips copy fewer rows"
    assert tuning["after"]["estimated_cycles"] < tuning["before"]["estimated_cycles"]


def test_sums_are_those_of_the_layers(tuned: Package) -> None:
    tuning = tuned.report["tuning"]
    for when, key in (("before", "modelled"), ("after", "chosen")):
        for unit in ("instructions", "estimated_cycles"):
            total = sum(len(layer["steps"]) * figure(layer, layer[key], unit) for layer in layers(tuned))
            assert abs(tuning[when][unit] - total) <= len(layers(tuned)), "cycles are rounded"


def test_figures_are_those_of_the_whole_model(plain: Package, tuned: Package) -> None:
    """Each layer alone executes what it does between the others, by the modelled kernel and by the chosen one; but the
    last, which runs row by row, upwards, over its dying input."""
    for package, key in ((plain, "modelled"), (tuned, "chosen")):
        counted = {layer.name: layer.num_instructions for layer in package.profile().layers}
        for layer in layers(tuned)[:2]:
            assert counted[layer["steps"][0]] == figure(layer, layer[key], "instructions"), layer["steps"]


def test_no_bit_of_the_output_changes(plain: Package, tuned: Package) -> None:
    sample = {"x": np.random.default_rng(6).integers(-128, 128, (1, 3, 20, 12), np.int8, endpoint=False)}
    one, other = (package.run(sample, on="host") for package in (plain, tuned))
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_what_was_measured_is_not_measured_again(
    loaded: tvm.IRModule, tuned: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "build_layers", lambda *_: pytest.fail("it is known"))
    again = built(loaded, tmp_path / "m", TUNED)
    known = again.report["tuning"]["figures_measured_before"]
    assert known == sum(one["not_measured"] is None for layer in layers(again) for one in layer["candidates"])
    assert {**again.report["tuning"], "figures_measured_before": 0} == tuned.report["tuning"]
    assert (again.folder / "m.c").read_bytes() == (tuned.folder / "m.c").read_bytes()


@pytest.mark.parametrize(
    ("more_bytes", "said"), [(500, "whose scratch fits into memory that is free"), (0, "the predicted choice is kept")]
)
def test_kernels_of_more_scratch_are_left_where_the_model_would_not_fit(
    loaded: tvm.IRModule, plain: Package, tuned: Package, tmp_path: Path, more_bytes: int, said: str
) -> None:
    limit = plain.report["arena_bytes"] + more_bytes
    assert limit < tuned.report["arena_bytes"], "what measured best takes more"
    with pytest.warns(ModelNotice, match=f"tune: m: .* a slower method would be needed .* {said}"):
        tight = built(loaded, tmp_path / "m", replace(TUNED, ram=limit))
    assert tight.report["arena_bytes"] <= limit and said in tight.report["tuning"]["notice"]
    assert [one["method"] for one in tight.report["fit"]["attempts"]] == ["whole"]
    depthwise = layers(tight)[1]
    cycles = {key: figure(depthwise, depthwise[key], "estimated_cycles") for key in ("modelled", "chosen")}
    assert depthwise["chosen"] != layers(tuned)[1]["chosen"]
    assert cycles["chosen"] < cycles["modelled"] if more_bytes else cycles["chosen"] == cycles["modelled"]


def planted(own: Kernel, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """A kernel beside the others that is like one of them but for a change behind its last statement."""

    def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
        made = own.implement(operator, target, stored)
        function = replace(made.function, body=f"{made.function.body}\n{change}")
        return replace(made, kernel="planted", function=function, keeping=None, instructions=made.instructions + 1)

    known = registry.kernels()
    monkeypatch.setattr(registry, "kernels", lambda: (*known, replace(own, name="planted", implement=implement)))


def test_a_kernel_that_computes_something_else_is_an_error(
    loaded: tvm.IRModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = next(kernel for kernel in registry.kernels() if kernel.name == "qconv2d_dsp")
    planted(own, monkeypatch, "output[0] = (int8_t)(output[0] ^ 1);")
    with pytest.raises(
        VerificationFailed, match=r"tune: \w+ with kernel planted: .* operator's reference in 1 of 1920 elements"
    ):
        built(loaded, tmp_path / "m", TUNED)
    assert not (tmp_path / "m").exists()


def test_floats_of_other_bits_are_an_error(
    loaded: tvm.IRModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ulp is within tolerance of the reference, but not what the other kernels give."""
    own = next(kernel for kernel in registry.kernels() if kernel.name == "conv2d_f32")
    planted(own, monkeypatch, "((uint32_t *)(void *)output)[0] ^= 1u;")
    with pytest.raises(VerificationFailed, match=r"tune: \w+ with kernel planted: it gives other bits than conv2d_f32"):
        built(loaded, tmp_path / "m", BuildOptions(tune=True, verify=()))


def without_table() -> Platform:
    """A Cortex-M4 whose compiler is not told its name."""
    flags = ("-march=armv7e-m+fp", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
    return replace(M4, toolchain=replace(M4.toolchain, flags=flags))


def test_no_table_has_a_core_without_a_name() -> None:
    assert Bench.of(without_table(), TUNED).table is None and Bench.of(M4, TUNED).table is not None


@pytest.mark.sweep
def test_instructions_are_compared_where_no_table_has_the_core(loaded: tvm.IRModule, tmp_path: Path) -> None:
    package = built(loaded, tmp_path / "m", TUNED, without_table())
    tuning = package.report["tuning"]
    assert tuning["metric"] == "executed instructions" and tuning["core"] is None
    assert tuning["after"]["estimated_cycles"] is None
    for layer in layers(package):
        measured = [one for one in layer["candidates"] if one["not_measured"] is None]
        assert figure(layer, layer["chosen"], "instructions") == min(one["instructions"] for one in measured)


def test_the_command_shows_what_was_measured(
    network: Path, tuned: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdout, "_width", 140)  # pytest has tables of 80, in which long names are folded
    np.savez(tmp_path / "x.npz", **SAMPLES)
    arguments = ["compile", str(network), "-p", "cortex_m4", "-o", str(tmp_path / "m"), "--tune", "--verify", "none"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, [*arguments, "--quantize", "int8", "--calibration", str(tmp_path / "x.npz")])
    assert done.exit_code == 0, done.output
    assert "Kernels measured on mps2-an386" in done.output and "qdepthwise_dsp" in done.output
    assert len(report_tables(tuned.report)) == len(report_tables({**tuned.report, "tuning": None})) + 1
