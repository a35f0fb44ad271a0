"""Intermediates where states have bytes that they do not keep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen_c.arena import plan
from codegen_c.arena.lifetimes import extents, lifetimes
from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.plan import plan_memory, with_intermediates_in_states
from codegen_c.arena.validate import validate
from codegen_c.program.program import Program
from codegen_c.program.steps import Transfer
from tests.arena.programs import call, program
from tests.arena.states import kept
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.platform import STATE_MEMORY


def moving_up(*, before: int = 4, behind: int = 4) -> Program:
    """x -> b -> n, the last four bytes of s; s -> a; s moves up; a -> c -> y. before, behind: bytes of b and c."""
    sizes = {"x": 4, "b": before, "n": 4, "s": 16, "a": 4, "c": behind, "y": 4, "old": 12, "end": 12}
    steps = (
        call("first", "x", "b"), call("push", "b", "n"), call("read", "s", "a"),
        Transfer(name="move", source="end", target="old"), call("behind", "a", "c"), call("last", "c", "y"),
    )  # fmt: skip
    parts = {"n": (12, 4), "old": (0, 12), "end": (4, 12)}
    return kept(program(sizes, *steps), "shift", "old", parts)


def planned(made: Program) -> tuple[Program, MemoryPlan]:
    found, placed = plan_memory(made, activations="ram")
    validate(found, placed)
    return found, placed


def test_bytes_beyond_what_is_kept_matter_from_their_write_to_the_move() -> None:
    assert extents(moving_up())["s"] == [(0, 12), (0, 16), (0, 16), (0, 16), (0, 12), (0, 12)]


def test_what_lives_behind_the_move_lies_there() -> None:
    found, placed = planned(moving_up())
    memories = {name: found.tensors[name].memory for name in "abc"}
    assert memories == {"a": "ram", "b": "ram", "c": STATE_MEMORY}, "a and b live while the new rows do"
    assert placed.state_bytes == 16 and placed.placements["c"].offset == 12


def test_what_is_larger_than_the_room_stays() -> None:
    found, _ = planned(moving_up(behind=8))
    assert found.tensors["c"].memory == "ram"


def test_pinned_tensors_stay() -> None:
    made = moving_up()
    assert with_intermediates_in_states(made, lifetimes(made), {"c"}).tensors["c"].memory == "ram"


def test_a_state_in_another_memory_has_no_guests() -> None:
    made = replace(moving_up(), state_home="retained")
    assert with_intermediates_in_states(made, lifetimes(made), ()).tensors["c"].memory == "ram"


@pytest.mark.parametrize(("name", "what"), [("c", "over what is kept"), ("a", "over the new rows")])
def test_a_guest_over_bytes_that_matter_is_rejected(name: str, what: str) -> None:
    made = moving_up()
    guest = replace(made.tensors[name], memory=STATE_MEMORY)
    made = replace(made, tensors={**made.tensors, name: guest})
    _, whole = plan_memory(made, activations="ram")
    offset = 0 if what == "over what is kept" else 12
    moved = replace(whole.placements[name], offset=offset)
    with pytest.raises(PlanRejected, match=r"of (s|old|end|n|a) do not hold its value but hold"):
        validate(made, replace(whole, placements={**whole.placements, name: moved}))


def test_guests_do_not_make_the_state_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is what is saved and retained in sleep: three guests would save 24 bytes in all, and add eight."""
    made = moving_up()
    more = {name: replace(made.tensors["c"], name=name, source=name) for name in "de"}
    steps = (*made.steps[:4], call("behind", "a", "c d e"), call("last", "c d e", "y"))
    made = replace(made, tensors={**made.tensors, **more}, steps=steps)

    def everywhere(program: Program, *_: object) -> Program:
        guests = {name: replace(program.tensors[name], memory=STATE_MEMORY) for name in "cde"}
        return replace(program, tensors={**program.tensors, **guests})

    monkeypatch.setattr(plan, "with_intermediates_in_states", everywhere)
    found, placed = planned(made)
    assert placed.state_bytes == 16 and {found.tensors[name].memory for name in "cde"} == {"ram"}
