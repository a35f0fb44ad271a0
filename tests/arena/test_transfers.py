"""Transfers that go on while steps run: lifetimes, and what the validator says of those that get in their way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.program.program import Program
from codegen_c.program.reference import run
from codegen_c.program.steps import Transfer, Wait
from codegen_c.program.tensors import Constant
from tests.arena.planted import rejected
from tests.arena.programs import call, program

SPILL = Transfer(name="spill", source="a", target="a_slow", number=0)
FETCH = Transfer(name="fetch", source="a_slow", target="a_again", number=1)
SIZES = {"x": 64, "a": 64, "b": 64, "c": 64, "a_slow": 64, "a_again": 64, "y": 64}
MEMORY = {name: "fast" for name in ("a", "b", "c", "a_again")} | {"x": "slow", "y": "slow", "a_slow": "slow"}
STEPS = (
    call("make", "x", "a"),
    SPILL,
    call("one", "x", "b"),
    Wait(name="spilled", transfers=(SPILL,)),
    FETCH,
    call("two", "b", "c"),
    Wait(name="fetched", transfers=(FETCH,)),
    call("end", "c a_again", "y"),
)


def spilled(*steps) -> Program:
    return program(SIZES, *(steps or STEPS), memory=MEMORY)


def planned(given: Program) -> tuple[Program, MemoryPlan]:
    return plan_memory(given, activations="slow")


def test_both_ends_live_until_the_wait() -> None:
    given, plan = planned(spilled())
    validate(given, plan)
    spans = {name: (place.begin, place.end) for name, place in plan.placements.items()}
    assert spans["a"] == (0, 4)
    assert spans["a_slow"] == (1, 7)
    assert spans["a_again"] == (4, 8)


def test_what_is_spilled_leaves_its_place_to_others() -> None:
    """a, b and then c, a_again: never three of them at once, though four tensors are made there."""
    _, plan = planned(spilled())
    assert plan.bytes_in("fast") == 3 * 64


def test_a_target_is_not_read_while_it_is_filled() -> None:
    given, plan = planned(spilled())
    early = replace(given, steps=(*given.steps[:6], given.steps[7], given.steps[6]))
    assert "of a_again do not hold its value but hold data of an unfinished transfer" in rejected(early, plan)


def test_a_target_is_not_written_while_it_is_filled() -> None:
    given, plan = planned(spilled())
    over = replace(plan.placements["c"], offset=plan.placements["a_again"].offset)
    assert "a_again was written to while fetch filled it" in rejected(
        given, replace(plan, placements={**plan.placements, "c": over})
    )


def test_a_source_is_not_written_while_it_is_read() -> None:
    given, plan = planned(spilled())
    over = replace(plan.placements["b"], offset=plan.placements["a"].offset)
    assert "step 3 (spilled): 64 B of a do not hold its value but hold b" in rejected(
        given, replace(plan, placements={**plan.placements, "b": over})
    )


def test_every_transfer_is_waited_for() -> None:
    given, plan = planned(spilled())
    assert "no step waits for fetch" in rejected(replace(given, steps=(*given.steps[:6], call("end", "c", "y"))), plan)


def test_nothing_waits_for_what_never_began() -> None:
    given, plan = planned(spilled())
    steps = (*given.steps[:4], *given.steps[5:])
    assert "waits for fetch, which is not under way" in rejected(replace(given, steps=steps), plan)


def test_transfers_start_in_the_order_of_their_numbers() -> None:
    late = replace(SPILL, number=3)
    steps = (STEPS[0], late, Wait(name="w", transfers=(late,)), *STEPS[4:5], *STEPS[2:3], *STEPS[5:])
    given, plan = planned(spilled(*steps))
    assert "transfer 3 starts, but transfer 0 is next" in rejected(given, plan)


def streamed(number: int | None = 0, size: int = 64) -> Program:
    weights = Constant(name="w", data=np.arange(size, dtype=np.uint8), memory="flash")
    fetch = Transfer(name="fetch", source="w", target="w_copy", number=number, source_is_constant=True)
    waits = (Wait(name="wait", transfers=(fetch,)),) if number is not None else ()
    reading = replace(call("one", "x", "y"), constants=("w",), prefetched=(("w", "w_copy"),))
    given = program({"x": 64, "w_copy": 64, "y": 64}, fetch, *waits, reading, memory={"w_copy": "fast"})
    return replace(given, constants={"w": weights})


@pytest.mark.parametrize("number", [0, None])
def test_constants_are_fetched(number: int | None) -> None:
    given, plan = plan_memory(streamed(number), activations="ram")
    validate(given, plan)
    place = plan.placements["w_copy"]
    assert (place.memory, place.begin, place.end) == ("fast", 0, len(given.steps))
    assert [transfer.name for transfer in given.moves()] == ["fetch"]


def test_fetched_constants_are_run_in_numpy() -> None:
    given = streamed()
    without = replace(given, steps=given.steps[:2], outputs=("w_copy",))
    np.testing.assert_array_equal(run(without, {"x": np.zeros(64, np.uint8)})["w_copy"], np.arange(64))


def test_constants_of_another_size_are_refused() -> None:
    given, plan = plan_memory(streamed(), activations="ram")
    other = Constant(name="w", data=np.zeros(32, np.uint8), memory="flash")
    assert "w and w_copy differ in size" in rejected(replace(given, constants={"w": other}), plan)


def test_constants_that_were_never_fetched_are_refused() -> None:
    given, plan = plan_memory(streamed(), activations="ram")
    assert "w is read from w_copy, but was never copied there" in rejected(replace(given, steps=given.steps[2:]), plan)
