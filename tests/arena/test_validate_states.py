"""A planted fault for each rule about what runs keep, beside programs that hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.program.program import Program, Transfer
from codegen_c.program.tensors import KeptState, Part, Update
from tests.arena.programs import call, program
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.platform import STATE_MEMORY


def kept(made: Program, update: Update, left: str, parts: dict[str, tuple[int, int]], pushed: int = 0) -> Program:
    """The program whose tensor s is a state. parts: of s, by tensor: first element and number of them."""
    size = made.tensors["s"].num_elements
    tensors = dict(made.tensors) | {"s": replace(made.tensors["s"], memory=STATE_MEMORY, role="state")}
    for name, (first, count) in parts.items():
        part = Part(tensor="s", first=first)
        tensors[name] = replace(made.tensors[name], shape=(count,), memory=STATE_MEMORY, part=part)
    state = KeptState(source="s", tensor="s", initial=np.zeros(size, np.uint8), left=left, update=update, pushed=pushed)
    return replace(made, tensors=tensors, states=(state,), state_home="ram")


def in_place(*, in_place: tuple[int, ...] = (0,), late: bool = False) -> Program:
    """x, s -> n, written over s; late: somebody reads s behind that."""
    writer = call("push", "s x", "n")
    writer = replace(writer, implementation=replace(writer.implementation, in_place=in_place))
    reader, last = call("read", "s", "a"), call("last", "a n", "y")
    steps = (writer, reader, last) if late else (reader, writer, last)
    made = program({"x": 16, "s": 16, "n": 16, "a": 16, "y": 16}, *steps)
    return kept(made, "in place", "n", {"n": (0, 16)})


def window(update: Update, *, moved: bool = True, early: bool = False) -> Program:
    """Four of the sixteen elements of s are new in each run."""
    push, read = call("push", "x", "n"), call("read", "s", "y")
    steps = [read, push] if early else [push, read]
    sizes = {"x": 4, "s": 16, "n": 4, "y": 16, "old": 12, "end": 12}
    parts = {"n": (12, 4)}
    if update == "shift" and moved:
        steps.append(Transfer(name="move", source="end", target="old"))  # type: ignore[arg-type]
        parts |= {"old": (0, 12), "end": (4, 12)}
    made = program({name: size for name, size in sizes.items() if name in ("x", "s", "y") or name in parts}, *steps)
    return kept(made, update, "s", parts, pushed=4)


def rejected(made: Program) -> str:
    with pytest.raises(PlanRejected) as raised:
        validate(made, plan_memory(made, activations="ram")[1])
    return str(raised.value)


@pytest.mark.parametrize("made", [in_place(), window("ring"), window("shift")])
def test_states_that_hold(made: Program) -> None:
    plan = plan_memory(made, activations="ram")[1]
    validate(made, plan)
    assert plan.state_bytes == 16 and plan.bytes_in("ram") == plan.arena_bytes


def test_a_state_read_behind_its_change() -> None:
    assert rejected(in_place(late=True)) == "step 1 (read): reads state s when it is not what the step needs."


def test_a_state_written_by_a_kernel_that_still_reads_it() -> None:
    assert rejected(in_place(in_place=())) == "step 1 (push): writes state s while it still reads it."


def test_a_window_read_before_its_new_rows() -> None:
    assert rejected(window("ring", early=True)) == "step 0 (read): reads state s when it is not what the step needs."


def test_a_ring_that_a_run_does_not_push_into() -> None:
    made = window("ring")
    made = replace(made, states=(replace(made.states[0], pushed=5),))
    assert rejected(made) == "state s: a run leaves 4 elements of 16 in it."


def test_a_state_that_is_never_left() -> None:
    made = in_place()
    steps = tuple(step for step in made.steps if step.name == "read")
    made = replace(made, steps=(*steps, call("last", "a", "y")))
    assert rejected(made) == "state s: a run leaves 0 elements of 16 in it."


def test_a_whole_state_written_over() -> None:
    made = in_place()
    made = replace(made, steps=(*made.steps, call("again", "x", "s")))
    assert rejected(made) == "step 3 (again): writes over all of state s, which only parts may be."


def test_a_part_of_a_window_read_before_it_is_written() -> None:
    made = window("ring")
    made = replace(made, steps=(call("early", "n", "y"), *made.steps))
    assert rejected(made) == "step 0 (early): reads n, a part of state s, before it is written."


def test_two_states_in_one_tensor() -> None:
    made = in_place()
    made = replace(made, states=(*made.states, replace(made.states[0], source="t")))
    assert rejected(made) == "t and s are kept in one tensor, s."


def test_a_state_outside_of_what_runs_keep() -> None:
    made = in_place()
    made = replace(made, tensors={**made.tensors, "s": replace(made.tensors["s"], memory="ram")})
    assert "does not lie where runs keep states" in rejected(made)
