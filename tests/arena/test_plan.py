"""Lifetimes, placements, and when a memory is too small."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.arena.lifetimes import lifetimes
from codegen_c.arena.plan import check_capacity, plan_memory
from codegen_c.arena.validate import validate
from codegen_c.program.program import Program
from codegen_c.program.steps import Loop, Transfer
from codegen_c.program.tensors import Constant
from tests.arena.programs import call, program
from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.platform import Platform

CHAIN = program({"x": 64, "a": 128, "b": 32, "y": 16}, call("s0", "x", "a"), call("s1", "a", "b"), call("s2", "b", "y"))


def test_lifetimes_of_a_chain() -> None:
    """Inputs are there from the beginning, a result until its last reader, outputs until the end."""
    assert lifetimes(CHAIN) == {"x": (0, 1), "a": (0, 2), "b": (1, 3), "y": (2, 3)}


def test_an_early_output_lives_to_the_end_and_an_unread_input_for_a_step() -> None:
    early = program(
        {"x": 16, "u": 16, "y": 16, "z": 16}, call("s0", "x", "y"), call("s1", "x", "z"), inputs="x u", outputs="y z"
    )
    assert lifetimes(early) == {"x": (0, 2), "u": (0, 1), "y": (0, 2), "z": (1, 2)}


def test_a_result_that_nobody_reads_lives_during_its_step() -> None:
    spare = program({"x": 16, "y": 16, "d": 16}, call("s0", "x", "y d"), call("s1", "x", "y"))
    assert lifetimes(spare)["d"] == (0, 1)
    validate(*plan_memory(spare, activations="ram"))


def test_what_a_loop_touches_lives_during_the_whole_of_it() -> None:
    body = (call("c0", "x", "r"), call("c1", "r", "y"))
    looped = program({"x": 16, "r": 16, "y": 16}, Loop(name="l", count=3, body=body), call("s", "y", "y"))
    assert lifetimes(looped) == {"x": (0, 1), "r": (0, 1), "y": (0, 2)}
    validate(*plan_memory(looped, activations="ram"))


def test_scratch_is_placed_for_its_step_only() -> None:
    with_scratch = program({"x": 64, "y": 16}, call("s0", "x", "y", scratch_bytes=100), call("s1", "x", "y"))
    _, plan = plan_memory(with_scratch, activations="ram")
    scratch = plan.placements["s0_scratch"]
    assert (scratch.num_bytes, scratch.begin, scratch.end, scratch.is_scratch) == (100, 0, 1, True)
    assert "s1_scratch" not in plan.placements and plan.lower_bound_bytes == 64 + 16 + 100
    validate(with_scratch, plan)


def test_memories_are_planned_apart() -> None:
    split = program(
        {"x": 64, "a": 64, "y": 16}, Transfer(name="t", source="x", target="a"), call("s", "a", "y"),
        memory={"a": "dtcm"},
    )  # fmt: skip
    _, plan = plan_memory(split, activations="ram")
    assert {arena.memory: arena.num_bytes for arena in plan.arenas} == {"ram": 64, "dtcm": 64}
    assert plan.placements["a"].offset == plan.placements["y"].offset == 0 and plan.arena_bytes == 128
    validate(split, plan)


def test_what_the_caller_holds_has_no_place() -> None:
    _, plan = plan_memory(CHAIN, activations="ram", held_by_caller=["x", "y"])
    assert set(plan.placements) == {"a", "b"}
    validate(CHAIN, plan)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Any order of steps, each reading what is there and writing a tensor of its own."""
    names, steps = ["x"], []
    for index in range(draw(st.integers(1, 8))):
        read = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        written = f"t{index}"
        steps.append(call(f"s{index}", " ".join(read), written, draw(st.sampled_from((0, 0, 7, 64)))))
        names.append(written)
    outputs = draw(st.lists(st.sampled_from(names[1:]), min_size=1, unique=True))
    sizes = {name: draw(st.integers(1, 200)) for name in names}
    return program(sizes, *steps, outputs=" ".join(outputs))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(programs())
def test_any_program(made: Program) -> None:
    """Valid, aligned, never below the bound, and the same again."""
    _, plan = plan_memory(made, activations="ram")
    validate(made, plan)
    assert all(place.offset % ALIGNMENT_BYTES == 0 for place in plan.placements.values())
    assert plan.lower_bound_bytes <= plan.arena_bytes
    assert plan == plan_memory(made, activations="ram")[1]


def test_a_plan_that_fits_passes() -> None:
    platform = Platform.load("cortex_m4")
    check_capacity(CHAIN, plan_memory(CHAIN, activations="ram")[1], _with_memory(platform, capacity_bytes=192))


def test_too_small_a_memory_names_step_tensors_and_limits() -> None:
    platform = _with_memory(Platform.load("cortex_m4"), capacity_bytes=191)
    with pytest.raises(DoesNotFit) as raised:
        check_capacity(CHAIN, plan_memory(CHAIN, activations="ram")[1], platform)
    message = str(raised.value)
    for part in ("s0: 192 B are live at step 0", "a (128 B), x (64 B)", "ram of cortex_m4 holds 191 B", "Try"):
        assert part in message


def test_too_small_a_memory_for_the_weights() -> None:
    constant = Constant(name="w", data=np.zeros(50, np.float32), memory="ram")
    heavy = replace(CHAIN, constants={"w": constant})
    with pytest.raises(DoesNotFit, match=r"its weights are 200 B; ram of cortex_m4 holds 192 B"):
        check_capacity(
            heavy,
            plan_memory(heavy, activations="ram")[1],
            _with_memory(Platform.load("cortex_m4"), capacity_bytes=192),
        )


def _with_memory(platform: Platform, *, capacity_bytes: int) -> Platform:
    """The platform with its activations in a memory `ram` of that size."""
    memory = replace(platform.memory(platform.activations), name="ram", capacity_bytes=capacity_bytes)
    return replace(platform, memories=(*(m for m in platform.memories if m.name != "ram"), memory))


def large_graph(reach: int) -> Program:
    """A thousand steps, each of which reads up to three of the last `reach` tensors."""
    rng = random.Random(reach)
    sizes, steps = {"x": 4096}, []
    for index in range(1000):
        recent = list(sizes)[-reach:]
        reads = rng.sample(recent, min(len(recent), rng.randint(1, 3)))
        sizes[f"t{index}"] = 16 * rng.randrange(1, 4096)
        steps.append(call(f"s{index}", " ".join(reads), f"t{index}"))
    unread = set(sizes) - {name for step in steps for name in step.inputs}
    return program(sizes, *steps, outputs=" ".join(sorted(unread)))


@pytest.mark.parametrize("reach", [1, 10])
def test_a_thousand_operators_reach_the_bound(reach: int) -> None:
    planned, plan = plan_memory(large_graph(reach), activations="ram")
    validate(planned, plan)
    assert plan.arena_bytes == plan.lower_bound_bytes and plan.arenas[0].proved
