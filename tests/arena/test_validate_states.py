"""A planted fault for each rule about what runs keep, beside programs that hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.program.program import Program
from tests.arena.programs import call
from tests.arena.states import in_place, next_value, window
from tvm_ext.core.errors import PlanRejected


def rejected(made: Program) -> str:
    with pytest.raises(PlanRejected) as raised:
        validate(made, plan_memory(made, activations="ram")[1])
    return str(raised.value)


@pytest.mark.parametrize("made", [in_place(), next_value(), window("ring"), window("shift")])
def test_states_that_hold(made: Program) -> None:
    plan = plan_memory(made, activations="ram")[1]
    validate(made, plan)
    assert plan.state_bytes == 16 and plan.bytes_in("ram") == plan.arena_bytes


def test_a_state_read_behind_its_change() -> None:
    assert rejected(in_place(late=True)) == "step 1 (read): reads state s when it does not hold the needed value."


def test_a_state_written_by_a_kernel_that_still_reads_it() -> None:
    assert rejected(in_place(in_place=())) == "step 1 (push): writes state s while it still reads it."


@pytest.mark.parametrize("next_states", [(), ((0, 1),), ((1, 0),)])
def test_a_state_written_by_an_output_that_is_not_its_next_value(next_states: tuple[tuple[int, int], ...]) -> None:
    assert rejected(next_value(next_states)) == "step 0 (cell): writes state s while it still reads it."


def test_a_window_read_before_its_new_rows() -> None:
    assert (
        rejected(window("ring", early=True)) == "step 0 (read): reads state s when it does not hold the needed value."
    )


def test_a_ring_that_a_run_does_not_push_into() -> None:
    made = window("ring")
    made = replace(made, states=(replace(made.states[0], pushed=5),))
    assert rejected(made) == "state s: a run writes 4 of its 16 elements, not the elements that it must update."


def test_a_state_that_is_never_left() -> None:
    made = in_place()
    steps = tuple(step for step in made.steps if step.name == "read")
    made = replace(made, steps=(*steps, call("last", "a", "y")))
    assert rejected(made) == "state s: a run writes 0 of its 16 elements, not the elements that it must update."


def test_a_whole_state_written_over() -> None:
    made = in_place()
    made = replace(made, steps=(*made.steps, call("again", "x", "s")))
    assert rejected(made) == "step 3 (again): overwrites all of state s, not a part of it."


def test_a_part_of_a_window_read_before_it_is_written() -> None:
    made = window("ring")
    made = replace(made, steps=(call("early", "n", "y"), *made.steps))
    assert rejected(made) == "step 0 (early): reads n, a part of state s, before it is written."


def test_two_states_in_one_tensor() -> None:
    made = in_place()
    made = replace(made, states=(*made.states, replace(made.states[0], source="t")))
    assert rejected(made) == "t and s are kept in the same tensor s."


def test_a_state_outside_of_what_runs_keep() -> None:
    made = in_place()
    made = replace(made, tensors={**made.tensors, "s": replace(made.tensors["s"], memory="ram")})
    assert "is not in the memory of states" in rejected(made)
