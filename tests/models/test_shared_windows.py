"""Layers joined in one call, in whole models: same outputs, fewer instructions, and never beyond a budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from benchmarks.networks.branches import inception
from codegen_c.backend import build as backend_build
from codegen_c.backend.build import Compiled
from tests.support.transformer_models import compact_transformer
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_model
from tvm_ext.tuning import tune
from tvm_ext.tuning.layers import layer_calls, layers_of

PLATFORM = "cortex_m4"


def compiled(model: onnx.ModelProto, folder: Path, ram: int | None = None) -> Compiled:
    port = model.graph.input[0]
    shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
    samples = np.random.default_rng(0).standard_normal((4, *shape)).astype(np.float32)
    onnx.save(model, folder / "model.onnx")
    options = BuildOptions(quantize="int8", ram=ram)
    return compile_model(
        tvm_ext.load(folder / "model.onnx"), Platform.load(PLATFORM), options, {port.name: samples}
    )[1]  # fmt: skip


def joined(of: Compiled) -> list[int]:
    """Numbers of layers in calls that compute several."""
    return [len(call.joined) for call in of.program.kernel_calls() if call.joined]


def test_queries_keys_and_values_are_one_call(tmp_path: Path) -> None:
    samples = {"image": np.random.default_rng(0).standard_normal((4, 1, 3, 8, 8)).astype(np.float32)}
    onnx.save(compact_transformer(), tmp_path / "model.onnx")
    options = BuildOptions(quantize="int8", verify=("host",))
    package = tvm_ext.build(
        tvm_ext.load(tmp_path / "model.onnx"), PLATFORM, tmp_path / "package", options, calibration=samples
    )
    assert package.report["verify"]["host"]["passed"]
    assert joined(compiled(compact_transformer(), tmp_path)) == [3]


def test_joined_layers_save_instructions_and_keep_to_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = inception("inception", width=4, size=16, blocks=1)
    together = compiled(model, tmp_path)
    assert joined(together) and set(joined(together)) <= {2, 3}
    with monkeypatch.context() as patched:
        patched.setattr(backend_build, "with_shared_windows", lambda program, apart=(): program)
        alone = compiled(model, tmp_path)
    assert not joined(alone)
    assert together.modelled_instructions < alone.modelled_instructions
    assert together.plan.arena_bytes <= alone.plan.arena_bytes * backend_build.MOST_GROWTH
    tight = compiled(model, tmp_path, ram=alone.plan.arena_bytes)
    assert tight.plan.arena_bytes <= alone.plan.arena_bytes


def test_measurements_are_of_single_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that measure best may leave layers apart. This must not count as more calls."""
    together = compiled(compact_transformer(), tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(backend_build, "with_shared_windows", lambda program, apart=(): program)
        alone = compiled(compact_transformer(), tmp_path)
    names = [[call.name for call in layer_calls(one.program)] for one in (together, alone)]
    assert names[0] == names[1] and len(names[0]) > len(list(together.program.kernel_calls()))
    options = BuildOptions(quantize="int8")
    steps = [{step for layer in layers_of(one, options) for step in layer.steps} for one in (together, alone)]
    assert steps[0] == steps[1]
    assert tune._fits_as_cheaply(alone, together)
    assert steps[0] <= set(tune._free_bytes(together, options))
