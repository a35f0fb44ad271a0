"""Random chains that crop, resize, stride and pad rows, under random budgets: split, and not a bit of them changes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_ext
from codegen_c.program.steps import RowSteps
from tests.support.onnx_models import saved
from tests.support.poison import run_poisoned
from tests.support.row_networks import row_network, samples_of
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_model, compile_within
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.platform import Platform
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.verification.input_ranges import random_inputs

NUM_BUDGETS = 3
RUN_IN_ROWS = {"none": {4, 7, 9}, "int8": {0, 1, 3, 12}}
"""Seeds of which at least one budget is met by rows; of others it may be that nothing makes them smaller."""


@pytest.mark.parametrize("seed", some_of([4], sweep=[7, 9, *range(100, 130)]))
def test_float_chains(seed: int, tmp_path: Path) -> None:
    module = tvm_ext.load(saved(row_network(seed), tmp_path))
    assert num_split(module, Platform.load("host"), seed) or seed not in RUN_IN_ROWS["none"]


@pytest.mark.parametrize("seed", some_of([0], sweep=[1, 3, 12, *range(200, 230)]))
def test_integer_chains(seed: int, tmp_path: Path) -> None:
    """Kernels for the Cortex-M4, whose integers are those of the host."""
    board = Platform.load("cortex_m4")
    loaded = tvm_ext.load(saved(row_network(seed), tmp_path))
    (param,) = loaded["main"].params
    samples = samples_of(*(int(extent) for extent in param.ty.shape.values[2:]), tmp_path)
    module = compile_model(loaded, board, BuildOptions(quantize="int8"), samples)[0]
    assert num_split(module, board, seed) or seed not in RUN_IN_ROWS["int8"]


def num_split(module: tvm.IRModule, platform: Platform, seed: int) -> int:
    """Budgets that a model meets by rows, each run bit for bit as the whole, dead bytes destroyed behind each step."""
    within = compile_within(module, platform, BuildOptions(io="caller"))
    whole = within(None)
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in whole.interface.inputs}, seed)
    expected = run_instrumented(whole, inputs, lambda *_: None)
    rng, met = random.Random(seed), 0
    for _ in range(NUM_BUDGETS):
        budget = int(whole.plan.arena_bytes * rng.uniform(0.45, 0.95))
        try:
            small = within(budget)
        except DoesNotFit as error:
            assert error.nearest_bytes is not None and error.nearest_bytes > budget
            continue
        assert small.plan.arena_bytes <= budget
        found, _ = run_poisoned(small, inputs)
        for name, array in found.items():
            np.testing.assert_array_equal(array.view(np.uint8), expected[name].view(np.uint8))
        met += any(isinstance(step, RowSteps) for step in small.program.steps)
    return met
