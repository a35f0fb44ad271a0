"""The validator replays sequences: rings that are too short, and sums that do not last, are rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from codegen_c.arena.memory_plan import Arena, MemoryPlan, Placement
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.kernels.contract import Spatial
from codegen_c.kernels.shared.window import accumulated
from codegen_c.program.program import Program
from codegen_c.program.sequences import in_series
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Part, Ring
from tests.arena.programs import call, program
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.row_access import RowAccess

ROWS = 6
SAME_ROW = RowAccess.same(ROWS)
SLIDING = Spatial(output_rows=ROWS, inputs=(RowAccess.sliding(ROWS, ROWS, taps=3, padding=1),))


def spatial(step: KernelCall, rows: Spatial) -> KernelCall:
    return replace(step, implementation=replace(step.implementation, spatial=rows))


def pooled(stored: int = 3, body: tuple[KernelCall, ...] = ()) -> Program:
    """x -> a -> b -> y: two windows of three rows, and a pool that adds up b's rows in s; a and b are rings."""
    steps = body or (
        spatial(call("s0", "x", "a", scratch_bytes=16), SLIDING),
        spatial(call("s1", "a", "b"), SLIDING),
        spatial(call("s2", "b", "y s"), accumulated(ROWS)),
    )
    plain = program(
        {"x": 16 * ROWS, "a": 16 * ROWS, "b": 16 * ROWS, "y": 16, "s": 64},
        in_series("q", steps, (1,) * len(steps)),
    )
    rings = {name: Ring(rows=ROWS, stored=rows) for name, rows in (("a", stored), ("b", 1))}
    tensors = {name: replace(tensor, ring=rings.get(name)) for name, tensor in plain.tensors.items()}
    return replace(plain, tensors=tensors)


def plan(**changes: dict[str, Any]) -> MemoryPlan:
    """Everything beside everything: x 0, a 96, b 144, y 160, s 176, scratch 240; then changed as given."""
    places = {"x": (0, 96), "a": (96, 48), "b": (144, 16), "y": (160, 16), "s": (176, 64), "q_scratch": (240, 16)}
    placements = {
        name: Placement(
            name=name, memory="ram", offset=offset, num_bytes=size, begin=0, end=1, is_scratch=name == "q_scratch"
        )
        for name, (offset, size) in places.items()
    }
    placements |= {name: replace(placements[name], **change) for name, change in changes.items()}
    return MemoryPlan(
        placements=placements, arenas=(Arena(memory="ram", num_bytes=256, lower_bound_bytes=256, peak_step=0),)
    )


def rejected(made: MemoryPlan, of: Program) -> str:
    with pytest.raises(PlanRejected) as raised:
        validate(of, made)
    return str(raised.value)


def test_the_plan_as_it_stands() -> None:
    validate(pooled(), plan())


def test_the_planner_keeps_sums_apart() -> None:
    made, placed = plan_memory(pooled(), activations="ram")
    validate(made, placed)
    assert placed.bytes_in("ram") == 256


def test_rings_that_are_too_short() -> None:
    message = rejected(plan(a={"num_bytes": 32}), pooled(stored=2))
    assert message == "step 0 (q): s1 reads row 0 of a, which its bytes do not hold."


@pytest.mark.parametrize(("offset", "lost"), [(144, "row 0 of b"), (96, "row 0 of a")])
def test_sums_that_lie_in_rings(offset: int, lost: str) -> None:
    assert f"reads {lost}, which its bytes do not hold" in rejected(plan(y={"offset": offset}), pooled())


@pytest.mark.parametrize(("name", "offset"), [("s", 192), ("y", 240)])
def test_sums_that_are_written_over(name: str, offset: int) -> None:
    """By scratch: also where only the output is hit, as sums of floats lie there."""
    assert f"s2 accumulates in {name}, which was overwritten" in rejected(plan(**{name: {"offset": offset}}), pooled())


def test_nothing_follows_a_kernel_that_adds_up() -> None:
    body = (
        spatial(call("s0", "x", "a"), SLIDING),
        spatial(call("s1", "a", "b"), accumulated(ROWS)),
        spatial(call("s2", "b", "y"), accumulated(ROWS)),
    )
    assert "s1 accumulates rows, so no call may follow it" in rejected(plan(), pooled(body=body))


def test_rows_that_are_never_computed() -> None:
    """y reads three of a's six rows; where a is kept whole, what lies in the others would be anything."""
    half = Spatial(output_rows=3, inputs=(RowAccess.sliding(ROWS, 3, taps=1),))
    body = (spatial(call("s0", "x", "a"), SLIDING), spatial(call("s1", "a", "y"), half))
    made = program({"x": 16 * ROWS, "a": 16 * ROWS, "y": 48}, in_series("q", body, (1, 1)), outputs="y")
    _, placed = plan_memory(made, activations="ram")
    assert rejected(placed, made) == "step 0 (q): only 3 rows of a are computed."


def in_ring(*, lag: int, padding: int = 1, in_place: tuple[int, ...] = (0,)) -> Program:
    """x -> a -> b -> y; a is a ring of four rows, and row h of b lies where row h - lag of a does."""
    access = RowAccess.sliding(ROWS, ROWS, taps=1 + 2 * padding, padding=padding)
    sliding = Spatial(output_rows=ROWS, inputs=(access,))
    middle = spatial(call("s1", "a", "b"), sliding)
    body = (
        spatial(call("s0", "x", "a"), SLIDING),
        replace(middle, implementation=replace(middle.implementation, in_place=in_place)),
        spatial(call("s2", "b", "y"), Spatial(output_rows=ROWS, inputs=(SAME_ROW,))),
    )
    plain = program({name: 16 * ROWS for name in "xaby"}, in_series("q", body, (1, 1, 1)), outputs="y")
    tensors = plain.tensors | {
        "a": replace(plain.tensors["a"], ring=Ring(rows=ROWS, stored=4)),
        "b": replace(
            plain.tensors["b"], ring=Ring(rows=ROWS, stored=4, shift=-lag % 4), part=Part(tensor="a", first=0)
        ),
    }
    return replace(plain, tensors=tensors)


def ring_plan() -> MemoryPlan:
    places = {"x": (0, 96), "a": (96, 64), "b": (96, 64), "y": (160, 96)}
    return MemoryPlan(
        placements={
            name: Placement(
                name=name, memory="ram", offset=offset, num_bytes=size, begin=0, end=1,
                part_of="a" if name == "b" else None,
            )
            for name, (offset, size) in places.items()
        },
        arenas=(Arena(memory="ram", num_bytes=256, lower_bound_bytes=256, peak_step=0),),
    )  # fmt: skip


def test_a_ring_inside_a_ring() -> None:
    """In the slot of the row before, read in place for the last time, or of one more before, which nobody reads."""
    validate(in_ring(lag=1), ring_plan())
    validate(in_ring(lag=2, in_place=()), ring_plan())


@pytest.mark.parametrize("lag", [0, 3])
def test_a_ring_inside_a_ring_in_the_wrong_slots(lag: int) -> None:
    assert "which its bytes do not hold" in rejected(ring_plan(), in_ring(lag=lag))


def test_a_ring_inside_a_ring_of_a_kernel_that_is_not_in_place() -> None:
    assert "s1 reads row 0 of a, which its bytes do not hold" in rejected(ring_plan(), in_ring(lag=1, in_place=()))
