"""The validator refuses programs that touch what an accelerator is at, start it twice, or forget it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.arena.validate_order import validate_order
from codegen_c.kernels.user_functions import DriverCall
from codegen_c.lowering.driver_waits import with_waits
from codegen_c.program.parallel import order_of
from codegen_c.program.program import Program
from codegen_c.program.share_steps import share_steps
from codegen_c.program.steps import DriverWait, KernelCall, Loop, Step
from tests.arena.lists import listed, placed
from tests.arena.programs import call, program
from tvm_ext.core.errors import PlanRejected

SIZES = dict.fromkeys(("x", "a", "b", "c", "y"), 16)


def started(name: str, inputs: str, outputs: str, processor: str = "npu") -> KernelCall:
    """A step that starts an accelerator."""
    plain = call(name, inputs, outputs)
    driver = DriverCall(processor=processor, header=f"{processor}.h", wait=f"{processor}_wait")
    return replace(plain, implementation=replace(plain.implementation, driver=driver))


CONV = started("conv", "x", "a")
NEXT = started("next", "b", "c")
WAIT, WAIT_NEXT = DriverWait(name="wait", call=CONV), DriverWait(name="wait_next", call=NEXT)
BESIDE, JOIN = call("beside", "x", "b"), call("join", "a b", "y")


def made(*steps: Step) -> Program:
    used = {name for step in steps if isinstance(step, KernelCall) for name in (*step.inputs, *step.outputs)}
    return program({name: size for name, size in SIZES.items() if name in used}, *steps)


GOOD = made(CONV, BESIDE, WAIT, JOIN)


def refused(one: Program, plan: MemoryPlan) -> str:
    with pytest.raises(PlanRejected) as raised:
        validate(one, plan)
    return str(raised.value)


def test_work_beside_an_accelerator_is_right() -> None:
    validate(GOOD, placed(GOOD))
    validate(*plan_memory(GOOD, activations="ram"))


def test_planned_memory_is_not_taken_before_the_wait() -> None:
    """`b` would fit where `x` was, had the accelerator read it by then."""
    chain = made(call("first", "x", "b"), started("conv", "b", "a"), call("beside", "x", "c"), call("join", "a c", "y"))
    woven = with_waits(chain)
    planned, plan = plan_memory(woven, activations="ram")
    validate(planned, plan)
    assert [step.name for step in woven.steps] == ["first", "conv", "beside", "wait_conv", "join"]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            (CONV, BESIDE, JOIN, WAIT),
            r"step 2 \(join\): reads 16 B of a, in memory ram, while npu may still be running conv, w",
        ),
        ((CONV, BESIDE, JOIN), r"step 2 \(join\): reads 16 B of a"),
        (
            (CONV, call("again", "x", "a"), BESIDE, WAIT, JOIN),
            r"step 1 \(again\): writes 16 B of a, in memory ram, while",
        ),
        (
            (BESIDE, CONV, NEXT, WAIT_NEXT, WAIT, JOIN),
            r"step 2 \(next\): starts npu while it is running conv; wait for it",
        ),
        ((WAIT, CONV, BESIDE, JOIN), r"step 0 \(wait\): waits for conv, which was not started"),
        (
            (BESIDE, CONV, WAIT_NEXT, JOIN, call("last", "b", "c")),
            r"step 2 \(wait_next\): waits for next, but npu is running conv",
        ),
        ((CONV, BESIDE, call("end", "b", "y")), r"the end: no step waits for conv"),
        (
            (Loop(name="loop", count=2, body=(CONV,)), WAIT, BESIDE, JOIN),
            r"step 0 \(loop\): starts conv on npu inside a",
        ),
        ((CONV, WAIT, WAIT, BESIDE, JOIN), r"step 2 \(wait\): waits for conv, which was not started"),
    ],
)
def test_planted_faults(steps: Sequence[Step], message: str) -> None:
    one = made(*steps)
    with pytest.raises(PlanRejected, match=message):
        validate(one, placed(one))


def test_bytes_of_an_input_are_not_written_before_the_wait() -> None:
    plan = placed(GOOD, b=placed(GOOD).placements["x"].offset)
    one = made(CONV, call("beside", "", "b"), WAIT, JOIN)
    assert "step 1 (beside): writes 16 B of b, which shares them with x, in memory ram, while npu may" in refused(
        one, plan
    )
    late = made(CONV, WAIT, call("beside", "", "b"), JOIN)
    validate(late, plan)


def test_bytes_of_an_output_are_not_used_from_the_start_on() -> None:
    one = made(call("first", "x", "b"), CONV, call("second", "b", "c"), WAIT, call("join", "a c", "y"))
    plan = placed(one, a=placed(one).placements["b"].offset)
    assert "step 2 (second): reads 16 B of b, which shares them with a, in memory ram, while npu" in refused(one, plan)


def test_two_accelerators_work_at_once() -> None:
    other = started("other", "x", "b", "dsp")
    one = made(CONV, other, DriverWait(name="w", call=other), WAIT, JOIN)
    validate(one, placed(one))


def test_another_core_waits_for_the_wait() -> None:
    """cpu1 reads what the accelerator made, and writes over what it read; cpu0 speaks for it."""
    shared = share_steps(GOOD, {"cpu0": ["conv", "wait", "join"], "cpu1": ["beside"]})
    planned, plan = plan_memory(shared.program, activations="ram", order=order_of(shared))
    validate_order(replace(shared, program=planned), plan)
    reader = made(CONV, WAIT, call("beside", "a", "b"), call("join", "b", "y"))
    shared = share_steps(reader, {"cpu0": ["conv", "wait", "join"], "cpu1": ["beside"]})
    assert shared.num_signals == 3 - 1  # behind the wait, and back
    early = listed(reader, "0 !0>1 1 ?1<1 3", "?0<0 2 !1>0")
    with pytest.raises(PlanRejected, match=r"step 2 \(beside\) of cpu1 reads 16 B of a, in memory ram, while step 1"):
        validate_order(early, placed(reader))
    between = made(CONV, call("beside", "b", "x"), WAIT, call("join", "a", "y"))
    with pytest.raises(
        PlanRejected, match=r"step 1 \(beside\) of cpu1 writes 16 B of x, .* while step 2 \(wait\) of cp"
    ):
        validate_order(listed(between, "0 !0>1 ?1<1 2 3", "?0<0 1 !1>0"), placed(between))


def test_one_list_calls_a_driver() -> None:
    both = made(BESIDE, CONV, WAIT, NEXT, WAIT_NEXT, call("join", "a c", "y"))
    lists = listed(both, "0 1 2 !0>1 ?1<1 5", "?0<0 3 4 !1>0")
    with pytest.raises(PlanRejected, match="cpu1, entry 1: calls the driver of npu, as cpu0 does; one processor must"):
        validate_order(lists, placed(both))


@pytest.mark.parametrize("at_once", [False, True])
def test_waits_stand_where_they_must(at_once: bool) -> None:
    plain = made(CONV, BESIDE, NEXT, call("join", "a c", "y"))
    names = [step.name for step in with_waits(plain, at_once=at_once).steps]
    late = ["conv", "beside", "wait_conv", "next", "wait_next", "join"]
    assert names == (["conv", "wait_conv", "beside", "next", "wait_next", "join"] if at_once else late)
    alone = made(BESIDE, call("end", "b", "y"))
    assert with_waits(alone) is alone
