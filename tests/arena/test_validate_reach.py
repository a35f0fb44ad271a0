"""The validator refuses steps on processors that do not reach the memory of what they touch, and copies by no DMA."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import check_reach
from codegen_c.arena.validate_order import validate_order
from codegen_c.kernels.user_functions import DriverCall
from codegen_c.program.parallel import ParallelProgram
from codegen_c.program.program import Program
from codegen_c.program.share_steps import lists_of, share_steps
from codegen_c.program.steps import KernelCall, Step, Transfer, processor_of
from codegen_c.program.tensors import Constant
from tests.arena.programs import call, program
from tests.support.core_platforms import host_cores, with_own_memory
from tests.support.offload_platforms import with_accelerator
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.platform import Platform

PLATFORM = with_own_memory(host_cores(1_000_000, 1_000_000), "cpu1", capacity_bytes=1 << 12)
BY_DMA = with_own_memory(host_cores(1_000_000, 1_000_000), "cpu1", capacity_bytes=1 << 12, dma=True)
HOME = PLATFORM.activations


def on(processor: str, name: str, inputs: str, outputs: str) -> KernelCall:
    return replace(call(name, inputs, outputs), processor=processor)


FETCH = Transfer(name="fetch", source="x", target="a", processor="cpu1")
SPILL = Transfer(name="spill", source="b", target="c", processor="cpu1")
GOOD = FETCH, on("cpu1", "inner", "a", "b"), SPILL, on("cpu", "last", "c", "y")


def made(*steps: Step) -> Program:
    """Tensors a and b are in the memory of cpu1 alone."""
    plain = program(dict.fromkeys("xabcy", 16), *steps)
    near = {name: replace(tensor, memory="own" if name in "ab" else HOME) for name, tensor in plain.tensors.items()}
    return replace(plain, tensors=near)


def check(one: Program, platform: Platform = PLATFORM) -> None:
    assignment = {step.name: name for step in one.steps if (name := processor_of(step))}
    parallel: ParallelProgram = share_steps(one, lists_of(one, ("cpu", "cpu1"), assignment))
    planned, plan = plan_memory(parallel.program, activations=HOME)
    check_reach(planned, plan, platform, replace(parallel, program=planned))


def refused(one: Program, platform: Platform = PLATFORM) -> str:
    with pytest.raises(PlanRejected) as raised:
        check(one, platform)
    return str(raised.value)


def test_a_core_works_in_its_own_memory() -> None:
    check(made(*GOOD))


@pytest.mark.parametrize(
    ("place", "fault", "said"),
    [
        (0, replace(FETCH, processor=""), r"step 0 (fetch): cpu accesses a in own, but has no link to own."),
        (1, on("cpu", "inner", "a", "b"), r"step 1 (inner): cpu accesses a in own, but has no link to own."),
        (1, on("cpu", "inner", "x", "b"), r"step 1 (inner): cpu accesses b in own, but has no link to own."),
        (2, replace(SPILL, processor="cpu"), r"step 2 (spill): cpu accesses b in own, but has no link to own."),
        (3, on("cpu", "last", "b", "y"), r"step 3 (last): cpu accesses b in own, but has no link to own."),
    ],
)
def test_a_step_on_the_other_core_is_refused(place: int, fault: Step, said: str) -> None:
    steps = [fault if index == place else step for index, step in enumerate(GOOD)]
    assert refused(made(*steps)) == said


def test_scratch_lies_where_its_step_reaches_it() -> None:
    last = on("cpu", "last", "c", "y")
    scratchy = replace(last, implementation=replace(last.implementation, scratch_bytes=32), scratch_memory="own")
    assert refused(made(*GOOD[:3], scratchy)) == (
        "step 3 (last): cpu accesses last_scratch in own, but has no link to own."
    )


def test_constants_lie_where_their_step_reaches_them() -> None:
    last = replace(on("cpu", "last", "c", "y"), constants=("w",))
    weights = Constant(name="w", data=np.zeros(4, np.int8), memory="own", note="weights")
    one = replace(made(*GOOD[:3], last), constants={"w": weights})
    assert refused(one) == "step 3 (last): cpu accesses w in own, but has no link to own."
    check(replace(one, constants={"w": replace(weights, memory=PLATFORM.weights)}))


def test_an_accelerator_is_who_touches_what_it_computes() -> None:
    """Its call is a step of the first core, which reaches everything here."""
    npu = with_accelerator(host_cores(1_000_000))
    own = replace(npu.memory(HOME), name="own")
    link = replace(npu.links[0], target="own")
    platform = replace(npu, memories=(*npu.memories, own), links=(*npu.links, link))
    driver = DriverCall(processor="npu", header="npu.h", wait="npu_wait")
    plain = call("inner", "a", "b")
    started = replace(plain, implementation=replace(plain.implementation, driver=driver))
    one = made(replace(FETCH, processor=""), started, replace(SPILL, processor=""), call("last", "c", "y"))
    plan: MemoryPlan
    one, plan = plan_memory(one, activations=HOME)
    with pytest.raises(PlanRejected, match=r"step 1 \(inner\): npu accesses a in own, but has no link to own"):
        check_reach(one, plan, platform)
    check_reach(one, plan, replace(platform, links=(*platform.links, replace(link, source="npu"))))


def test_a_dma_moves_where_its_links_lead() -> None:
    flight = replace(FETCH, number=0, processor="")
    one = made(flight, on("cpu", "beside", "x", "c"), on("cpu", "last", "c", "y"))
    assert refused(one) == f"step 0 (fetch): no DMA of {PLATFORM.name} copies from {HOME} to own."
    check(one, BY_DMA)


def test_a_copy_runs_in_the_list_of_the_core_that_makes_it() -> None:
    one = made(*GOOD)
    parallel = share_steps(one, {"cpu": ["fetch", "last"], "cpu1": ["inner", "spill"]})
    planned, plan = plan_memory(parallel.program, activations=HOME)
    with pytest.raises(PlanRejected, match=r"cpu, entry 0: runs step 0 \(fetch\), a copy for cpu1\."):
        validate_order(replace(parallel, program=planned), plan)
