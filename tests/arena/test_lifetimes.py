"""Live ranges counted by hand: steps of tensors, of parts, of what runs keep, and bytes that matter at each step."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.arena.lifetimes import extents, extents_while, lifetimes
from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.plan import plan_memory
from codegen_c.program.program import Program
from codegen_c.program.tensors import Part
from tests.arena.programs import call, program
from tests.arena.states import in_place, kept, window


def with_parts(made: Program, whole: str, parts: dict[str, tuple[int, int]]) -> Program:
    """The program with tensors as parts of one: first element and number of them."""
    tensors = {
        name: replace(made.tensors[name], shape=(count,), part=Part(tensor=whole, first=first))
        for name, (first, count) in parts.items()
    }
    return replace(made, tensors=dict(made.tensors) | tensors)


def test_from_the_first_write_to_the_last_read() -> None:
    made = program(
        {name: 8 for name in "xabuy"},
        call("s0", "x", "a"), call("s1", "a", "b u"), call("s2", "a b", "y"), call("s3", "b", "u"),
    )  # fmt: skip
    assert lifetimes(made) == {"x": (0, 1), "a": (0, 3), "b": (1, 4), "u": (1, 4), "y": (2, 4)}
    assert extents(made) == {}


def test_inputs_that_nothing_reads_and_programs_without_steps() -> None:
    assert lifetimes(program({"x": 8, "z": 8, "y": 8}, call("s0", "x", "y"), inputs="x z")) == {
        "x": (0, 1), "z": (0, 1), "y": (0, 1),
    }  # fmt: skip
    assert lifetimes(program({"x": 8}, outputs="x")) == {"x": (0, 1)}


def test_an_output_of_parts_lives_to_the_end() -> None:
    """Nothing writes y but its halves, both before the last step."""
    steps = call("s0", "x", "top"), call("s1", "x", "bottom"), call("s2", "x", "z")
    made = program({"x": 8, "y": 16, "top": 8, "bottom": 8, "z": 8}, *steps, outputs="y z")
    made = with_parts(made, "y", {"top": (0, 8), "bottom": (8, 8)})
    assert lifetimes(made) == {"x": (0, 3), "y": (0, 3), "top": (0, 1), "bottom": (1, 2), "z": (2, 3)}
    assert extents(made) == {"y": [(0, 8), (0, 16), (0, 16)]}


def test_all_bytes_of_what_is_kept_for_longer_matter() -> None:
    """w and its halves live for two steps of three; kept, w lives for all of them."""
    made = program(
        {"x": 8, "w": 16, "p": 8, "q": 8, "a": 8, "y": 8},
        call("s0", "x", "p"), call("s1", "x p", "q"), call("s2", "w", "a"), call("s3", "a", "y"),
    )  # fmt: skip
    made = with_parts(made, "w", {"p": (0, 8), "q": (8, 8)})
    assert extents_while(made, {"w": (0, 3)}) == {"w": [(0, 8), (0, 16), (0, 16)]}
    assert extents_while(made, {"w": (0, 4)}) == {}
    _, plan = plan_memory(made, activations="ram", kept=("w",))
    assert not any(meets(plan, "w", name) for name in plan.placements if name not in ("w", "p", "q"))


def test_nothing_lies_in_the_gaps_of_what_is_kept() -> None:
    """y is alive from the first step to the last by its halves alone. Before the last one writes q, others lie there,
    but not where y is kept."""
    made = program(
        {"x": 16, "y": 32, "p": 16, "a": 16, "b": 16, "q": 16},
        call("s0", "x", "p"), call("s1", "p", "a"), call("s2", "a", "b"), call("s3", "b", "q"),
    )  # fmt: skip
    made = with_parts(made, "y", {"p": (0, 16), "q": (16, 16)})
    assert lifetimes(made)["y"] == (0, 4) and extents(made) == {"y": [(0, 16), (0, 16), (0, 16), (0, 32)]}
    _, plan = plan_memory(made, activations="ram")
    assert plan.arena_bytes == 48 and meets(plan, "y", "a")
    _, plan = plan_memory(made, activations="ram", kept=("y",))
    assert not any(meets(plan, "y", name) for name in "xab")
    assert [(arena.num_bytes, arena.lower_bound_bytes) for arena in plan.arenas] == [(64, 64)]


def meets(plan: MemoryPlan, one: str, other: str) -> bool:
    """True where two tensors have bytes in common."""
    first, second = plan.placements[one], plan.placements[other]
    return first.offset < second.offset + second.num_bytes and second.offset < first.offset + first.num_bytes


def test_bytes_of_parts_matter_until_they_were_read() -> None:
    """The middle part is read last, those beside it before; elements have two bytes."""
    made = program(
        {"x": 8, "w": 24, "p": 4, "q": 4, "r": 4, "a": 8, "b": 8, "y": 8},
        call("s0", "x", "w"), call("s1", "p", "a"), call("s2", "r a", "b"), call("s3", "q b", "y"),
    )  # fmt: skip
    made = with_parts(made, "w", {"p": (0, 4), "q": (4, 4), "r": (8, 4)})
    halves = {name: replace(made.tensors[name], dtype="int16") for name in "wpqr"}
    made = replace(made, tensors=dict(made.tensors) | halves | {"w": replace(halves["w"], shape=(12,))})
    assert lifetimes(made)["w"] == (0, 4)
    assert extents(made) == {"w": [(0, 24), (0, 24), (8, 24), (8, 16)]}


def test_states_matter_always() -> None:
    made = in_place()
    assert lifetimes(made) == {"x": (0, 2), "s": (0, 3), "n": (1, 3), "a": (0, 3), "y": (2, 3)}
    assert extents(made) == {"s": [(0, 16)] * 3}


def test_a_window_that_moves_up_is_longer_while_it_is_used() -> None:
    """Twelve bytes of the sixteen are the next run's; the others matter from the push to the move."""
    made = window("shift")
    assert extents(replace(made, states=(replace(made.states[0], left="old"),))) == {"s": [(0, 16)] * 3}
    before, after = call("before", "x", "b"), call("after", "y", "c")
    tensors = dict(made.tensors) | {name: replace(made.tensors["x"], name=name) for name in ("b", "c")}
    made = replace(made, steps=(before, *made.steps, after), tensors=tensors)
    made = replace(made, states=(replace(made.states[0], left="old"),))
    assert extents(made) == {"s": [(0, 12), (0, 16), (0, 16), (0, 16), (0, 12)]}


def test_a_window_whose_end_nothing_uses_keeps_what_is_left() -> None:
    made = program(
        {"x": 8, "s": 16, "old": 12, "y": 8, "z": 4, "end": 4}, call("s0", "x old", "y"), call("s1", "y", "z")
    )
    made = kept(made, "shift", "old", {"old": (0, 12), "end": (12, 4)})
    assert extents(made) == {"s": [(0, 12), (0, 12)]}
    reading = replace(made, steps=(*made.steps, call("s2", "end", "z")))
    assert extents(reading) == {"s": [(0, 12), (0, 12), (0, 16)]}


def test_parts_of_a_state_are_counted_in_its_elements() -> None:
    """Three of four elements of two bytes are kept; the last is touched by the second of three steps."""
    steps = call("s0", "x old", "y"), call("s1", "y", "end"), call("s2", "y", "z")
    made = program({"x": 8, "s": 4, "old": 3, "y": 8, "z": 8, "end": 1}, *steps, outputs="y z")
    made = kept(made, "shift", "old", {"old": (0, 3), "end": (3, 1)})
    wide = {name: replace(made.tensors[name], dtype="int16") for name in ("s", "old", "end")}
    assert extents(replace(made, tensors=dict(made.tensors) | wide)) == {"s": [(0, 6), (0, 8), (0, 6)]}


def test_parts_of_another_tensor_make_no_state_longer() -> None:
    made = program(
        {"x": 8, "s": 16, "old": 12, "y": 8, "w": 32, "half": 16}, call("s0", "x old", "w"), call("s1", "half", "y")
    )
    made = with_parts(kept(made, "shift", "old", {"old": (0, 12)}), "w", {"half": (16, 16)})
    assert extents(made) == {"w": [(0, 32), (16, 32)], "s": [(0, 12), (0, 12)]}
