"""A planted fault for each rule of the validator about parts and places, beside a program that holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from codegen_c.arena.memory_plan import Arena
from codegen_c.arena.validate import validate
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Loop
from codegen_c.program.tensors import Part
from tests.arena.planted import beside, placed, planned, rejected
from tests.arena.programs import call, program


def channels(dtype: str = "int16", **parts: tuple[int, int, int, int]) -> Program:
    """x -> a -> b; j of four pixels of ten channels is read by the last step. parts: first, pitch, pixels, channels."""
    made = program(
        {"x": 16, "a": 1, "b": 1, "j": 1, "y": 16}, call("s0", "x", "a"), call("s1", "x", "b"), call("s2", "j", "y")
    )
    tensors = dict(made.tensors) | {"j": replace(made.tensors["j"], shape=(1, 4, 1, 10), dtype=dtype)}
    for name, (first, pitch, pixels, run) in parts.items():
        part = Part(tensor="j", first=first, pitch=pitch)
        tensors[name] = replace(made.tensors[name], shape=(1, pixels, 1, run), dtype=dtype, part=part)
    return replace(made, tensors=tensors)


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
def test_channels_side_by_side(dtype: str) -> None:
    made = channels(dtype, a=(0, 10, 4, 6), b=(6, 10, 4, 4))
    validate(made, planned(made))


def test_channels_that_leave_one_unwritten() -> None:
    made = channels(a=(0, 10, 4, 6), b=(7, 10, 4, 3))
    assert rejected(made, planned(made)).startswith("step 2 (s2): 8 B of j do not hold its value but hold nothing")


def test_channels_that_meet_behind_the_first_pixel() -> None:
    made = channels(a=(0, 10, 4, 6), b=(6, 11, 3, 4))
    assert rejected(made, planned(made)) == "a and b are both written to the same elements of j."


@pytest.mark.parametrize(("first", "pitch", "leaves"), [(6, 11, True), (7, 10, True), (6, 10, False), (3, 11, False)])
def test_channels_that_leave_the_whole(first: int, pitch: int, leaves: bool) -> None:
    """The last element of the last pixel counts: it may be the last of the whole."""
    made = channels(b=(first, pitch, 4, 4))
    made = replace(made, steps=(call("s0", "x", "j"), call("s1", "j", "y"), call("s2", "b", "y")))
    plan = planned(made)
    if leaves:
        assert rejected(made, plan) == "b is not a part of j."
    else:
        validate(made, plan)


def halves(*steps: KernelCall, **changes: dict[str, Any]) -> Program:
    """a and b, which are the halves of j; then changed as given."""
    made = program(
        {"x": 32, "a": 32, "b": 32, "j": 64, "y": 16},
        *(steps or (call("s0", "x", "a"), call("s1", "x", "b"), call("s2", "j", "y"))),
    )
    parts = {"a": {"part": Part(tensor="j", first=0)}, "b": {"part": Part(tensor="j", first=32)}}
    for name in {*parts, *changes}:
        tensor = replace(made.tensors[name], **{**parts.get(name, {}), **changes.get(name, {})})
        made = replace(made, tensors=made.tensors | {name: tensor})
    return made


def test_parts_that_hold() -> None:
    validate(halves(), planned(halves()))


@pytest.mark.parametrize("change", [{"offset": 16}, {"memory": "dtcm"}, {"part_of": "x"}])
def test_a_part_lies_where_the_whole_has_it(change: dict[str, Any]) -> None:
    plan = placed(planned(halves()), b=change)
    elsewhere = Arena(memory="dtcm", num_bytes=512, lower_bound_bytes=0, peak_step=0)
    plan = replace(plan, arenas=(*plan.arenas, elsewhere))
    assert rejected(halves(), plan) == "b is not at its offset in j."


def test_a_part_of_another_type_is_none() -> None:
    """But of a ring, whose bytes are rows of any type."""
    plan = planned(halves())
    assert rejected(halves(b={"dtype": "int8"}), plan) == "b is not a part of j."


def test_elements_that_one_step_writes_as_the_whole_and_another_as_a_part() -> None:
    made = halves(call("s0", "x", "j"), call("s1", "x", "b"), call("s2", "j", "y"))
    assert rejected(made, planned(made)) == "j and b are both written to the same elements of j."
    given = replace(halves(call("s1", "x", "b"), call("s2", "j", "y")), inputs=("x", "j"))
    assert "written to the same elements of j" in rejected(given, planned(given))


@pytest.mark.parametrize(("first", "holds"), [(32, True), (33, False), (64, False)])
def test_a_part_that_is_written_ends_inside_the_whole(first: int, holds: bool) -> None:
    made = halves(b={"part": Part(tensor="j", first=first)})
    if holds:
        validate(made, planned(made))
    else:
        assert rejected(made, planned(made)) == "b is not a part of j."


@pytest.mark.parametrize("missing", ["b", "r"])
def test_what_a_loop_touches_has_a_place(missing: str) -> None:
    body = (call("c0", "x", "r"), call("c1", "r", "b"))
    made = program({"x": 16, "r": 16, "b": 16, "y": 16}, Loop(name="l", count=2, body=body), call("s", "b", "y"))
    plan = planned(made)
    places = {name: place for name, place in plan.placements.items() if name != missing}
    assert rejected(made, replace(plan, placements=places)) == f"step 0 (l): {missing} has no offset."


def test_parts_of_what_the_caller_holds_need_no_place_and_others_do() -> None:
    made = replace(halves(), inputs=("x", "j"), steps=(call("s", "a b", "y"),))
    ports = beside({"y": 16})
    validate(made, ports)
    inner = replace(halves(call("s0", "x", "j"), call("s1", "a b", "y")))
    assert rejected(inner, ports) == "step 0 (s0): j has no offset."


def test_alignment_and_room() -> None:
    made = program({"x": 16, "y": 16}, call("s", "x", "y"))
    plan = beside({"x": 16, "y": 16}, room=0)
    validate(made, plan)
    short = replace(plan, arenas=(replace(plan.arenas[0], num_bytes=31),))
    assert rejected(made, short) == "y: bytes 16 to 32 are outside of ram."
    below = replace(plan, placements=plan.placements | {"x": replace(plan.placements["x"], offset=-1)})
    assert rejected(made, below) == "x: bytes -1 to 15 are outside of ram."
    odd = placed(plan, y={"offset": 24})
    assert rejected(made, odd) == "y: offset 24 is not a multiple of 16."
    parts = halves(a={"shape": (24,)}, b={"shape": (40,), "part": Part(tensor="j", first=24)})
    validate(parts, planned(parts))


def test_sizes_of_scratch_are_those_of_the_largest_call() -> None:
    body = (call("c0", "x", "r", scratch_bytes=16), call("c1", "r", "y", scratch_bytes=48), call("c2", "r", "y"))
    made = program({"x": 16, "r": 16, "y": 16}, Loop(name="l", count=2, body=body))
    sizes = {"x": 16, "r": 16, "y": 16, "l_scratch": 48}
    validate(made, beside(sizes))
    assert rejected(made, beside(sizes | {"l_scratch": 47})) == "l_scratch: has 47 B, but needs 48 B."


def test_sizes_count_bytes_of_elements_and_rows_of_rings() -> None:
    made = program({"x": 16, "y": 16}, call("s", "x", "y"))
    wide = replace(made, tensors=made.tensors | {"y": replace(made.tensors["y"], dtype="int32")})
    validate(wide, beside({"x": 16, "y": 64}))
    assert rejected(wide, beside({"x": 16, "y": 63})) == "y: has 63 B, but needs 64 B."
