"""Results computed again: any repeats at all keep every bit and survive poison; networks that fit by nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm

import tvm_ext
from benchmarks import zoo
from benchmarks.networks.quantize import quantized
from benchmarks.networks.wired import gated_dense_block, gated_unet
from codegen_c.backend.build import Compiled, compile_region
from codegen_c.program.steps import RowSteps
from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.memory.rematerialize import Rematerialize, with_repeats
from relay_passes.memory.rematerialize_in_rows import RematerializeInRows
from relay_passes.memory.split_sequences import SplitSequences
from tests.passes.test_split_sequences import BACKEND
from tests.support.image_networks import NODE, image_network
from tests.support.onnx_models import model_of, saved
from tests.support.packages import sample
from tests.support.poison import run_poisoned
from tests.support.random_models import random_model
from tests.support.sweeps import some_of, some_rows
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_module, origin
from tvm_ext.compilation.stages import passes
from tvm_ext.core.decisions.composites import Region
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.platform import Platform
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.fitting.methods import MemoryPass
from tvm_ext.verification.input_ranges import random_inputs

HOST = Platform.load("host")
SEEDS = range(3)


def compiled_by(path: Path, memory_pass: MemoryPass) -> Compiled:
    """A model as one region, its memory plan checked by the validator."""
    mod = tvm_ext.load(path)
    module = tvm.transform.Sequential(passes(HOST, BuildOptions(), "net", memory_pass))(mod)
    (region,) = [f for _, f in module.functions_items() if Region.read(f).codegen]
    return compile_region(region, HOST, BuildOptions(), origin(ModelOrigin.read(mod), HOST), model="net")


def repeating(seed: int, *, split: bool) -> MemoryPass:
    """A pass that runs some operators again at random places, and may cut what comes out into rows."""

    @tvm.transform.module_pass(opt_level=0, name="RepeatAtRandom")
    def repeat(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        operators, rng = OperatorGraph(mod, mod["main"], BACKEND), random.Random(seed)
        sequence: list[int] = []
        for index, node in enumerate(operators.nodes):
            makers = [operators.made_by[value] for value in node.reads if value in operators.made_by]
            again = [maker for maker in dict.fromkeys(makers) if rng.random() < 0.5]
            sequence += [*again, index]
        module = with_repeats(mod, operators, sequence)
        return SplitSequences(BACKEND, None)(module) if split else module

    return repeat


def skipping_network(seed: int) -> onnx.ModelProto:
    """Down: a few channels made many and few again. Up: sums with what was many, which waits meanwhile.

    Between, a gate over the whole image, so that no split spans both.
    """
    rng, data = random.Random(seed), np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {}

    def layer(operator: str, *reads: str, **attributes: object) -> str:
        nodes.append(NODE(operator, list(reads), [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    def conv(x: str, source: int, channels: int) -> str:
        name, kernel = f"w{len(nodes)}", rng.choice((1, 3))
        weights[name] = data.normal(size=(channels, source, kernel, kernel)).astype(np.float32)
        return layer("Conv", x, name, pads=[kernel // 2] * 4)

    narrow, waiting = "x", []
    for _ in range(rng.randint(2, 4)):
        waiting.append(layer("Relu", conv(narrow, 2, 12)))
        narrow = conv(waiting[-1], 12, 2)
    current = conv(narrow, 2, 12)
    current = layer("Mul", current, layer("Sigmoid", layer("GlobalAveragePool", current)))
    for wide in rng.sample(waiting, len(waiting)):
        current = layer(rng.choice(("Add", "Mul")), layer("Sigmoid", conv(current, 12, 12)), wide)
    nodes.append(NODE("GlobalAveragePool", [current], ["y"]))
    return model_of(nodes, {"x": (1, 2, 12, 12)}, ["y"], weights)


def assert_same_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array.view(np.uint8), other[name].view(np.uint8), err_msg=name)


@pytest.mark.parametrize("split", some_of([True], sweep=[False]))
@pytest.mark.parametrize("make", some_of([partial(random_model, num_layers=10)], sweep=[skipping_network]))
def test_any_repeats_keep_every_bit(make: Callable[[int], onnx.ModelProto], split: bool, tmp_path: Path) -> None:
    repeated = 0
    for seed in SEEDS:
        path = saved(make(seed), tmp_path, f"net_{seed}")
        plain, again = compiled_by(path, None), compiled_by(path, repeating(seed, split=split))
        repeated += num_calls(again) - num_calls(plain)
        assert again.program.weights_bytes == plain.program.weights_bytes
        inputs = random_inputs({p.source: (p.shape, p.dtype) for p in plain.interface.inputs}, seed)
        found, destroyed = run_poisoned(again, inputs)
        assert destroyed > 0
        assert_same_bits(run_instrumented(plain, inputs, lambda *_: None), found)
    assert repeated >= 1


def num_calls(compiled: Compiled) -> int:
    return sum(1 for _ in compiled.program.kernel_calls())


def fitted(path: Path, make: Callable[..., MemoryPass]) -> list[Compiled]:
    """The model whole, and by a pass under smaller and smaller budgets, where that repeats anything."""
    whole = compiled_by(path, None)
    budgets = [whole.plan.arena_bytes * share // 10 for share in (9, 7, 5, 4)]
    tried = [compiled_by(path, make(BACKEND, budget)) for budget in budgets]
    return [whole, *(other for other in tried if num_calls(other) > num_calls(whole))]


@pytest.mark.parametrize("seed", some_of([2], sweep=[0, 1]))
@pytest.mark.parametrize("make", [Rematerialize, RematerializeInRows])
def test_repeats_that_a_budget_asks_for_keep_every_bit(
    make: Callable[..., MemoryPass], seed: int, tmp_path: Path
) -> None:
    """Some budget is met by repeats; where they may run in rows, by one that does."""
    whole, *smaller = fitted(saved(skipping_network(seed), tmp_path, f"net_{seed}"), make)
    assert any(map(repeats, smaller))
    assert any(repeats(compiled, in_rows=True) for compiled in smaller) == (make is RematerializeInRows)
    inputs = random_inputs({p.source: (p.shape, p.dtype) for p in whole.interface.inputs}, seed)
    expected = run_instrumented(whole, inputs, lambda *_: None)
    for compiled in smaller:
        assert compiled.plan.arena_bytes < whole.plan.arena_bytes
        assert_same_bits(expected, run_poisoned(compiled, inputs)[0])


def repeats(compiled: Compiled, *, in_rows: bool = False) -> list[str]:
    """Names of the calls that compute something again, or of those among them that are part of a sequence of rows."""
    steps = [step for step in compiled.program.steps if not in_rows or isinstance(step, RowSteps)]
    return [call.name for call in replace(compiled.program, steps=tuple(steps)).kernel_calls() if "_again" in call.name]


SMALL = {
    "unet": (partial(gated_unet, channels=(8, 32, 48, 64), size=32), 20_000, "recompute"),
    "dense": (partial(gated_dense_block, layers=3, stem=32, growth=4, size=16), 13_000, "split and recompute"),
}


@pytest.mark.parametrize("name", some_of(["unet"], sweep=["dense"]))
def test_networks_that_fit_only_by_recompute(name: str, tmp_path: Path) -> None:
    make, ram, method = SMALL[name]
    module = tvm_ext.load(saved(quantized(make(name)), tmp_path))
    whole = compile_module(module, Platform.load("cortex_m4"), BuildOptions())
    options = BuildOptions(ram=ram, verify=("host",))
    package = tvm_ext.build(module, "cortex_m4", tmp_path / "package", options)
    methods = [attempt["method"] for attempt in package.report["fit"]["attempts"]]
    assert methods[-1] == method and methods[0] == "whole"
    assert "split" not in methods, "its search says that rows alone come to more"
    assert package.report["arena_bytes"] <= ram < whole.plan.arena_bytes
    assert package.report["weights_bytes"] == whole.program.weights_bytes
    inputs = sample(package)
    assert_same_bits(run_instrumented(whole, inputs, lambda *_: None), package.run(inputs))


@pytest.mark.parametrize(
    ("name", "ram", "by"),
    some_rows(
        [("gated_unet_16_int8", 150_000, "recompute")],
        sweep=[("gated_dense_block_8_int8", 80_000, "split and recompute")],
    ),
)
def test_networks_of_the_zoo_that_fit_only_by_recompute(name: str, ram: int, by: str, tmp_path: Path) -> None:
    module = tvm_ext.load(saved(zoo.build(name), tmp_path))
    compiled = compile_module(module, Platform.load("cortex_m4"), BuildOptions(ram=ram))
    assert compiled.plan.arena_bytes <= ram and compiled.attempts[-1].method == by
    reached = {attempt.method: attempt.arena_bytes for attempt in compiled.attempts}
    assert reached["whole"] > ram * 1.1 and "split" not in reached


def test_recompute_that_helps_nothing_leaves_the_error_of_the_best(tmp_path: Path) -> None:
    path = saved(image_network(0), tmp_path)
    with pytest.raises(DoesNotFit, match=r"Best of each method: whole: \d+ B; split: \d+ B"):
        compile_module(tvm_ext.load(path), HOST, BuildOptions(ram=16))
