"""ReachAccelerators: moves to and from the memory of an accelerator, none between its own layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from codegen_c.costs.predict import moved_bytes
from codegen_c.program.program import drivers_of
from relay_passes.dataflow import bindings
from relay_passes.own_operators import is_move
from relay_passes.processors.reach_accelerators import ReachAccelerators
from relay_passes.regions.form_composites import FormComposites
from tests.models.test_offload import answers, branches, compiled, same
from tests.passes.modules import without_spans
from tests.passes.stub_backend import StubBackend
from tests.support.offload_platforms import with_accelerator, with_far_accelerator
from tests.support.virtual_machine import run
from tvm_ext.core.decisions.composites import MoveTarget, OperatorMemories, OperatorProcessor
from tvm_ext.core.options import BuildOptions


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.tanh(a)
            c = R.reshape(b, (2, 2))
            y = R.add(c, c)
            R.output(y)
        return y


def placed(*names: str) -> tvm.IRModule:
    """The chain with composites whose results have these names on the accelerator."""
    mod = FormComposites(StubBackend(max_operators=1))(without_spans(Chain))
    for binding in bindings(mod["main"]):
        if binding.var.name in names:
            function = OperatorProcessor(processor="npu").write(mod[binding.value.op])
            mod.update_func(binding.value.op, function)
    return mod


def told(mod: tvm.IRModule) -> list[str]:
    """Results in order, moves with where they go."""
    found: list[str] = []
    for binding in bindings(mod["main"]):
        value: Any = binding.value
        found.append(f"{binding.var.name}>{MoveTarget.read(value).memory}" if is_move(value) else binding.var.name)
    return found


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("b",), ["a", "a.npu_ram>npu_ram", "b.npu_ram", "c.npu_ram", "c>ram", "y"]),
        (("a", "b", "y"), ["x.npu_ram>npu_ram", "a.npu_ram", "b.npu_ram", "c.npu_ram", "y.npu_ram", "y>ram"]),
        (("y",), ["a", "b", "c", "c.npu_ram>npu_ram", "y.npu_ram", "y>ram"]),
    ],
)
def test_moves(names: tuple[str, ...], expected: list[str]) -> None:
    platform = with_far_accelerator("host")
    assert platform.activations == "ram"
    before = placed(*names)
    after = ReachAccelerators(platform)(before)
    assert told(after) == expected
    for binding in bindings(after["main"]):
        if binding.var.name.removesuffix(".npu_ram") in names and isinstance(binding.value.op, tvm.ir.GlobalVar):
            assert OperatorMemories.read(after[binding.value.op]) == OperatorMemories(memory="npu_ram")
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    np.testing.assert_array_equal(run(after, x)[0], run(before, x)[0])
    relax.analysis.well_formed(after)  # raises


def test_left_alone() -> None:
    near = with_accelerator("host")
    before = placed("b")
    assert ReachAccelerators(near)(before).same_as(before)
    alone = placed()
    assert told(ReachAccelerators(with_far_accelerator("host"))(alone)) == told(alone)


@pytest.mark.parametrize(("dma", "weights"), [(False, True), (True, False)])
@pytest.mark.slow
def test_bytes_are_those_of_the_core(dma: bool, weights: bool, tmp_path: Path) -> None:
    platform = with_far_accelerator("host", dma=dma, reaches_weights=weights)
    found, samples = compiled(branches(), tmp_path, platform)
    assert drivers_of(found.program)
    pairs = {("ram", "npu_ram"), ("npu_ram", "ram"), *([] if weights else [(platform.weights, "npu_ram")])}
    assert {*moved_bytes(found.program)} == pairs
    alone, _ = compiled(branches(), tmp_path, processors=("cpu",))
    assert same(answers(alone, tmp_path / "alone", samples), answers(found, tmp_path / "far", samples))


def test_what_nothing_gets_to_is_not_used() -> None:
    far = with_far_accelerator("host")
    npu = far.processor_named("npu")
    assert (far.near_memory(npu), far.near_memory(far.processor)) == ("npu_ram", "")
    links = tuple(link for link in far.links if (link.source, link.target) != (far.processor.name, "npu_ram"))
    cut = replace(far, links=links)
    assert cut.near_memory(npu) is None
    assert not BuildOptions().offloads_of(cut) and BuildOptions().offloads_of(far) == (npu,)
