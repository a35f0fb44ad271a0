"""Views: which copies are saved, where parts lie, and which faults in them the validator finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.kernels.contract import Copy, Implementation, StoredRows
from codegen_c.lowering.views import with_views
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Transfer
from codegen_c.program.tensors import Constant, Part, Tensor
from tests.arena.programs import call, program
from tvm_ext.core.errors import PlanRejected


def copying(name: str, inputs: str, output: str, *copies: Copy) -> KernelCall:
    step = call(name, inputs, output)
    return replace(step, implementation=replace(step.implementation, copies=copies))


def run(source: int, target: int, count: int, operand: int = 0) -> Copy:
    return Copy(input=operand, source_first=source, target_first=target, count=count)


JOINED = program(
    {"x": 64, "a": 48, "b": 32, "j": 80, "y": 16},
    call("s0", "x", "a"),
    call("s1", "x", "b"),
    copying("join", "a b", "j", run(0, 0, 48, 0), run(0, 48, 32, 1)),
    call("s2", "j", "y"),
)
CUT = program(
    {"x": 64, "a": 16, "b": 48, "y": 64},
    copying("cut", "x", "a", run(0, 0, 16)),
    copying("rest", "x", "b", run(16, 0, 48)),
    call("s0", "a b", "y"),
)


def names(of: Program) -> list[str]:
    return [step.name for step in of.steps]


def test_what_is_joined_is_born_in_the_result() -> None:
    viewed = with_views(JOINED)
    assert names(viewed) == ["s0", "s1", "s2"]
    assert viewed.tensors["a"].part == Part(tensor="j", first=0)
    assert viewed.tensors["b"].part == Part(tensor="j", first=48)
    viewed, plan = plan_memory(viewed, activations="ram")
    validate(viewed, plan)
    places = plan.placements
    assert places["b"].offset == places["j"].offset + 48 and places["b"].part_of == "j"
    assert plan.arena_bytes == plan.lower_bound_bytes == 64 + 80, "while s1 runs; copied it took 80 + 80"
    assert plan_memory(JOINED, activations="ram")[1].arena_bytes == 160


def test_only_the_bytes_written_so_far_are_alive() -> None:
    """While a is written nothing else of the result matters: scratch may lie there."""
    first = call("s0", "x", "a", scratch_bytes=32)
    viewed, plan = plan_memory(with_views(replace(JOINED, steps=(first, *JOINED.steps[1:]))), activations="ram")
    validate(viewed, plan)
    assert plan.arena_bytes == 144


def test_slices_are_parts_of_what_they_are_cut_from() -> None:
    viewed = with_views(CUT)
    assert names(viewed) == ["s0"]
    viewed, plan = plan_memory(viewed, activations="ram")
    validate(viewed, plan)
    assert plan.arena_bytes == 128
    assert plan.placements["b"].offset == plan.placements["x"].offset + 16


def test_of_tensors_of_the_caller_parts_are_too() -> None:
    viewed, plan = plan_memory(with_views(CUT), activations="ram", held_by_caller=("x", "y"))
    validate(viewed, plan)
    assert plan.placements == {}


def test_what_is_not_read_again_of_a_sliced_tensor_is_free() -> None:
    """A few bytes of a large tensor, read again much later: the others make room; from both ends they would not."""
    late = program(
        {"x": 1024, "a": 16, "z": 16, "b": 512, "c": 768, "y": 16},
        call("s0", "x", "b"),
        copying("first", "x", "a", run(0, 0, 16)),
        copying("last", "x", "z", run(1008, 0, 16)),
        call("s1", "b", "c"),
        call("s2", "c a z", "y"),
    )
    viewed = with_views(late)
    assert names(viewed) == ["s0", "first", "s1", "s2"]
    viewed, plan = plan_memory(viewed, activations="ram")
    validate(viewed, plan)
    assert plan.arena_bytes == 1024 + 512 + 16


def test_joins_within_joins() -> None:
    nested = program(
        {"x": 64, "a": 16, "b": 16, "j": 32, "c": 16, "k": 48, "y": 16},
        call("s0", "x", "a"),
        call("s1", "x", "b"),
        copying("inner", "a b", "j", run(0, 0, 16, 0), run(0, 16, 16, 1)),
        call("s2", "x", "c"),
        copying("outer", "c j", "k", run(0, 0, 16, 0), run(0, 16, 32, 1)),
        call("s3", "k", "y"),
    )
    viewed = with_views(nested)
    assert names(viewed) == ["s0", "s1", "s2", "s3"]
    assert {name: t.part.first for name, t in viewed.tensors.items() if t.part} == {"a": 16, "b": 32, "j": 16, "c": 0}


def pitched(name: str, inputs: str, output: str) -> KernelCall:
    """A step whose kernel can leave room between pixels."""
    step = call(name, inputs, output)

    def keeping(stored: StoredRows) -> Implementation:
        return replace(step.implementation, kernel=f"every {stored.pitch}", pitched=True)

    return replace(step, implementation=replace(step.implementation, pitched=True, keeping=keeping))


def side_by_side(target: int, run: int, operand: int) -> Copy:
    """Eight pixels of `run` channels, in pixels of ten."""
    return Copy(input=operand, source_first=0, target_first=target, count=8 * run, run=run, pitch=10)


def shaped(made: Program, **shapes: tuple[int, ...]) -> Program:
    tensors = {name: replace(tensor, shape=shapes.get(name, tensor.shape)) for name, tensor in made.tensors.items()}
    return replace(made, tensors=tensors)


CHANNELS = shaped(
    program(
        {"x": 64, "a": 48, "b": 32, "j": 80, "y": 16},
        pitched("s0", "x", "a"),
        pitched("s1", "x", "b"),
        copying("join", "a b", "j", side_by_side(0, 6, 0), side_by_side(6, 4, 1)),
        call("s2", "j", "y"),
    ),
    a=(8, 6), b=(8, 4), j=(8, 10),
)  # fmt: skip


def test_channels_are_written_where_they_are_joined() -> None:
    viewed = with_views(CHANNELS)
    assert names(viewed) == ["s0", "s1", "s2"]
    assert [c.implementation.kernel for c in viewed.kernel_calls()] == ["every 10", "every 10", "none"]
    assert viewed.tensors["b"].part == Part(tensor="j", first=6, pitch=10)
    viewed, plan = plan_memory(viewed, activations="ram")
    validate(viewed, plan)
    assert plan.arena_bytes == 64 + 80 and plan.placements["b"].num_bytes == 74, "from the first to the last one"


def test_channels_are_written_there_from_prefetched_weights() -> None:
    """A tile of output channels reads a copy of its weights: the copy stays, the join goes."""
    weights = Constant(name="w", data=np.arange(16, dtype=np.uint8), memory="flash")
    fetch = Transfer(name="fetch", source="w", target="w_copy", source_is_constant=True)
    copy = Tensor(name="w_copy", source="w", shape=(16,), dtype="uint8", memory="fast")
    reading = replace(pitched("s1", "x", "b"), constants=("w",), prefetched=(("w", "w_copy"),))
    steps = (CHANNELS.steps[0], fetch, reading, *CHANNELS.steps[2:])
    tiles = replace(CHANNELS, tensors={**CHANNELS.tensors, "w_copy": copy}, constants={"w": weights}, steps=steps)
    viewed = with_views(tiles)
    assert names(viewed) == ["s0", "fetch", "s1", "s2"]
    assert [call.prefetched for call in viewed.kernel_calls()] == [(), (("w", "w_copy"),), ()]
    validate(*plan_memory(viewed, activations="ram"))


def test_channels_within_channels() -> None:
    nested = shaped(
        program(
            {"x": 64, "a": 32, "b": 16, "j": 48, "c": 32, "k": 80, "y": 16},
            pitched("s0", "x", "a"),
            pitched("s1", "x", "b"),
            replace(
                pitched("inner", "a b", "j"),
                implementation=replace(
                    copying("inner", "a b", "j", *(replace(c, pitch=6) for c in (
                        side_by_side(0, 4, 0), side_by_side(4, 2, 1)
                    ))).implementation,
                    pitched=True, keeping=lambda stored: copying(
                        "inner", "a b", "j", *(replace(c, pitch=stored.pitch or 6) for c in (
                            side_by_side(0, 4, 0), side_by_side(4, 2, 1)
                        ))).implementation,
                ),
            ),
            pitched("s2", "x", "c"),
            copying("outer", "c j", "k", side_by_side(0, 4, 0), side_by_side(4, 6, 1)),
            call("s3", "k", "y"),
        ),
        a=(8, 4), b=(8, 2), j=(8, 6), c=(8, 4), k=(8, 10),
    )  # fmt: skip
    viewed = with_views(nested)
    assert names(viewed) == ["s0", "s1", "s2", "s3"]
    parts = {name: (t.part.first, t.part.pitch) for name, t in viewed.tensors.items() if t.part}
    assert parts == {"a": (4, 10), "b": (8, 10), "j": (4, 10), "c": (0, 10)}


@pytest.mark.parametrize("reader", ["a", "x"])
def test_channels_that_somebody_else_reads_are_copied(reader: str) -> None:
    """Only who joins them knows of the room between pixels."""
    changed = replace(CHANNELS, steps=(*CHANNELS.steps[:3], call("s2", f"j {reader}", "y")))
    assert ("join" in names(with_views(changed))) == (reader == "a")


def test_channels_of_a_kernel_that_cannot_are_copied() -> None:
    changed = replace(CHANNELS, steps=(call("s0", "x", "a"), *CHANNELS.steps[1:]))
    assert "join" in names(with_views(changed))


def test_the_validator_finds_channels_that_meet() -> None:
    viewed = with_views(CHANNELS)
    b = replace(viewed.tensors["b"], part=Part(tensor="j", first=5, pitch=10))
    viewed, plan = plan_memory(replace(viewed, tensors={**viewed.tensors, "b": b}), activations="ram")
    with pytest.raises(PlanRejected, match="a and b are both written to the same elements of j"):
        validate(viewed, plan)


def test_the_validator_finds_channels_that_nobody_writes() -> None:
    viewed = with_views(CHANNELS)
    without = replace(viewed, steps=(viewed.steps[0], viewed.steps[2]))
    without, plan = plan_memory(without, activations="ram")
    with pytest.raises(PlanRejected, match="32 B of j do not hold its value but hold nothing"):
        validate(without, plan)


@pytest.mark.parametrize(
    "step",
    [
        copying("join", "a a", "j", run(0, 0, 48, 0), run(0, 48, 48, 1)),
        copying("join", "x b", "j", run(0, 0, 64, 0), run(0, 64, 32, 1)),
    ],
    ids=["one tensor twice", "an input of the model"],
)
def test_what_has_to_stand_in_two_places_is_copied(step: KernelCall) -> None:
    changed = replace(JOINED, steps=tuple(step if other.name == "join" else other for other in JOINED.steps))
    assert "join" in names(with_views(changed))


def test_tensors_that_are_to_stay_apart() -> None:
    assert names(with_views(JOINED, apart=("j",))) == names(JOINED)


def test_the_validator_finds_a_part_at_another_place() -> None:
    viewed, plan = plan_memory(with_views(JOINED), activations="ram")
    moved = {**plan.placements, "b": replace(plan.placements["b"], offset=plan.placements["b"].offset - 16)}
    with pytest.raises(PlanRejected, match="b is not at its offset in j"):
        validate(viewed, replace(plan, placements=moved))


def test_the_validator_finds_parts_that_meet() -> None:
    viewed = with_views(JOINED)
    b = replace(viewed.tensors["b"], part=Part(tensor="j", first=40))
    viewed = replace(viewed, tensors={**viewed.tensors, "b": b})
    viewed, plan = plan_memory(viewed, activations="ram")
    with pytest.raises(PlanRejected, match="a and b are both written to the same elements of j"):
        validate(viewed, plan)


def test_the_validator_finds_a_part_that_leaves_the_whole() -> None:
    viewed = with_views(JOINED)
    b = replace(viewed.tensors["b"], part=Part(tensor="j", first=64))
    viewed = replace(viewed, tensors={**viewed.tensors, "b": b})
    viewed, plan = plan_memory(viewed, activations="ram")
    with pytest.raises(PlanRejected, match="b is not a part of j"):
        validate(viewed, plan)


def test_the_validator_finds_what_overwrites_a_part() -> None:
    viewed, plan = plan_memory(with_views(JOINED), activations="ram")
    x = replace(plan.placements["x"], offset=plan.placements["a"].offset)
    with pytest.raises(PlanRejected, match=r"step 0 \(s0\): \d+ B of x do not hold its value but hold"):
        validate(viewed, replace(plan, placements={**plan.placements, "x": x}))


def test_the_validator_finds_a_part_of_a_part() -> None:
    """Its place would follow from one that follows from another."""
    viewed = with_views(JOINED)
    b = replace(viewed.tensors["b"], part=Part(tensor="a", first=0))
    viewed = replace(viewed, tensors={**viewed.tensors, "b": b})
    _, plan = plan_memory(with_views(JOINED), activations="ram")
    with pytest.raises(PlanRejected, match="b is not a part of a"):
        validate(viewed, plan)
