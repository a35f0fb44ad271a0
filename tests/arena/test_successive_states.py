"""States in pipelines: one place and stage, found as where inputs come one at a time; planted faults are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.validate_successive import StatesInTurn, validate_successive
from codegen_c.program.parallel import ParallelProgram
from codegen_c.program.phases import (
    check_stages,
    crossing_states,
    processors_touching,
    with_copies_of_states,
    with_phases,
)
from codegen_c.program.program import Program
from codegen_c.program.share_steps import share_steps
from codegen_c.program.steps import Loop, Transfer, WriteIndex
from codegen_c.program.tensors import Part, Ring, Tensor
from tests.arena.programs import call, program
from tests.arena.states import kept
from tests.support.pipelines import in_stages
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.platform import STATE_MEMORY

Shared = tuple[ParallelProgram, MemoryPlan]


def overwritten() -> Program:
    """x -> a in the first stage; a, s -> n over s, and n -> y in the second one."""
    push = call("push", "s a", "n")
    push = replace(push, implementation=replace(push.implementation, in_place=(0,)))
    made = program({"x": 16, "a": 16, "s": 16, "n": 16, "y": 16}, call("s0", "x", "a"), push, call("last", "n", "y"))
    return kept(made, "in place", "n", {"n": (0, 16)})


def turning() -> Program:
    """x -> a in the first stage; a is pushed into a ring of four rows, and read with the older ones, in the second."""
    push, read = call("push", "a", "n"), replace(call("read", "s", "b"), rings=(WriteIndex(tensor="turn", shift=0),))
    sizes = {"x": 4, "a": 4, "n": 4, "s": 16, "b": 16, "y": 16}
    made = kept(
        program(sizes, call("s0", "x", "a"), push, read, call("last", "b", "y")), "ring", "s", {"n": (12, 4)}, pushed=1
    )
    ring = Ring(rows=4, stored=4, shift=0, write_index="turn")
    turn = Tensor(name="turn", source="turn", shape=(1,), dtype="uint16", memory=STATE_MEMORY, role="state")
    return replace(
        made, tensors=made.tensors | {"s": replace(made.tensors["s"], shape=(4, 4), ring=ring), "turn": turn}
    )


def staged(made: Program, second: Sequence[str]) -> Shared:
    lists = {"cpu0": [s.name for s in made.steps if s.name not in second], "cpu1": [*second]}
    return in_stages(made, lists)


def rejected(parallel: ParallelProgram, plan: MemoryPlan) -> str:
    with pytest.raises(PlanRejected) as raised:
        validate_successive(parallel, plan)
    return str(raised.value)


@pytest.mark.parametrize("second", [["push", "last"], ["s0"]])
def test_a_state_has_one_place(second: list[str]) -> None:
    """Its stage is the second one, or the take of the caller."""
    parallel, plan = staged(overwritten(), second)
    assert "a" in parallel.copies and not {"s", "n"} & {*parallel.copies}
    validate_successive(parallel, plan)


def test_a_ring_is_turned_by_its_stage() -> None:
    parallel, plan = staged(turning(), ["push", "read", "last"])
    assert parallel.advances == {"turn": 2}  # behind `read`
    validate_successive(parallel, plan)
    parallel, plan = staged(turning(), ["last"])
    assert parallel.advances == {"turn": 2} and "b" in parallel.copies
    validate_successive(parallel, plan)


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ({}, "step 2 (read) of cpu1 at input 1 reads 2 B of turn that do not hold its value for input 1."),
        ({"turn": 1}, "step 2 (read) of cpu1 at input 0 reads 2 B of turn that do not hold its value for input 0."),
        ({"turn": 0}, "step 0 (s0) of cpu0 (put) at input 1 may still write turn there: nothing orders the two."),
    ],
)
def test_a_ring_that_is_turned_at_another_time(turns: dict[str, int], said: str) -> None:
    """Never, before it was read, or in another stage."""
    parallel, plan = staged(turning(), ["push", "read", "last"])
    assert said in rejected(replace(parallel, advances=turns), plan)


def test_a_state_of_two_stages() -> None:
    """The stage that reads it is at the next input before the other one has changed it."""
    push = call("push", "b", "n")
    made = program({"x": 16, "s": 16, "b": 16, "n": 16, "y": 16}, call("s0", "s x", "b"), push, call("last", "n", "y"))
    made = kept(made, "in place", "n", {"n": (0, 16)})
    parallel = share_steps(made, {"cpu0": ["s0"], "cpu1": ["push", "last"]})
    with pytest.raises(PlanRejected, match="p: s would be kept by several stages of a pipeline"):
        check_stages(parallel)
    planned, plan = in_stages(overwritten(), {"cpu0": ["s0"], "cpu1": ["push", "last"]})
    own = with_phases(replace(parallel, program=replace(made, tensors=planned.program.tensors | made.tensors)), {}, 2)
    places = {name: plan.placements["a" if name == "b" else name] for name in ("x", "s", "b", "n", "y")}
    assert rejected(own, replace(plan, placements=plan.placements | places)) == (
        "step 0 (s0) of cpu0 (put) at input 1 reads 16 B of s that do not hold its value for input 1."
    )


def test_a_state_with_a_place_for_each_input_under_way() -> None:
    """An input would find what the one before the last has left."""
    parallel, plan = staged(overwritten(), ["push", "last"])
    tensors = dict(parallel.program.tensors)
    tensors |= {"s_phase1": replace(tensors["s"], name="s_phase1")}
    part = tensors["n"].part
    assert part is not None
    tensors |= {"n_phase1": replace(tensors["n"], name="n_phase1", part=replace(part, tensor="s_phase1"))}
    program_ = replace(parallel.program, tensors=tensors)
    moved = {
        f"{name}_phase1": replace(place, name=f"{name}_phase1", offset=place.offset + 16)
        for name in ("s", "n")
        if (place := plan.placements[name])
    }
    moved["n_phase1"] = replace(moved["n_phase1"], part_of="s_phase1")
    copies = {**parallel.copies, "s": ("s", "s_phase1"), "n": ("n", "n_phase1")}
    planted = with_phases(replace(parallel, program=program_, phases=(), copies={}), copies, 2)
    assert "state s: a run writes 0 of its" in rejected(planted, replace(plan, placements=plan.placements | moved))


def test_a_tensor_over_a_state() -> None:
    parallel, plan = staged(overwritten(), ["push", "last"])
    over = replace(plan.placements["x"], memory=STATE_MEMORY, offset=plan.placements["s"].offset)
    assert "16 B of x do not hold its value but hold s" in rejected(
        parallel, replace(plan, placements=plan.placements | {"x": over})
    )


def test_what_steps_write_has_a_number_of_its_own() -> None:
    """Less than that of any value of a tensor, another one for each step of each input and for turning the rings."""
    states = StatesInTurn(turning(), staged(turning(), ["last"])[1], 4)
    numbers = [states.number(turn, step) for turn in range(4) for step in range(5)]
    assert len(set(numbers)) == 20 and max(numbers) < -2


def test_processors_of_kernels_alone_touch_a_value() -> None:
    one, other = (replace(call(name, *ports), processor=name) for name, *ports in (("p", "x", "a"), ("q", "b", "y")))
    copy = Transfer(name="copy", source="a", target="b")
    looped = Loop(name="loop", count=1, body=(Transfer(name="in_loop", source="a", target="b"), other))
    made = program({"x": 16, "a": 16, "b": 16, "y": 16}, one, copy, looped)
    assert processors_touching(made, {"a"}) == {"p", "q"}
    assert processors_touching(made, {"x"}) == {"p"}
    assert processors_touching(replace(made, steps=(one, copy, other)), {"b"}) == {"q"}


def test_copies_run_where_the_state_is_used() -> None:
    """Also that of a state which no kernel uses: it is made of the other one."""
    made = program({"x": 16, "s": 16, "a": 16, "c": 16, "d": 16, "y": 16}, call("s0", "x", "a"), call("s1", "a s", "y"))
    keep = Transfer(name="keep_s", source="a", target="c")
    other = Transfer(name="keep_t", source="s", target="d")
    made = kept(replace(made, steps=(*made.steps, other, keep)), "copy", "a", {"c": (0, 16)})
    second = replace(made.states[0], source="t", tensor="t", left="s")
    state = replace(made.tensors["s"], name="t")
    late = replace(made.tensors["d"], memory=STATE_MEMORY, part=Part(tensor="t", first=0))
    made = replace(made, states=(*made.states, second), tensors=made.tensors | {"t": state, "d": late})
    assert with_copies_of_states(made, {"s1": "cpu1"}) == {"s1": "cpu1", "keep_s": "cpu1", "keep_t": "cpu1"}
    assert with_copies_of_states(made, {}) == {}
    more = replace(made, steps=(*made.steps, call("s2", "s", "y")))  # a kernel stays where it is
    assert "s2" not in with_copies_of_states(more, {"s1": "cpu1"})


def test_constants_that_runs_keep_may_be_read_by_all() -> None:
    made = program({"x": 16, "s": 16, "a": 16, "y": 16}, call("s0", "s x", "a"), call("s1", "a s", "y"))
    made = kept(made, "none", "s", {})
    assert crossing_states(made, [0, 1]) == []
    parallel, plan = in_stages(made, {"cpu0": ["s0"], "cpu1": ["s1"]})
    assert "s" not in parallel.copies
    validate_successive(parallel, plan)
