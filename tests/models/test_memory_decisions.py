"""Order, aliasing and placement are free to choose: every combination gives the same bits, and survives poison."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_ext
from codegen_c.arena import plan as planning
from codegen_c.arena.overlap import overlaps
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.problem import height
from codegen_c.arena.solve import Solution, optimise
from codegen_c.arena.validate import validate
from codegen_c.backend.build import Compiled, compile_region
from codegen_c.lowering.views import with_views
from codegen_c.program.program import Program
from tests.support.onnx_models import saved
from tests.support.poison import run_poisoned
from tests.support.random_models import random_model
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module, origin
from tvm_ext.compilation.stages import passes
from tvm_ext.core.decisions.composites import Region
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.verification.input_ranges import random_inputs

SEEDS = some_of([1], sweep=[0, *range(2, 8)])


def lowered(path: Path, scheduled: bool) -> Compiled:
    """A model as one region, its operators reordered or as the model has them; copies as copies."""
    host, mod = Platform.load("host"), tvm_ext.load(path)
    stages = [p for p in passes(host, BuildOptions(), "net") if scheduled or p.info.name != "ScheduleOperators"]
    module = tvm.transform.Sequential(stages)(mod)
    (region,) = [f for _, f in module.functions_items() if Region.read(f).codegen]
    return compile_region(region, host, BuildOptions(), origin(ModelOrigin.read(mod), host), model="net")


def placed(buffers, choices=(), bound=None) -> Solution:
    """Everything beside everything."""
    ends = list(itertools.accumulate(-(-buffer.size // 16) * 16 for buffer in buffers))
    offsets = [0, *ends[:-1]] if ends else []
    return Solution(offsets=offsets, num_bytes=height(buffers, offsets), lower_bound_bytes=0)


def replanned(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch, *, views: bool, overlapping: bool, compact: bool
) -> Compiled:
    program = with_views(compiled.program) if views else compiled.program
    monkeypatch.setattr(planning, "overlaps", overlaps if overlapping else lambda _: [])
    monkeypatch.setattr(planning, "optimise", optimise if compact else placed)
    program, plan = plan_memory(program, activations=compiled.platform.activations)
    validate(program, plan)
    return replace(compiled, program=program, plan=plan)


def copies(program: Program) -> int:
    return sum(bool(call.implementation.copies) for call in program.kernel_calls())


@pytest.mark.parametrize("seed", SEEDS)
def test_no_combination_changes_a_bit(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(random_model(seed, num_layers=10), tmp_path)
    expected: dict[str, np.ndarray] | None = None
    monkeypatch.setattr("codegen_c.backend.build.with_views", lambda program, apart: program)
    for scheduled in (False, True):
        compiled = lowered(path, scheduled)
        inputs = random_inputs({p.source: (p.shape, p.dtype) for p in compiled.interface.inputs}, seed)
        for views, overlapping, compact in itertools.product((False, True), repeat=3):
            tried = replanned(compiled, monkeypatch, views=views, overlapping=overlapping, compact=compact)
            expected = expected or run_instrumented(tried, inputs, lambda *_: None)
            found, destroyed = run_poisoned(tried, inputs)
            assert destroyed > 0
            for name, array in expected.items():
                np.testing.assert_array_equal(found[name].view(np.uint8), array.view(np.uint8), err_msg=name)


def test_views_occur_in_these_networks(tmp_path: Path) -> None:
    """The networks above have copies of long runs, and most of these are saved, for no more bytes."""
    host, before, after = Platform.load("host"), 0, 0
    for seed in range(8):
        mod = tvm_ext.load(saved(random_model(seed, num_layers=10), tmp_path, f"net_{seed}"))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("codegen_c.backend.build.with_views", lambda program, apart: program)
            plain = compile_module(mod, host, BuildOptions())
        viewed = compile_module(mod, host, BuildOptions())
        assert viewed.plan.arena_bytes <= plain.plan.arena_bytes
        before, after = before + copies(plain.program), after + copies(viewed.program)
    assert 0 < after < before / 2
