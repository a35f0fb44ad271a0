"""Networks that crop, resize and stride over rows: split, within their budgets, and not a bit of them changes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
import tvm

import tvm_ext
from codegen_c.program.program import RowSteps
from tests.support.onnx_models import saved
from tests.support.poison import run_poisoned
from tests.support.row_networks import cropped, halved, row_network, samples_of
from tvm_ext import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.pipeline import compile_model, compile_module
from tvm_ext.verification.input_ranges import random_inputs

Quantized = Literal["none", "int8"]


@pytest.mark.parametrize(
    ("model", "quantize", "ram"),
    [
        pytest.param(cropped(), "none", 20_000, id="cropped"),
        pytest.param(cropped(), "int8", 5_000, id="cropped int8"),
        pytest.param(halved("nearest"), "none", 30_000, id="halved"),
        pytest.param(halved("linear"), "int8", 7_000, id="halved int8"),
    ],
)
def test_within_its_budget(model: onnx.ModelProto, quantize: Quantized, ram: int, tmp_path: Path) -> None:
    """Of the last, the plan was rejected: rows of the resize were read before they were there."""
    options = BuildOptions(ram=ram, quantize=quantize, io="caller", verify=("host",))
    calibration = samples_of(32, 32, tmp_path) if quantize == "int8" else None
    built = tvm_ext.build(saved(model, tmp_path), "host", tmp_path / "out", options, calibration=calibration)
    assert built.report["arena_bytes"] <= ram and built.report["verify"]["host"]["passed"]


@pytest.mark.parametrize("seed", [4, 7, 9])
def test_random_float_chains(seed: int, tmp_path: Path) -> None:
    assert_same_bits(tvm_ext.load(saved(row_network(seed), tmp_path)), Platform.load("host"), seed)


@pytest.mark.parametrize("seed", [0, 1, 3, 12])
def test_random_integer_chains(seed: int, tmp_path: Path) -> None:
    """Of the kernels for the Cortex-M4, whose integers are those of the host."""
    board = Platform.load("cortex_m4")
    loaded = tvm_ext.load(saved(row_network(seed), tmp_path))
    (param,) = loaded["main"].params
    samples = samples_of(*(int(extent) for extent in param.ty.shape.values[2:]), tmp_path)
    assert_same_bits(compile_model(loaded, board, BuildOptions(quantize="int8"), samples)[0], board, seed)


def assert_same_bits(module: tvm.IRModule, platform: Platform, seed: int) -> None:
    """Of the whole model and of the split one, with dead bytes destroyed behind each step."""
    whole = compile_module(module, platform, BuildOptions(io="caller"))
    budget = int(whole.plan.arena_bytes * np.random.default_rng(seed).uniform(0.5, 0.9))
    small = compile_module(module, platform, BuildOptions(io="caller", ram=budget))
    assert any(isinstance(step, RowSteps) for step in small.program.steps), "these seeds run in rows"
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in whole.interface.inputs}, seed)
    expected = run_instrumented(whole, inputs, lambda *_: None)
    found, _ = run_poisoned(small, inputs)
    for name, array in found.items():
        np.testing.assert_array_equal(array.view(np.uint8), expected[name].view(np.uint8))
