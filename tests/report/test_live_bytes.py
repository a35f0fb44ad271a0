"""Live bytes of whole models, as their reports have them: of the plan, its lower bound and its peak."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from codegen_c.arena.memory_plan import largest_arena, live_profile, peak_placements
from tests.golden import models
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.frontends.load import load
from tvm_ext.report.report import make_report


@pytest.mark.parametrize("name", ["float_network", "integer_network", "branching_network"])
@pytest.mark.parametrize("io", ["arena", "caller"])
def test_profile_of_whole_models_agrees_with_the_plan(name: str, io: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(getattr(models, name)(), path)
    mod, options = load(path), BuildOptions(io=io)
    compiled = compile_module(mod, Platform.load("cortex_m4"), options)
    live = live_profile(compiled.program, compiled.plan)
    assert {a.memory: a.lower_bound_bytes for a in compiled.plan.arenas} == {m: max(v) for m, v in live.items()}
    report = make_report(
        compiled, options, ModelOrigin.read(mod), code_bytes=None, stack_bytes=None,
        artifacts={"library": None, "elf": None},
        verify={"host": None, "qemu": None},
    )  # fmt: skip
    assert max(step["live_bytes"] for step in report["steps"]) == report["lower_bound_bytes"]
    assert report["schedule"]["proved"] is True and report["schedule"]["peak_bytes"] > 0
    arena = largest_arena(compiled.plan)
    assert arena is not None
    assert report["peak"]["step"] == arena.peak_step
    held = sum(tensor["num_bytes"] for tensor in report["peak"]["tensors"])
    assert held == sum(p.num_bytes for p in peak_placements(compiled.plan, arena)) >= arena.lower_bound_bytes
