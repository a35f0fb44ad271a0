"""AssignMemories: its decisions in the module, and modules it leaves alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.composites import is_composite
from relay_passes.dataflow import bindings, rebuild, substitute
from relay_passes.memory.assign_memories import AssignMemories
from relay_passes.own_operators import is_move, move
from relay_passes.regions.form_composites import FormComposites
from tests.passes.modules import without_spans
from tests.passes.stub_backend import StubBackend
from tests.support.memory_problems import always_on
from tvm_ext.core.time_model import DOUBLE_WORDS, Footprint, KernelTime, TimeModel

LIMITS = {"sram": 1 << 20, "dtcm": 8 * 1024 + 512}


READS_FIRST = Footprint(instructions=1000, kernel="none", read_bytes={0: 80 * 1024})
"""Reads its first operand twenty times."""


class CostlyBackend(StubBackend):
    """An `exp` reads weights and scratch; other operators only what they are given."""

    def footprint(self, composite: relax.Function) -> Footprint:
        (binding,) = bindings(composite)
        if binding.value.op.name != "relax.exp":
            return READS_FIRST
        return replace(
            READS_FIRST, weights_bytes=256, weights_read_bytes=25_600, scratch_bytes=64, scratch_access_bytes=6400
        )


@I.ir_module
class Skip:
    """Values of 4 KiB, of which two fit; the first is wanted again at the end."""

    @R.function
    def main(x: R.Tensor((1024,), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.abs(a)
            c = R.negative(b)
            d = R.exp(c)
            e = R.sqrt(d)
            f = R.add(a, e)
            y = R.sum(f)
            R.output(y)
        return y


def formed(module: tvm.IRModule) -> tvm.IRModule:
    return FormComposites(StubBackend(max_operators=1))(without_spans(module))


def assigned(module: tvm.IRModule, limits: Mapping[str, int] = LIMITS) -> tvm.IRModule:
    time = TimeModel(platform=always_on(), other=KernelTime.of(DOUBLE_WORDS))
    return AssignMemories(CostlyBackend(), time, limits)(module)


def decided(module: tvm.IRModule) -> dict[str, dict[str, object]]:
    """Attributes of composites that this pass writes, by the name of what they compute."""
    names = ("memory", "weights_memory", "weights_ahead", "scratch_memory")
    found: dict[str, dict[str, object]] = {}
    for binding in bindings(module["main"]):
        if isinstance(binding.value.op, tvm.ir.GlobalVar):
            attrs = module[binding.value.op].attrs
            found[binding.var.name] = {name: attrs[name] for name in names if name in attrs}
    return found


def test_before_and_expected() -> None:
    """Everything that it decides is in the module: attributes of composites, moves among the bindings."""
    before = formed(Skip)
    after = assigned(before)
    expected = before.clone()
    main = before["main"]
    x, (a, b, c, d, e, f, y) = main.params[0], bindings(main)
    near = {"memory": "dtcm"}
    fetched = {
        **near,
        "weights_memory": "dtcm",
        "weights_ahead": decided(after)["d"]["weights_ahead"],
        "scratch_memory": "dtcm",
    }
    told = {"a": near, "b": near, "c": near, "d": fetched, "f": near}  # e would be the third of three at once
    for binding in (a, b, c, d, f):
        callee = binding.value.op
        expected.update_func(callee, before[callee].with_attrs(told[binding.var.name]))
    x_near = relax.VarBinding(relax.DataflowVar("x.dtcm", x.ty), move(x, "dtcm"))
    spilled = relax.VarBinding(relax.DataflowVar("a.sram", a.var.ty), move(a.var, "sram", 1))
    again = relax.VarBinding(relax.DataflowVar("a.dtcm", a.var.ty), move(spilled.var, "dtcm"))
    from_copies = [
        x_near,
        relax.VarBinding(a.var, substitute(a.value, {x: x_near.var})),
        spilled,
        b,
        c,
        again,
        relax.VarBinding(f.var, substitute(f.value, {a.var: again.var})),
        y,
    ]
    sequence = [*from_copies[:5], d, e, *from_copies[5:]]
    wanted = rebuild(main, _as_placed(sequence, after))
    attributes = {key: after["main"].attrs[key] for key in ("predicted_cycles", "predicted_cycles_at_home")}
    expected.update_func(before.get_global_var("main"), wanted.with_attrs(attributes))
    tvm.ir.assert_structural_equal(after, expected)
    assert attributes["predicted_cycles"] < attributes["predicted_cycles_at_home"] / 1.5
    script = after.script()
    assert '"tvm_ext.move"' in script and '"memory": "sram", "within": 1' in script and '"weights_ahead"' in script


def _as_placed(sequence: list[relax.VarBinding], after: tvm.IRModule) -> list[relax.VarBinding]:
    """The fetch among the bindings where the pass has it: how early it starts is the time model's affair."""
    names = [binding.var.name for binding in bindings(after["main"])]
    assert sorted(names) == sorted(binding.var.name for binding in sequence)
    assert names.index("c") < names.index("a.dtcm") < names.index("f")
    assert names.index("a.sram") == names.index("a") + 1
    return sorted(sequence, key=lambda binding: names.index(binding.var.name))


def test_the_module_computes_the_same_in_tvm() -> None:
    before = formed(Skip)
    x = np.random.default_rng(0).standard_normal(1024).astype(np.float32)
    results = []
    for module in (before, assigned(before)):
        built = tvm.compile(module, "llvm")
        results.append(relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy())
    np.testing.assert_array_equal(*results)


def test_with_one_memory_the_module_is_left_alone() -> None:
    before = formed(Skip)
    tvm.ir.assert_structural_equal(assigned(before, {"sram": 1 << 20}), before)


def test_without_room_only_weights_move() -> None:
    """To the default memory, which is faster than flash."""
    after = assigned(formed(Skip), {"sram": 1 << 20, "dtcm": 16})
    assert {name: told for name, told in decided(after).items() if told} == {
        "d": {"weights_memory": "sram", "weights_ahead": 1}
    }
    assert not any(is_move(binding.value) for binding in bindings(after["main"]))


def test_what_gains_little_is_left_alone() -> None:
    """Two memories of nearly the same speed."""
    platform = always_on()
    alike = tuple(
        replace(memory, read_bytes_per_cycle=4, write_bytes_per_cycle=4, latency_cycles=4)
        if memory.name in ("dtcm", "flash")
        else memory
        for memory in platform.memories
    )
    links = tuple(replace(link, bytes_per_cycle=4, latency_cycles=4) for link in platform.links)
    time = TimeModel(platform=replace(platform, memories=alike, links=links))
    before = formed(Skip)
    tvm.ir.assert_structural_equal(AssignMemories(CostlyBackend(), time, LIMITS)(before), before)


@pytest.mark.parametrize(("rate", "latency", "is_used"), [(8, 1, False), (16, 1, True), (8, 400, True)])
def test_latencies_alone_have_to_gain_a_quarter(rate: int, latency: int, is_used: bool) -> None:
    """Where the other memory has no higher rate. All of it is gained by bursts that do not wait there."""
    platform = always_on()
    alike = tuple(
        replace(memory, read_bytes_per_cycle=rate, write_bytes_per_cycle=rate, latency_cycles=0)
        if memory.name == "dtcm"
        else replace(memory, read_bytes_per_cycle=8, write_bytes_per_cycle=8, latency_cycles=latency)
        for memory in platform.memories
    )
    links = tuple(replace(link, bytes_per_cycle=16, latency_cycles=0) for link in platform.links)
    bursts = KernelTime.of(replace(DOUBLE_WORDS, bursts=1 / 16), cycles=30)
    time = TimeModel(platform=replace(platform, memories=alike, links=links), other=bursts)
    after = AssignMemories(CostlyBackend(), time, LIMITS)(formed(Skip))
    assert any(decided(after).values()) == is_used


def test_foreign_operators_are_left_alone() -> None:
    tvm.ir.assert_structural_equal(assigned(Skip), Skip)


def test_composites_that_run_again_keep_their_results_home() -> None:
    """One function has one set of attributes, whoever calls it."""
    module = formed(Skip)
    main = module["main"]
    first = bindings(main)[0]
    again = relax.VarBinding(relax.DataflowVar("a.again", first.var.ty), first.value)
    sequence = [
        relax.VarBinding(b.var, substitute(b.value, {first.var: again.var})) if b.var.name == "f" else b
        for b in bindings(main)
    ]
    sequence.insert(5, again)
    module.update_func(module.get_global_var("main"), rebuild(main, sequence))
    after = assigned(module)
    assert not decided(after)["a"] and decided(after)["b"]
    assert all(is_composite(f) or name.name_hint == "main" for name, f in after.functions_items())
    assert any(is_move(binding.value) for binding in bindings(after["main"]))
