"""Budgets that are a part of the unsplit arena, down to the smallest that can be met; integers for the DSP extension.

The packages are those for the Cortex-M4; here they run on the host, which computes the same bits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm

import tvm_ext
from benchmarks import zoo
from codegen_c.program.steps import RowSteps
from tests.support.image_networks import image_network
from tests.support.onnx_models import saved
from tests.support.packages import sample
from tests.support.poison import run_poisoned
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package
from tvm_ext.compilation.pipeline import compile_model, compile_module
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.platform import Platform
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.verification.input_ranges import random_inputs

BOARD = "cortex_m4"
SMALLEST = {"kws_int8": 4_100, "resnet_int8": 13_700}
"""Bytes of arena, rounded up to hundreds."""


def built(module: tvm.IRModule, folder: Path, ram: int | None) -> Package:
    return tvm_ext.build(module, BOARD, folder, BuildOptions(ram=ram, verify=()))


def assert_fits(module: tvm.IRModule, folder: Path, smallest: int) -> None:
    """Arenas within three quarters, half and the smallest budget, with the very bits of the whole."""
    whole = built(module, folder / "whole", None)
    inputs = sample(whole)
    expected = whole.run(inputs)
    arena = int(whole.report["arena_bytes"])
    for ram in (arena * 3 // 4, arena // 2, smallest):
        small = built(module, folder / str(ram), ram)
        assert small.report["arena_bytes"] <= ram
        for name, array in small.run(inputs).items():
            np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize("name", some_of(["kws_int8"], sweep=SMALLEST.keys() - {"kws_int8"}))
def test_shared_models(shared_models: Path, tmp_path: Path, name: str) -> None:
    assert_fits(tvm_ext.load(shared_models / f"{name}.onnx"), tmp_path, SMALLEST[name])


@pytest.mark.sweep
def test_mobilenet(tmp_path: Path) -> None:
    """MobileNetV2-0.35 at 96 by 96 pixels, of 140,240 B."""
    path = tmp_path / "mobilenet.onnx"
    onnx.save(zoo.build("mobilenet_v2_035_96_int8"), path)
    assert_fits(tvm_ext.load(path), tmp_path, 34_200)


def integers(seed: int, folder: Path) -> tvm.IRModule:
    """A random network in int8."""
    module = tvm_ext.load(saved(image_network(seed), folder, f"network_{seed}"))
    (param,) = module["main"].params
    shape = [4, *(int(extent) for extent in param.ty.shape.values[1:])]
    samples = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    path = folder / f"samples_{seed}.npz"
    np.savez(path, x=samples)
    return compile_model(module, Platform.load(BOARD), BuildOptions(quantize="int8"), path)[0]


@pytest.mark.parametrize("seed", some_of([1, 2], sweep=[0, 3, 4, 5]))
def test_random_integer_networks(seed: int, tmp_path: Path) -> None:
    """As small as can be, with dead bytes destroyed behind each step: the bits of the whole."""
    module, platform = integers(seed, tmp_path), Platform.load(BOARD)
    whole = compile_module(module, platform, BuildOptions())
    small = None
    for fraction in (0.35, 0.5, 0.65, 0.8):
        try:
            small = compile_module(module, platform, BuildOptions(ram=int(whole.plan.arena_bytes * fraction)))
        except DoesNotFit:
            continue
        break
    if small is None or not any(isinstance(step, RowSteps) for step in small.program.steps):
        pytest.skip("nothing splits this one")
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in whole.interface.inputs}, seed)
    expected = run_instrumented(whole, inputs, lambda *_: None)
    found, destroyed = run_poisoned(small, inputs)
    assert destroyed > 0
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])
