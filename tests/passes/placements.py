"""Platforms of two cores, and modules with their operators on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from onnx import helper

import tvm_ext
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.dataflow import bindings
from tests.passes.stub_backend import StubBackend
from tests.support.core_platforms import host_cores
from tests.support.onnx_models import model_of, saved
from tvm_ext import BuildOptions
from tvm_ext.compilation.stages import backend_of, before_order, order, sharing
from tvm_ext.core.decisions.composites import OperatorProcessor, ProcessorPlacement
from tvm_ext.core.platform import Platform
from tvm_ext.core.time_model import TimeModel

EQUAL = host_cores(1_000_000_000, 1_000_000_000)


UNEQUAL = host_cores(250_000_000, 1_000_000_000)


def costs(platform: Platform, backend: StubBackend, floats: Sequence[bool] = (True, True)) -> list[ProcessorCosts]:
    return [
        ProcessorCosts(
            processor=core, backend=backend, time=TimeModel(platform=platform, processor=core.name), runs_floats=own
        )
        for core, own in zip(platform.processors, floats, strict=True)
    ]


def shared(path: Path, platform: Platform, options: BuildOptions) -> tuple[tvm.IRModule, tvm.IRModule]:
    """A model's module before and after the pass, as the pipeline runs it."""
    backend = backend_of(platform, options)
    before = tvm.transform.Sequential([*before_order(platform, backend, options), *order(backend)])(tvm_ext.load(path))
    return before, tvm.transform.Sequential(sharing(platform, options, backend))(before)


def processors(module: tvm.IRModule) -> dict[str, str]:
    """The processor that each binding's composite says, in order."""
    return {b.var.name: OperatorProcessor.read(module[b.value.op]).processor for b in bindings(module["main"])}


def report(module: tvm.IRModule) -> dict[str, Any]:
    found = ProcessorPlacement.read(module["main"]).report
    assert found is not None
    return dict(found)


def two_convolutions(folder: Path) -> Path:
    """x: float32[1, 8, 16, 8] -> 3x3 -> relu -> 3x3 stride 2."""
    weights = {f"w{i}": np.ones((8, 8, 3, 3), np.float32) for i in range(2)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "w1"], ["y"], pads=[1] * 4, strides=[2, 2]),
    ]
    return saved(model_of(nodes, {"x": (1, 8, 16, 8)}, ["y"], weights), folder)
