"""The validator rejects every planted fault, and says which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from codegen_c.arena.memory_plan import Arena, MemoryPlan, Placement
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.kernels.contract import Spatial
from codegen_c.program.program import Program
from codegen_c.program.steps import AffineRow, KernelCall, Loop, RowRange
from tests.arena.programs import call, program
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.row_access import RowAccess

PROGRAM = program(
    {"x": 64, "a": 32, "b": 32, "y": 16},
    call("s0", "x", "a"),
    call("s1", "a", "b", scratch_bytes=40),
    call("s2", "a b", "y"),
)


def plan(**changes: dict[str, Any]) -> MemoryPlan:
    """Everything beside everything: x 0, a 64, b 96, y 128, scratch of s1 144; then changed as given."""
    offsets = {"x": (0, 64), "a": (64, 32), "b": (96, 32), "y": (128, 16), "s1_scratch": (144, 40)}
    placements = {
        name: Placement(
            name=name, memory="ram", offset=offset, num_bytes=size, begin=0, end=3, is_scratch=name == "s1_scratch"
        )
        for name, (offset, size) in offsets.items()
    }
    placements |= {name: replace(placements[name], **change) for name, change in changes.items()}
    return MemoryPlan(
        placements=placements, arenas=(Arena(memory="ram", num_bytes=192, lower_bound_bytes=104, peak_step=1),)
    )


def rejected(made: MemoryPlan, of: Program = PROGRAM) -> str:
    with pytest.raises(PlanRejected) as raised:
        validate(of, made)
    return str(raised.value)


def test_the_plan_as_it_stands() -> None:
    validate(PROGRAM, plan())


def test_dead_bytes_may_be_used_again() -> None:
    """x is dead behind s0: b and y may lie there."""
    validate(PROGRAM, plan(b={"offset": 0}, y={"offset": 32}, s1_scratch={"offset": 128}))


def test_overlap_of_an_input_and_a_result() -> None:
    message = rejected(plan(a={"offset": 48}))
    assert message == "step 0 (s0): 16 B of x do not hold its value but hold a."


def test_overlap_of_two_inputs() -> None:
    two = program({"x": 16, "u": 16, "y": 16}, call("s0", "x u", "y"), inputs="x u")
    _, good = plan_memory(two, activations="ram")
    validate(two, good)
    bad = replace(good, placements=good.placements | {"u": replace(good.placements["x"], name="u")})
    assert "step 0 (s0): 16 B of x do not hold its value but hold u." in rejected(bad, two)


def test_premature_reuse() -> None:
    """b takes the place of a, which s2 still reads."""
    assert rejected(plan(b={"offset": 64})) == "step 1 (s1): 32 B of a do not hold its value but hold b."


def test_an_output_overwritten_behind_its_step() -> None:
    late = program({"x": 16, "y": 16, "z": 16}, call("s0", "x", "y"), call("s1", "x", "z"), outputs="y z")
    _, good = plan_memory(late, activations="ram")
    bad = replace(good, placements=good.placements | {"z": replace(good.placements["y"], name="z")})
    assert rejected(bad, late).startswith("the end: 16 B of y do not hold its value but hold z")


def test_scratch_over_an_input_of_its_step() -> None:
    assert rejected(plan(s1_scratch={"offset": 64})).startswith("step 1 (s1): 32 B of a do not")


def test_scratch_over_a_value_that_is_read_later() -> None:
    message = rejected(plan(b={"offset": 0}, a={"offset": 64}, s1_scratch={"offset": 0}))
    assert "of b do not hold its value" in message or "of a do not hold its value" in message


def test_too_small() -> None:
    assert rejected(plan(a={"num_bytes": 31})) == "a: has 31 B, but needs 32 B."
    assert rejected(plan(s1_scratch={"num_bytes": 39})) == "s1_scratch: has 39 B, but needs 40 B."


def test_misaligned() -> None:
    assert rejected(plan(y={"offset": 136})) == "y: offset 136 is not a multiple of 16."


@pytest.mark.parametrize("offset", [-16, 176, 192, 1 << 40])
def test_outside_of_the_arena(offset: int) -> None:
    assert rejected(plan(a={"offset": offset})).startswith(f"a: bytes {offset} to {offset + 32} are outside of ram.")


def test_in_a_memory_without_an_arena() -> None:
    assert "are outside of dtcm" in rejected(plan(a={"memory": "dtcm"}))


def test_read_before_it_was_written() -> None:
    backwards = replace(PROGRAM, steps=PROGRAM.steps[::-1])
    assert "of a do not hold its value but hold nothing, because no step wrote them" in rejected(plan(), backwards)


def test_without_a_place() -> None:
    """Only what the caller holds may have none, and that is an input or an output."""
    made = plan()
    missing = replace(made, placements={name: p for name, p in made.placements.items() if name != "a"})
    assert rejected(missing) == "step 0 (s0): a has no offset."
    no_scratch = replace(made, placements={name: p for name, p in made.placements.items() if name != "s1_scratch"})
    assert rejected(no_scratch) == "step 1 (s1): s1_scratch has no offset."
    ports = {name: p for name, p in made.placements.items() if name not in ("x", "y")}
    validate(PROGRAM, replace(made, placements=ports))


def test_what_a_later_iteration_of_a_loop_reads() -> None:
    """The first iteration is fine: r is read, then overwritten by y. The second finds y in its place."""
    body = (call("c0", "x", "r"), call("c1", "r u", "y"))
    loop = program({"x": 16, "u": 16, "r": 16, "y": 16}, Loop(name="l", count=2, body=body), inputs="x u")
    _, good = plan_memory(loop, activations="ram")
    validate(loop, good)
    bad = replace(good, placements=good.placements | {"r": replace(good.placements["u"], name="r")})
    assert "of u do not hold its value but hold r" in rejected(bad, loop)
    over_x = replace(good, placements=good.placements | {"y": replace(good.placements["x"], name="y")})
    assert "step 0 (l): 16 B of x do not hold its value but hold y." in rejected(over_x, loop)
    validate(replace(loop, steps=(Loop(name="l", count=1, body=body),)), over_x)


def rows(step: KernelCall, **changes: Any) -> KernelCall:
    """The step as one that computes four output rows, each from the input row of its number."""
    access = RowAccess.same(4)
    spatial = Spatial(output_rows=4, inputs=(access,), **changes)
    return replace(step, implementation=replace(step.implementation, spatial=spatial))


def images(made: Program, num_images: int = 1) -> Program:
    """The tensors as images of four rows, one pixel each."""
    tensors = {
        name: replace(tensor, shape=(num_images, 4, 1, tensor.shape[0] // 4 // num_images))
        for name, tensor in made.tensors.items()
    }
    return replace(made, tensors=tensors)


def overlapping(y_offset: int, x_offset: int = 0) -> MemoryPlan:
    places = {"x": (x_offset, 64), "y": (y_offset, 64)}
    return MemoryPlan(
        placements={
            name: Placement(name=name, memory="ram", offset=offset, num_bytes=size, begin=0, end=1)
            for name, (offset, size) in places.items()
        },
        arenas=(Arena(memory="ram", num_bytes=128, lower_bound_bytes=64, peak_step=0),),
    )


def test_rows_over_rows_that_are_done_with() -> None:
    made = images(program({"x": 64, "y": 64}, rows(call("s", "x", "y"))))
    validate(made, overlapping(0, 16))
    assert "64 B of x do not hold its value" in rejected(overlapping(0, 0), made)
    assert "step 0 (s)" in rejected(overlapping(16, 0), made)


def descending(num_images: int) -> Program:
    """Rows 3, 2, 1, 0, each of all images."""
    step = rows(call("s", "x", "y"))
    part = RowRange(begin=AffineRow(base=3, step=-1), end=AffineRow(base=4, step=-1))
    loop = Loop(name="s", count=4, body=(replace(step, rows=part),))
    return images(program({"x": 64, "y": 64}, loop), num_images)


def test_descending_rows_over_rows_that_are_done_with() -> None:
    validate(descending(1), overlapping(16, 0))
    assert "step 0 (s)" in rejected(overlapping(0, 16), descending(1))


def test_rows_of_a_batch_do_not_pass_for_those_of_one_image() -> None:
    """Row 3 of the first image would lie over row 1 of the second, which is not read yet."""
    assert "step 0 (s): 48 B of x do not hold its value" in rejected(overlapping(16, 0), descending(2))


def test_rows_read_again_later_are_not_written_over() -> None:
    """A kernel that still reads the inputs of up to two rows before needs two rows more."""
    made = images(program({"x": 64, "y": 64}, rows(call("s", "x", "y"), rows_still_read=2)))
    validate(made, overlapping(0, 48))
    assert "step 0 (s)" in rejected(overlapping(0, 32), made)


def test_scratch_over_an_input_in_whose_place_the_output_lies() -> None:
    step = call("s", "x", "y", scratch_bytes=16)
    step = replace(step, implementation=replace(step.implementation, in_place=(0,)))
    made, placed = program({"x": 64, "y": 64}, step), overlapping(0)
    scratch = Placement(name="s_scratch", memory="ram", offset=64, num_bytes=16, begin=0, end=1, is_scratch=True)
    validate(made, replace(placed, placements=placed.placements | {"s_scratch": scratch}))
    for offset in (0, 48):
        over = replace(placed, placements=placed.placements | {"s_scratch": replace(scratch, offset=offset)})
        assert "step 0 (s)" in rejected(over, made)
