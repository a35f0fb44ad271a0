"""Bytes that are dead may hold anything: destroying them after every step changes no output bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.backend.build import Compiled
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.poison import run_poisoned
from tests.support.random_models import random_model
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.verification.input_ranges import random_inputs


@pytest.mark.parametrize("name", some_of(["kws_fp32", "kws_int8"], sweep=["resnet_fp32", "resnet_int8"]))
def test_shared_models(shared_models: Path, name: str) -> None:
    _assert_unchanged(_compiled(shared_models / f"{name}.onnx"))


@pytest.mark.parametrize("seed", [0, 4, 9, 13, 17])
def test_random_models(tmp_path: Path, seed: int) -> None:
    _assert_unchanged(_compiled(saved(random_model(seed), tmp_path)))


@pytest.mark.parametrize("name", ["moves_data", "reduces_and_normalises", "value_that_is_output_and_read_on"])
def test_small_models(tmp_path: Path, name: str) -> None:
    _assert_unchanged(_compiled(saved(SMALL_MODELS[name](), tmp_path)))


def test_a_tensor_that_dies_too_early_is_noticed(tmp_path: Path) -> None:
    """The poison reaches what the plan calls dead: a lifetime cut short by one step changes the outputs."""
    compiled = _compiled(saved(SMALL_MODELS["branches"](), tmp_path))
    places = compiled.plan.placements
    longest = max(places.values(), key=lambda place: (place.end - place.begin, place.name))
    assert longest.end - longest.begin > 1
    shorter = replace(compiled.plan, placements={**places, longest.name: replace(longest, end=longest.end - 1)})
    with pytest.raises(AssertionError):
        _assert_unchanged(replace(compiled, plan=shorter))


def _compiled(path: Path) -> Compiled:
    return compile_module(tvm_ext.load(path), Platform.load("host"), BuildOptions())


def _assert_unchanged(compiled: Compiled) -> None:
    ports = compiled.interface.inputs
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in ports}, seed=3)
    plain = run_instrumented(compiled, inputs, lambda step, arenas: None)
    poisoned, destroyed = run_poisoned(compiled, inputs)
    assert destroyed > 0
    assert list(poisoned) == list(plain)
    for name, array in plain.items():
        np.testing.assert_array_equal(poisoned[name].view(np.uint8), array.view(np.uint8), err_msg=name)
