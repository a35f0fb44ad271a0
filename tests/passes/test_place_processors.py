"""PlaceProcessors: its decisions in the module, which computes what it did, and modules it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_ext
from codegen_c.backend.byoc import CodegenBackend
from codegen_c.targets.registry import target_of
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.dataflow import bindings, rebuild
from relay_passes.processors.place_processors import PlaceProcessors
from relay_passes.processors.shared_work import fast_memory_bytes
from relay_passes.regions.form_composites import FormComposites
from tests.passes.modules import without_spans
from tests.passes.placements import EQUAL, UNEQUAL, costs, processors, report, shared, two_convolutions
from tests.passes.stub_backend import StubBackend
from tests.support.core_platforms import host_cores
from tests.support.memory_problems import always_on
from tests.support.sweeps import some_rows
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.compilation.stages import backend_of, before_order, computes_floats, sharing
from tvm_ext.core.decisions.composites import OperatorProcessor, ProcessorPlacement
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.objectives import Grouping, Objective
from tvm_ext.core.platform import Platform
from tvm_ext.core.time_model import Footprint, TimeModel


class CostlyBackend(StubBackend):
    """An `exp` takes ten times as long as what else there is, and computes floats."""

    def footprint(self, composite: Any) -> Footprint:
        is_exp = bindings(composite)[0].value.op.name == "relax.exp"
        return Footprint(instructions=100_000 if is_exp else 10_000, kernel="any", computes_floats=is_exp)


@I.ir_module
class Fork:
    """Two branches, one twice as long as the other."""

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            c = R.exp(b)
            d = R.exp(x)
            y = R.add(c, d)
            R.output(y)
        return y


def formed() -> tvm.IRModule:
    return FormComposites(StubBackend(max_operators=1))(without_spans(Fork))


def placed(
    module: tvm.IRModule,
    platform: Platform,
    objective: Objective = "makespan",
    grouping: Grouping = "none",
    **more: Any,
) -> tvm.IRModule:
    return PlaceProcessors(platform, costs(platform, CostlyBackend(), **more), objective, grouping)(module)


def test_before_and_expected() -> None:
    """The shorter branch goes to the other processor; nothing else changes but the order, and the report."""
    before = formed()
    after = placed(before, EQUAL)
    told = processors(after)
    assert told == {"a": "", "b": "", "c": "", "d": "cpu1", "y": ""}
    expected = before.clone()
    for binding in bindings(before["main"]):
        decision = OperatorProcessor(processor=told[binding.var.name])
        expected.update_func(binding.value.op, decision.write(before[binding.value.op]))
    main = ProcessorPlacement.read(after["main"]).write(rebuilt_in_order(before, list(told)))
    expected.update_func(expected.get_global_var("main"), main)
    tvm.ir.assert_structural_equal(after, expected)
    said = report(after)
    assert said["gap"] == 0 and said["split_operators"] == 0
    assert [row["operators"] for row in said["processors"]] == [4, 1]
    assert said["makespan_cycles"] < said["single_processor"]["makespan_cycles"]


def rebuilt_in_order(module: tvm.IRModule, names: Sequence[str]) -> Any:
    by_name = {binding.var.name: binding for binding in bindings(module["main"])}
    return rebuild(module["main"], [by_name[name] for name in names])


@I.ir_module
class Halves:
    """An operator of two results, of which each goes its own way."""

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        with R.dataflow():
            s = R.split(x, 2)
            a = s[0]
            b = s[1]
            c = R.exp(a)
            d = R.exp(b)
            y = R.add(c, d)
            R.output(y)
        return y


def test_several_results_of_one_operator() -> None:
    before = FormComposites(StubBackend(max_operators=1))(without_spans(Halves))
    after = placed(before, EQUAL)
    told = {
        b.var.name: OperatorProcessor.read(after[b.value.op]).processor
        for b in bindings(after["main"])
        if isinstance(b.value, relax.Call)
    }
    assert {told["c"], told["d"]} == {"", "cpu1"}
    only = placed(before, EQUAL, floats=(False, True))
    assert all(
        OperatorProcessor.read(only[b.value.op]).processor == "cpu1"
        for b in bindings(only["main"])
        if isinstance(b.value, relax.Call)
    )


def test_one_processor_changes_nothing() -> None:
    before = formed()
    alone = replace(EQUAL, processors=EQUAL.processors[:1])
    after = PlaceProcessors(alone, costs(alone, CostlyBackend(), [True]), "makespan", "none")(before)
    tvm.ir.assert_structural_equal(after, before)
    assert not sharing(Platform.load("cortex_m4"), BuildOptions(), backend_of(always_on(), BuildOptions()))


def test_a_model_that_something_else_is_part_of_is_left_alone() -> None:
    before = FormComposites(StubBackend(max_operators=1, refused=frozenset({"relax.add"})))(without_spans(Fork))
    tvm.ir.assert_structural_equal(placed(before, EQUAL), before)


def test_what_no_processor_runs_is_left_alone() -> None:
    before = formed()
    tvm.ir.assert_structural_equal(placed(before, EQUAL, floats=(False, False)), before)


def test_floats_leave_a_core_without_fpu_alone() -> None:
    told = processors(placed(formed(), UNEQUAL, floats=(False, True)))
    assert all(told[name] == "cpu1" for name in ("b", "c", "d"))


def test_signals_that_take_too_long_are_not_sent() -> None:
    slow = host_cores(1_000_000_000, 1_000_000_000, latency_cycles=1_000_000)
    after = placed(formed(), slow)
    assert set(processors(after).values()) == {""}
    assert report(after)["makespan_cycles"] == report(after)["single_processor"]["makespan_cycles"]


def test_branches_stay_together_where_they_are_asked_to() -> None:
    told = processors(placed(formed(), UNEQUAL, grouping="branches"))
    assert told["a"] == told["b"] == told["c"]


@pytest.mark.parametrize("grouping", ["support", "volume"])
def test_groups_stay_on_one_processor(grouping: Grouping) -> None:
    """All can run everywhere, and fit into any memory: one group."""
    after = placed(formed(), EQUAL, grouping=grouping)
    assert len(set(processors(after).values())) == 1 and report(after)["grouping"] == grouping
    assert fast_memory_bytes(always_on()) == min(m.capacity_bytes for m in always_on().memories if m.name == "dtcm")


def test_the_least_energy_is_on_the_core_of_least_power() -> None:
    slow, fast = UNEQUAL.processors
    frugal = replace(UNEQUAL, processors=(replace(slow, watts=0.01), fast))
    assert set(processors(placed(formed(), frugal, "energy")).values()) == {""}
    hungry = replace(UNEQUAL, processors=(replace(slow, watts=10.0), fast))
    after = placed(formed(), hungry, "energy")
    assert set(processors(after).values()) == {"cpu1"}
    assert report(after)["energy_uj"] == pytest.approx(report(after)["bound"]["energy_uj"])


def test_a_pipeline_has_stages() -> None:
    after = placed(formed(), EQUAL, "throughput")
    said = report(after)
    assert len(set(processors(after).values())) == 2
    assert said["interval_cycles"] <= 0.7 * said["single_processor"]["interval_cycles"]


def test_a_function_that_both_run_is_copied() -> None:
    """One composite called from two branches: each processor has its own, which says so."""
    module = formed()
    callee = next(b.value.op for b in bindings(module["main"]) if b.var.name == "b")
    main = module["main"]
    again = [
        relax.VarBinding(b.var, relax.Call(callee, b.value.args, None, [], b.value.span, b.value.ty))
        if b.var.name in ("c", "d")
        else b
        for b in bindings(main)
    ]
    module.update_func(module.get_global_var("main"), rebuild(main, again))
    after = placed(module, EQUAL)
    called = {b.var.name: b.value.op.name_hint for b in bindings(after["main"])}
    assert called["b"] == called["c"] != called["d"]
    assert processors(after)["d"] == "cpu1" and processors(after)["b"] == ""


def test_options_name_processors_and_power(tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match=r"host_cores has no processor 'gpu'; it has cpu, cpu1\."):
        BuildOptions(processors=("gpu",)).processors_of(EQUAL)
    silent = host_cores(10**9, 10**9, watts=0.0)
    with pytest.raises(BadOptions, match=r"'energy': host_cores lacks the power of cpu, cpu1; give each"):
        BuildOptions(placement_objective="energy").processors_of(silent)
    assert len(BuildOptions(placement_objective="energy", processors=()).processors_of(silent)) == 1
    with pytest.raises(BadOptions, match=r"placement_objective = 'luck': allowed are makespan, energy, throughput"):
        BuildOptions(placement_objective="luck")  # type: ignore[arg-type]
    with pytest.raises(BadOptions, match=r"placement_granularity = 'all': allowed are none, support, branches, volume"):
        BuildOptions(placement_granularity="all")  # type: ignore[arg-type]
    with pytest.raises(BadOptions, match=r"processors = 'cpu1': give a tuple of names"):
        BuildOptions(processors="cpu1")  # type: ignore[arg-type]


def test_cores_that_nobody_wakes_are_not_used() -> None:
    mute = replace(EQUAL, signals=EQUAL.signals[:1])
    assert not sharing(mute, BuildOptions(), backend_of(mute, BuildOptions()))
    blind = replace(EQUAL, links=tuple(link for link in EQUAL.links if link.source == "cpu"))
    assert not sharing(blind, BuildOptions(), backend_of(blind, BuildOptions()))
    assert computes_floats(Platform.load("dual_m33"), BuildOptions())
    assert not computes_floats(Platform.load("dual_m33"), BuildOptions(processors=()))


@pytest.mark.parametrize(
    ("platform", "least_flash", "least"),
    some_rows([("dual_m33_equal", False, 1.7), ("dual_m33", True, 1.2)], sweep=[("dual_m33", False, 1.15)]),
)
@pytest.mark.slow
def test_resnet_is_as_much_faster_as_promised(
    platform: str, least_flash: bool, least: float, shared_models: Path
) -> None:
    """CPU0 of `dual_m33` has no DSP instructions: by Winograd CPU1 alone takes 32 % less, both together 29 % less."""
    options = BuildOptions(least_flash=least_flash)
    _, after = shared(shared_models / "resnet_int8.onnx", Platform.load(platform), options)
    said = report(after)
    assert said["single_processor"]["makespan_cycles"] >= least * said["makespan_cycles"]
    assert said["gap"] <= 0.05


def test_the_report_of_a_build_tells_of_it(tmp_path: Path) -> None:
    path = two_convolutions(tmp_path)
    options = BuildOptions(verify=(), placement_objective="energy", placement_granularity="volume")
    said = tvm_ext.build(tvm_ext.load(path), "dual_m33", tmp_path / "out", options).report["placement"]
    assert said["objective"] == "energy" and said["grouping"] == "volume" and said["energy_uj"] > 0
    assert [row["name"] for row in said["processors"]] == ["cpu0", "cpu1"]
    assert said["processors"][0]["operators"] == 0, "floats go to the core with an FPU"
    alone = tvm_ext.build(tvm_ext.load(path), "cortex_m33", tmp_path / "alone", BuildOptions(verify=()))
    assert "placement" not in alone.report


def test_a_model_too_large_for_two_at_once_runs_in_smaller_plans_and_then_on_one(tmp_path: Path) -> None:
    """At the bytes of one core a plan of rows keeps both; below what two need, the first core runs alone."""
    path = two_convolutions(tmp_path)
    both = compile_module(tvm_ext.load(path), EQUAL, BuildOptions())
    one = compile_module(tvm_ext.load(path), EQUAL, BuildOptions(processors=()))
    assert one.plan.arena_bytes < both.plan.arena_bytes
    tight = compile_module(tvm_ext.load(path), EQUAL, BuildOptions(ram=one.plan.arena_bytes))
    assert tight.placement is not None and tight.plan.arena_bytes <= one.plan.arena_bytes
    tighter = compile_module(tvm_ext.load(path), EQUAL, BuildOptions(ram=7168))
    assert tighter.placement is None and tighter.plan.arena_bytes <= 7168


def test_costs_are_those_of_the_processor(tmp_path: Path) -> None:
    """The same layer: a core at a quarter of the clock takes four times as long."""
    options = BuildOptions()
    backend = CodegenBackend(target=target_of(EQUAL.processor))
    before = tvm.transform.Sequential(before_order(EQUAL, backend, options))(tvm_ext.load(two_convolutions(tmp_path)))
    composite = next(before[b.value.op] for b in bindings(before["main"]) if b.var.name == "a")
    slow, fast = (
        ProcessorCosts(
            processor=core, backend=backend, time=TimeModel(platform=UNEQUAL, processor=core.name), runs_floats=True
        ).nanoseconds(composite)
        for core in UNEQUAL.processors
    )
    assert slow and fast and slow == pytest.approx(4 * fast, rel=1e-3)
