"""Operands that a processor overwrites in place while another computes, and the copies it waits for."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.arena.at_once import at_once, handed_over
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate_order import validate_order
from codegen_c.kernels.contract import Copy
from codegen_c.program.parallel import order_of
from codegen_c.program.program import Program
from codegen_c.program.share_steps import share_steps
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Part
from tests.arena.programs import call, program


def in_place(name: str, source: str, target: str) -> KernelCall:
    step = call(name, source, target)
    return replace(step, implementation=replace(step.implementation, in_place=(0,)))


def copied(name: str, source: str, target: str, count: int) -> KernelCall:
    step = call(name, source, target)
    copy = Copy(input=0, source_first=0, target_first=0, count=count)
    return replace(step, implementation=replace(step.implementation, copies=(copy,)))


LISTS = {"cpu0": ["a", "c"], "cpu1": ["b", "copy", "d"]}


def exchanged() -> Program:
    """x -> a, b on two cores; each computes half of the next value, and cpu1 also copies what cpu0 computed."""
    return program(
        {"x": 64, "left": 64, "right": 64, "seen": 64, "y": 64, "z": 64},
        in_place("a", "x", "left"), in_place("b", "x", "right"), copied("copy", "left", "seen", 64),
        in_place("c", "left", "y"), in_place("d", "right seen", "z"), outputs="y z",
    )  # fmt: skip


def test_a_copy_is_waited_for_and_its_source_overwritten() -> None:
    parallel = share_steps(exchanged(), LISTS)
    free = plan_memory(parallel.program, activations="ram", order=order_of(parallel))[1]
    ahead = handed_over(parallel.program, order_of(parallel))
    assert ahead == [("copy", "c")], "not a for b, which compute at once"
    waiting = share_steps(parallel.program, LISTS, ahead=ahead)
    assert waiting.num_signals == parallel.num_signals + 1
    _, plan = plan_memory(waiting.program, activations="ram", order=order_of(waiting))
    validate_order(waiting, plan)
    places = plan.placements
    assert places["y"].offset == places["left"].offset and plan.arena_bytes < free.arena_bytes


def halves() -> Program:
    """Each core replaces its half element by element, in one tensor that is read whole."""
    made = program(
        {"x": 128, "left": 64, "right": 64, "y": 64, "z": 64, "whole": 128, "out": 16},
        call("a", "x", "left"), call("b", "x", "right"), in_place("c", "left", "y"), in_place("d", "right", "z"),
        call("e", "whole", "out"), outputs="out",
    )  # fmt: skip
    parts = {
        name: replace(made.tensors[name], part=Part(tensor="whole", first=first))
        for name, first in (("y", 0), ("z", 64))
    }
    return replace(made, tensors={**made.tensors, **parts})


def test_halves_lie_where_the_whole_lies() -> None:
    parallel = share_steps(halves(), {"cpu0": ["a", "c", "e"], "cpu1": ["b", "d"]})
    uses = at_once(parallel.program, order_of(parallel))
    assert {one: distance for _, one, distance in uses.replaced()} == {"left": 0, "right": 64}
    _, plan = plan_memory(parallel.program, activations="ram", order=order_of(parallel))
    validate_order(parallel, plan)
    places = plan.placements
    assert places["left"].offset == places["whole"].offset and places["right"].offset == places["z"].offset
    assert plan.arena_bytes == 256, "x, and both halves in the place of their results"


def test_an_operand_larger_than_the_part_stays_apart() -> None:
    """Its last bytes would lie where the other core writes."""
    made = halves()
    larger = replace(made, tensors={**made.tensors, "left": replace(made.tensors["left"], shape=(80,))})
    parallel = share_steps(larger, {"cpu0": ["a", "c", "e"], "cpu1": ["b", "d"]})
    uses = at_once(parallel.program, order_of(parallel))
    assert [one for _, one, _ in uses.replaced()] == ["right"]
