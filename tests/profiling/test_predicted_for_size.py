"""Predicted instructions and cycles of code that is compiled for size, beside those that a run executes."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvm_ext
from tests.support.sweeps import some_rows
from tvm_ext import BuildOptions

NEAR = 1.15


@pytest.mark.board
@pytest.mark.riscv_board
@pytest.mark.parametrize(
    ("platform", "name"),
    some_rows(
        [("cortex_m4", "kws_int8"), ("cortex_m55", "resnet_int8")],
        sweep=[("cortex_m0plus", "kws_int8"), ("cortex_m33", "resnet_int8"), ("riscv32", "kws_int8")],
    ),
)
def test_predictions_are_near_what_a_run_executes(
    platform: str, name: str, shared_models: Path, tmp_path: Path
) -> None:
    options = BuildOptions(optimize="size", verify=())
    package = tvm_ext.build(shared_models / f"{name}.tflite", platform, tmp_path / "out", options)
    layers = package.profile().layers
    steps = package.report["steps"]
    executed = sum(layer.num_instructions for layer in layers)
    assert 1 / NEAR < sum(step["modelled_instructions"] for step in steps) / executed < NEAR
    estimated = sum(layer.cycles for layer in layers)
    assert 1 / NEAR < package.report["prediction"]["cycles"] / estimated < NEAR


def test_an_estimate_is_the_prediction_of_the_report(digits: Path, tmp_path: Path) -> None:
    model, options = digits / "digits.onnx", BuildOptions(optimize="size", verify=())
    found = tvm_ext.estimate(model, "cortex_m4", options)
    report = tvm_ext.build(model, "cortex_m4", tmp_path / "out", options).report
    assert found.predicted_cycles == report["prediction"]["cycles"]
    assert found.predicted_instructions == sum(step["modelled_instructions"] for step in report["steps"])
