"""PlaceProcessors: its decisions in the module, which computes what it did, and modules it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_ext
from benchmarks import zoo
from codegen_c.backend.byoc import CodegenBackend
from codegen_c.program import reference
from codegen_c.targets.registry import target_of
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.dataflow import bindings, constant, rebuild
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.processors.channel_parts import channels_of, computing_channels
from relay_passes.processors.place_processors import PlaceProcessors
from relay_passes.processors.row_parts import cuttable, split_rows
from relay_passes.processors.shared_work import fast_memory_bytes
from relay_passes.regions.form_composites import FormComposites
from tests.passes.modules import module_of, without_spans
from tests.passes.stub_backend import ELEMENTWISE, StubBackend
from tests.support.core_platforms import host_cores
from tests.support.image_networks import image_network
from tests.support.memory_problems import always_on
from tests.support.onnx_models import model_of, saved
from tests.support.sweeps import some_of
from tests.support.virtual_machine import run
from tvm_ext import BuildOptions
from tvm_ext.core.columns import ColumnOperator
from tvm_ext.core.decisions.execution import RowSplit
from tvm_ext.core.decisions.processors import OperatorProcessor, ProcessorPlacement
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.objectives import Grouping, Objective
from tvm_ext.core.operator_costs import Footprint
from tvm_ext.core.platform import Platform
from tvm_ext.core.time_model import TimeModel
from tvm_ext.pipeline import compile_module
from tvm_ext.stages import backend_of, before_order, computes_floats, order, sharing
from tvm_ext.verification.input_ranges import random_inputs

EQUAL = host_cores(1_000_000_000, 1_000_000_000)
UNEQUAL = host_cores(250_000_000, 1_000_000_000)


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


def costs(platform: Platform, backend: StubBackend, floats: Sequence[bool] = (True, True)) -> list[ProcessorCosts]:
    return [
        ProcessorCosts(
            processor=core, backend=backend, time=TimeModel(platform=platform, processor=core.name), runs_floats=own
        )
        for core, own in zip(platform.processors, floats, strict=True)
    ]


def placed(
    module: tvm.IRModule,
    platform: Platform,
    objective: Objective = "makespan",
    grouping: Grouping = "none",
    **more: Any,
) -> tvm.IRModule:
    return PlaceProcessors(platform, costs(platform, CostlyBackend(), **more), objective, grouping)(module)


def shared(path: Path, platform: Platform, options: BuildOptions) -> tuple[tvm.IRModule, tvm.IRModule]:
    """A model's module before and after the pass, as the pipeline runs it."""
    backend = backend_of(platform, options)
    before = tvm.transform.Sequential([*before_order(backend, options), *order(backend)])(tvm_ext.load(path))
    return before, tvm.transform.Sequential(sharing(platform, options, backend))(before)


def processors(module: tvm.IRModule) -> dict[str, str]:
    """The processor that each binding's composite says, in order."""
    return {b.var.name: OperatorProcessor.read(module[b.value.op]).processor for b in bindings(module["main"])}


def report(module: tvm.IRModule) -> dict[str, Any]:
    found = ProcessorPlacement.read(module["main"]).report
    assert found is not None
    return dict(found)


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


def two_convolutions(folder: Path) -> Path:
    """x: float32[1, 8, 16, 8] -> 3x3 -> relu -> 3x3 stride 2."""
    weights = {f"w{i}": np.ones((8, 8, 3, 3), np.float32) for i in range(2)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "w1"], ["y"], pads=[1] * 4, strides=[2, 2]),
    ]
    return saved(model_of(nodes, {"x": (1, 8, 16, 8)}, ["y"], weights), folder)


def test_halves_and_halos_stand_in_the_module(tmp_path: Path) -> None:
    before, after = shared(two_convolutions(tmp_path), EQUAL, BuildOptions())
    told = processors(after)
    halves = {"a.rows_0_8": "", "a.rows_8_16": "cpu1", "y.nhwc.rows_0_4": "", "y.nhwc.rows_4_8": "cpu1"}
    assert halves.items() <= told.items(), told
    composites = {b.var.name: (b.value, after[b.value.op]) for b in bindings(after["main"])}
    pads = {name: [int(n) for n in _window(composites[name][1]).attrs.padding] for name in halves}
    assert pads["a.rows_0_8"] == [1, 1, 0, 1] and pads["a.rows_8_16"] == [0, 1, 1, 1]
    assert pads["y.nhwc.rows_0_4"] == [1, 1, 0, 1] and pads["y.nhwc.rows_4_8"] == [0, 1, 0, 1]
    read = composites["y.nhwc.rows_0_4"][0].args[0]
    assert read.name == "a.rows_0_8", "rows 0 to 7 are what the first half made: no slice, and nothing to wait for"
    read = composites["y.nhwc.rows_4_8"][0].args[0]
    assert read.name == "a.rows_7_16", "one row more, of the other half"
    assert not {"conv_0", "conv_1"} & {var.name_hint for var, _ in after.functions_items()}
    x = np.random.default_rng(0).normal(size=(1, 8, 16, 8)).astype(np.float32)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5)


def _window(composite: Any) -> Any:
    return next(b.value for b in bindings(composite) if b.value.op.name == "relax.nn.conv2d")


def test_the_slower_core_takes_fewer_rows(tmp_path: Path) -> None:
    _, after = shared(two_convolutions(tmp_path), UNEQUAL, BuildOptions())
    assert {"a.rows_0_3": "", "a.rows_3_16": "cpu1"}.items() <= processors(after).items()


def test_three_cores_share_one_layer(tmp_path: Path) -> None:
    three = host_cores(10**9, 10**9, 10**9, latency_cycles=10)
    _, after = shared(two_convolutions(tmp_path), three, BuildOptions())
    assert set(processors(after).values()) == {"", "cpu1", "cpu2"}
    least_of_two = report(after)["single_processor"]["makespan_cycles"] / 2
    assert report(after)["makespan_cycles"] < least_of_two


@pytest.mark.parametrize("seed", some_of((0, 1, 3), sweep=range(4, 40)))
def test_not_one_bit_changes(seed: int, tmp_path: Path) -> None:
    """Random networks: what the C computes of the shared module is what it computes of the whole one."""
    path = saved(image_network(seed), tmp_path)
    platform = (EQUAL, UNEQUAL)[seed % 2]
    whole = compile_module(tvm_ext.load(path), platform, BuildOptions(processors=()))
    cut = compile_module(tvm_ext.load(path), platform, BuildOptions())
    assert whole.placement is None and cut.placement is not None and cut.placement["split_operators"] > 0
    for draw in range(2):
        (one,), (other,) = whole.program.inputs, cut.program.inputs
        tensor = whole.program.tensors[one]
        x = random_inputs({one: (tensor.shape, tensor.dtype)}, draw)[one]
        expected = reference.run(whole.program, {one: x})[whole.program.outputs[0]]
        found = reference.run(cut.program, {other: x})[cut.program.outputs[0]]
        np.testing.assert_array_equal(found, expected)


def test_dense_layers_are_cut_into_channels(tmp_path: Path) -> None:
    """Weights of an int8 network of dense layers, with a scale for each channel: not one bit changes."""
    model = zoo.build("autoencoder_int8")
    onnx.save(model, tmp_path / "model.onnx")
    module = tvm_ext.load(tmp_path / "model.onnx")
    whole = compile_module(module, UNEQUAL, BuildOptions(processors=()))
    cut = compile_module(module, UNEQUAL, BuildOptions())
    assert cut.placement is not None and cut.placement["split_operators"] > 0
    assert any("_channels_" in step.name for step in cut.program.steps)
    (one,), (other,) = whole.program.inputs, cut.program.inputs
    x = random_inputs({one: (whole.program.tensors[one].shape, "int8")}, 0)[one]
    expected = reference.run(whole.program, {one: x})[whole.program.outputs[0]]
    np.testing.assert_array_equal(reference.run(cut.program, {other: x})[cut.program.outputs[0]], expected)


def quantized_dense(axis: int) -> tvm.IRModule:
    """Square weights, with a scale for each channel of the input (axis 0) or of the output (axis 1)."""
    data = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType([1, 8], "float32"))
    weights = constant(data.integers(-127, 127, (8, 8)).astype(np.int8))
    scales, zeros = constant(data.random(8).astype(np.float32)), constant(np.zeros(8, np.int8))
    bias = constant(data.random(8).astype(np.float32))

    def body(builder: relax.BlockBuilder) -> relax.Expr:
        weight = builder.emit(relax.op.dequantize(weights, scales, zeros, axis=axis, out_dtype="float32"))
        return relax.op.nn.relu(builder.emit(relax.op.add(builder.emit(relax.op.matmul(x, weight)), bias)))

    return module_of([x], body)


@pytest.mark.parametrize("axis", [0, 1])
def test_scales_of_a_square_layer_are_cut_along_their_axis(axis: int) -> None:
    module = quantized_dense(axis)
    x = np.random.default_rng(1).normal(size=(1, 8)).astype(np.float32)
    whole = run(module, x)
    for made in ((0, 3), (3, 8)):
        part = computing_channels(module["main"], made)
        assert part is not None
        found = run(tvm.IRModule({"main": part.with_attr("global_symbol", "main")}), x)
        np.testing.assert_allclose(found, whole[:, made[0] : made[1]], rtol=1e-6)


def test_what_is_no_vector_times_weights_has_no_channels() -> None:
    x = relax.Var("x", relax.TensorType([1, 8], "float32"))
    weights = constant(np.ones((8, 8), np.float32))
    of_inputs = module_of([x], lambda b: relax.op.add(b.emit(relax.op.matmul(x, weights)), x))
    after_softmax = module_of([x], lambda b: relax.op.nn.softmax(b.emit(relax.op.matmul(x, weights))))
    two = relax.Var("x", relax.TensorType([2, 8], "float32"))
    of_two = module_of([two], lambda b: relax.op.matmul(two, weights))
    for module in (of_inputs, after_softmax, of_two):
        assert channels_of(module["main"], ELEMENTWISE) is None
    assert computing_channels(of_inputs["main"], (0, 4)) is None, "one operand has all channels"
    plain = module_of([x], lambda b: relax.op.matmul(x, weights))
    assert channels_of(plain["main"], ELEMENTWISE) == ColumnOperator(num_columns=8, readers=(None,))


def test_rows_in_series_stay_on_one_core(tmp_path: Path) -> None:
    options = BuildOptions()
    backend = backend_of(EQUAL, options)
    before = tvm.transform.Sequential([*before_order(backend, options), *order(backend)])(
        tvm_ext.load(two_convolutions(tmp_path))
    )
    split = SplitSequences(backend, None)(before)
    after = tvm.transform.Sequential(sharing(EQUAL, options, backend))(split)
    sequences: dict[str, set[str]] = {}
    for binding in bindings(after["main"]):
        composite = after[binding.value.op]
        if label := RowSplit.read(composite).sequence:
            sequences.setdefault(label, set()).add(OperatorProcessor.read(composite).processor)
    assert sequences and all(len(found) == 1 for found in sequences.values())


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
    with pytest.raises(BadOptions, match=r"'energy': host_cores does not say the power of cpu, cpu1; give each"):
        BuildOptions(objective="energy").processors_of(silent)
    assert len(BuildOptions(objective="energy", processors=()).processors_of(silent)) == 1
    with pytest.raises(BadOptions, match=r"objective = 'luck': allowed are makespan, energy, throughput"):
        BuildOptions(objective="luck")  # type: ignore[arg-type]
    with pytest.raises(BadOptions, match=r"group = 'all': allowed are none, support, branches, volume"):
        BuildOptions(group="all")  # type: ignore[arg-type]
    with pytest.raises(BadOptions, match=r"processors = 'cpu1': a tuple of names"):
        BuildOptions(processors="cpu1")  # type: ignore[arg-type]


def test_cores_that_nobody_wakes_are_not_used() -> None:
    mute = replace(EQUAL, signals=EQUAL.signals[:1])
    assert not sharing(mute, BuildOptions(), backend_of(mute, BuildOptions()))
    blind = replace(EQUAL, links=tuple(link for link in EQUAL.links if link.source == "cpu"))
    assert not sharing(blind, BuildOptions(), backend_of(blind, BuildOptions()))
    assert computes_floats(Platform.load("dual_m33"), BuildOptions())
    assert not computes_floats(Platform.load("dual_m33"), BuildOptions(processors=()))


@pytest.mark.parametrize(("platform", "least"), [("dual_m33_equal", 1.7), ("dual_m33", 1.2)])
def test_resnet_is_as_much_faster_as_promised(platform: str, least: float, shared_models: Path) -> None:
    _, after = shared(shared_models / "resnet_int8.onnx", Platform.load(platform), BuildOptions())
    said = report(after)
    assert said["single_processor"]["makespan_cycles"] >= least * said["makespan_cycles"]
    assert said["gap"] <= 0.05


def test_rows_that_parts_read_are_those_of_row_access(tmp_path: Path) -> None:
    """Two tellings of the same fact: for strips and bands as strides and extents, for rows in series row by row."""
    options, compared = BuildOptions(), 0
    backend = backend_of(EQUAL, options)
    for seed in range(8):
        path = saved(image_network(seed), tmp_path)
        module = tvm.transform.Sequential(before_order(backend, options))(tvm_ext.load(path))
        for binding in bindings(module["main"]):
            found = backend.footprint(module[binding.value.op])
            if found.bands is None or found.rows is None or found.rows.num_rows != found.bands.num_columns:
                continue
            for band, reader in zip(found.bands.readers, found.rows.readers, strict=True):
                half = found.rows.num_rows // 2
                for part in ((0, half), (half, found.rows.num_rows)):
                    if band is not None and part[0] < part[1]:
                        assert band.read(part) == reader.access.read(*part)
                        compared += 1
    assert compared > 40


def test_a_part_of_padding_alone_is_no_choice(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[40, 1, 40, 1])]
    weights = {"w": np.ones((8, 8, 3, 3), np.float32)}
    path = saved(model_of(nodes, {"x": (1, 8, 8, 8)}, ["y"], weights), tmp_path)
    options = BuildOptions()
    backend = backend_of(EQUAL, options)
    module = tvm.transform.Sequential(before_order(backend, options))(tvm_ext.load(path))
    composite = next(module[b.value.op] for b in bindings(module["main"]) if "conv" in b.value.op.name_hint)
    own = [ProcessorCosts(processor=c, backend=backend, time=TimeModel(platform=EQUAL), runs_floats=True)
           for c in EQUAL.processors]  # fmt: skip
    layer = cuttable(composite, own[0])
    assert layer is not None and layer.bands.num_columns == 86
    assert split_rows(layer, own, [(0, 100), (1, 100)]) is not None
    assert split_rows(layer, own, [(0, 1000), (1, 10)]) is None, "38 rows of the result read padding alone"


def test_the_report_of_a_build_tells_of_it(tmp_path: Path) -> None:
    path = two_convolutions(tmp_path)
    options = BuildOptions(verify=(), objective="energy", group="volume")
    said = tvm_ext.build(tvm_ext.load(path), "dual_m33", tmp_path / "out", options).report["placement"]
    assert said["objective"] == "energy" and said["grouping"] == "volume" and said["energy_uj"] > 0
    assert [row["name"] for row in said["processors"]] == ["cpu0", "cpu1"]
    assert said["processors"][0]["operators"] == 0, "floats go to the core with an FPU"
    alone = tvm_ext.build(tvm_ext.load(path), "cortex_m33", tmp_path / "alone", BuildOptions(verify=()))
    assert "placement" not in alone.report


def test_a_model_too_large_for_two_at_once_runs_on_one(tmp_path: Path) -> None:
    path = two_convolutions(tmp_path)
    both = compile_module(tvm_ext.load(path), EQUAL, BuildOptions())
    one = compile_module(tvm_ext.load(path), EQUAL, BuildOptions(processors=()))
    assert one.plan.arena_bytes <= both.plan.arena_bytes
    tight = compile_module(tvm_ext.load(path), EQUAL, BuildOptions(ram=one.plan.arena_bytes))
    assert tight.plan.arena_bytes <= one.plan.arena_bytes
    assert (tight.placement is None) == (one.plan.arena_bytes < both.plan.arena_bytes)


def test_costs_are_those_of_the_processor(tmp_path: Path) -> None:
    """The same layer: a core at a quarter of the clock takes four times as long."""
    options = BuildOptions()
    backend = CodegenBackend(target=target_of(EQUAL.processor))
    before = tvm.transform.Sequential(before_order(backend, options))(tvm_ext.load(two_convolutions(tmp_path)))
    composite = next(before[b.value.op] for b in bindings(before["main"]) if b.var.name == "a")
    slow, fast = (
        ProcessorCosts(
            processor=core, backend=backend, time=TimeModel(platform=UNEQUAL, processor=core.name), runs_floats=True
        ).nanoseconds(composite)
        for core in UNEQUAL.processors
    )
    assert slow and fast and slow == pytest.approx(4 * fast, rel=1e-3)


def test_memories_that_one_core_alone_reaches_hold_no_tensors_of_both(tmp_path: Path) -> None:
    """Close to the first core lies a memory that is faster, and that only it reaches."""
    ram = EQUAL.memory(EQUAL.activations)
    near = replace(ram, name="near", capacity_bytes=1 << 20)
    slow = [replace(memory, read_bytes_per_cycle=0.5, write_bytes_per_cycle=0.5) for memory in EQUAL.memories[:1]]
    link = replace(EQUAL.links[0], source="cpu", target="near")
    platform = replace(EQUAL, memories=(*slow, *EQUAL.memories[1:], near), links=(*EQUAL.links, link))
    module = tvm_ext.load(saved(image_network(1), tmp_path))
    both, alone = (compile_module(module, platform, BuildOptions(processors=chosen)) for chosen in (None, ("cpu",)))
    assert both.placement is not None and both.plan.bytes_in("near") == 0
    assert alone.plan.bytes_in("near") > 0
    assert "near" not in BuildOptions().limits_bytes(platform)
