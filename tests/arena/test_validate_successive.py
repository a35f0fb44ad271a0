"""The validator of pipelines refuses planted races over successive inputs, and says what meets what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.validate_successive import check_transfers, validate_successive
from codegen_c.program.parallel import Await, Notify, ParallelProgram
from codegen_c.program.phases import check_stages, with_phases
from codegen_c.program.share_steps import share_steps
from codegen_c.program.steps import Transfer, Wait
from tests.arena.programs import call, program
from tests.support.pipelines import in_stages
from tvm_ext.core.errors import PlanRejected

Shared = tuple[ParallelProgram, MemoryPlan]
CHAIN = program(
    {"x": 16, "a": 16, "b": 16, "c": 16, "y": 16},
    call("s0", "x", "a"),
    call("s1", "a", "b", scratch_bytes=16),
    call("s2", "b", "c", scratch_bytes=16),
    call("s3", "c", "y"),
)
STAGES = {"cpu0": ["s0", "s1"], "cpu1": ["s2", "s3"]}
REVERSED = {"cpu0": ["s2", "s3"], "cpu1": ["s0", "s1"]}


def rejected(parallel: ParallelProgram, plan: MemoryPlan) -> str:
    with pytest.raises(PlanRejected) as raised:
        validate_successive(parallel, plan)
    return str(raised.value)


def over(shared: Shared, **places: str) -> Shared:
    """The same with tensors, or scratch, over others."""
    parallel, plan = shared
    moved = {name: replace(plan.placements[name], offset=plan.placements[o].offset) for name, o in places.items()}
    return parallel, replace(plan, placements=plan.placements | moved)


def phased(shared: Shared, copies: Mapping[str, tuple[str, ...]], count: int) -> Shared:
    return with_phases(shared[0], copies, count), shared[1]


@pytest.mark.parametrize("stages", [STAGES, REVERSED])
def test_a_chain_in_two_stages(stages: dict[str, list[str]]) -> None:
    parallel, plan = in_stages(CHAIN, stages)
    assert {"b", "y"} <= {*parallel.copies} and ("x" in parallel.copies) == (stages is REVERSED)
    validate_successive(parallel, plan)
    used = [plan.placements[name] for name in ("b", "b_phase1", "y", "y_phase1")]
    assert len({place.offset for place in used}) == 4


def test_buffers_of_the_caller_are_others_for_each_input_under_way() -> None:
    parallel, plan = in_stages(CHAIN, REVERSED, held=("x", "y"))
    assert not {"x", "y"} & {*parallel.copies, *plan.placements}
    validate_successive(parallel, plan)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({"b_phase1": "b"}, ["step 1 (s1) of cpu0 (put)", "step 2 (s2) of cpu1", "b_phase1", "nothing orders the two"]),
        ({"y_phase1": "y"}, ["the caller behind take", "step 3 (s3) of cpu1", "y_phase1"]),
        ({"c": "a"}, ["cpu0 (put)", "of cpu1", " c ", " a "]),
        ({"s2_scratch": "s1_scratch"}, ["s1_scratch", "s2_scratch"]),
        ({"c": "x"}, ["cpu1", "cpu0 (put)"]),
        ({"c": "b_phase1"}, ["b_phase1"]),
    ],
)
def test_places_that_stages_fight_for(places: dict[str, str], said: list[str]) -> None:
    message = rejected(*over(in_stages(CHAIN, STAGES), **places))
    assert all(words in message for words in said), message


def test_an_input_that_a_later_stage_reads_is_not_filled_before_there_is_room() -> None:
    shared = in_stages(CHAIN, REVERSED)
    copies = {name: names for name, names in shared[0].copies.items() if name != "x"}
    message = rejected(*phased(shared, copies, 2))
    assert "the caller before put 1" in message and "step 0 (s0) of cpu1 at input 0" in message


def test_no_back_pressure() -> None:
    """Four inputs may be under way, and there are two places."""
    shared = in_stages(CHAIN, STAGES)
    copies = {name: (one, other) * 2 for name, (one, other) in shared[0].copies.items()}
    message = rejected(*phased(shared, copies, 4))
    assert "step 1 (s1) of cpu0 (put) at input 2" in message and "step 2 (s2) of cpu1 at input 0" in message


def test_a_consumer_that_does_not_wait() -> None:
    parallel, plan = in_stages(CHAIN, STAGES)
    own, other = parallel.lists
    left = [tuple(e for e in own.entries if not isinstance(e, Notify))]
    left.append(tuple(e for e in other.entries if not isinstance(e, Await)))
    lists = tuple(replace(s, entries=entries) for s, entries in zip(parallel.lists, left, strict=True))
    assert "cpu1" in rejected(replace(parallel, lists=lists), plan)


def test_values_kept_from_put_to_take() -> None:
    """a is made when an input is put, and read again when it is taken: the next put comes between."""
    made = program(
        {"x": 16, "a": 16, "b": 16, "y": 16}, call("s0", "x", "a"), call("s1", "a", "b"), call("s2", "a b", "y")
    )
    shared = in_stages(made, {"cpu0": ["s0", "s2"], "cpu1": ["s1"]})
    validate_successive(*shared)
    assert "a" in shared[0].copies
    copies = {name: names for name, names in shared[0].copies.items() if name != "a"}
    message = rejected(*phased(shared, copies, 2))
    assert " a in memory ram while" in message and "step 0 (s0) of cpu0 (put) at input 1" in message


def test_a_signal_of_a_put_and_one_of_a_take_on_one_channel() -> None:
    back = {"cpu0": ["s0", "s2"], "cpu1": ["s1", "s3"]}
    parallel = share_steps(CHAIN, back)
    with pytest.raises(PlanRejected, match="cpu1 needs values of cpu0 that depend on its own"):
        check_stages(parallel)
    shared, plan = in_stages(CHAIN, STAGES)
    message = rejected(with_phases(replace(parallel, program=shared.program), shared.copies, 2), plan)
    assert "cpu0 signals cpu1 both when an input is put and when an output is taken" in message


def test_a_transfer_that_goes_on_from_put_to_take() -> None:
    """The next put starts one of the same number."""
    sizes = {name: 16 for name in ("x", "a", "b", "c", "y")}
    flight = Transfer(name="s1", source="a", target="c", number=0)
    steps = call("s0", "x", "a"), flight, call("s2", "a", "b"), Wait(name="s3", transfers=(flight,))
    made = program(sizes, *steps, call("s4", "b c", "y"))
    parallel = share_steps(made, {"cpu0": ["s0", "s1", "s3", "s4"], "cpu1": ["s2"]})
    own = parallel.lists[0]
    assert [getattr(entry, "index", "-") for entry in own.entries].index("-") > 0
    at = next(place for place, entry in enumerate(own.entries) if isinstance(entry, Await))
    wait = next(place for place, entry in enumerate(own.entries) if getattr(entry, "index", None) == 3)
    order = [*own.entries]
    order.insert(max(at, wait), order.pop(wait))
    parallel = replace(parallel, lists=(replace(own, entries=tuple(order)), parallel.lists[1]))
    with pytest.raises(PlanRejected, match="several stages of a pipeline have asynchronous transfers"):
        check_stages(parallel)
    with pytest.raises(PlanRejected, match="cpu0 has asynchronous transfers both when an input is put"):
        check_transfers(with_phases(parallel, {}, 2))


def test_phases_run_the_steps_over_their_own_tensors() -> None:
    parallel, plan = in_stages(CHAIN, STAGES)
    one, other = parallel.phases
    tensors = parallel.program.tensors
    assert "s1 of phase 1 touches a, b" in rejected(replace(parallel, phases=(one, one)), plan)
    backwards = replace(parallel, phases=(one, other[::-1]))
    assert "phase 1 does not run the program's steps in their order" in rejected(backwards, plan)
    missing = replace(parallel, copies=parallel.copies | {"b": ("b",)})
    assert "b has copies b for 2 inputs in flight" in rejected(missing, plan)
    twice = with_phases(parallel, parallel.copies | {"y": ("y", "b_phase1")}, 2)
    assert "b_phase1 is a copy both of b and of y" in rejected(twice, plan)
    larger = {**tensors, "b_phase1": replace(tensors["b_phase1"], shape=(32,))}
    changed = replace(parallel, program=replace(parallel.program, tensors=larger))
    assert "b_phase1 and b differ in shape" in rejected(changed, plan)


def test_values_of_another_input() -> None:
    """Phases that swap the places of a value on one side alone read what the input before left there."""
    parallel, plan = in_stages(CHAIN, STAGES)
    swapped = with_phases(parallel, parallel.copies | {"b": ("b", "b")}, 2)
    assert "may still" in rejected(swapped, plan)


def test_one_input_at_a_time_is_not_looked_at() -> None:
    parallel, plan = in_stages(CHAIN, STAGES)
    validate_successive(replace(parallel, phases=(), copies={}), plan)
