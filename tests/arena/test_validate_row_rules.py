"""A planted fault for each rule of the validator about rows, beside a program that holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.arena.validate import validate
from codegen_c.costs.predict import predicted_cycles, step_cycles
from codegen_c.kernels.contract import Spatial
from codegen_c.program.program import Program
from codegen_c.program.sequences import in_series
from codegen_c.program.steps import KernelCall, RowSteps, Transfer, Wait
from codegen_c.program.tensors import Constant, Ring
from tests.arena.planted import beside, placed, rejected
from tests.arena.programs import call, program
from tvm_ext.core.platform import Platform
from tvm_ext.core.row_access import RowAccess
from tvm_ext.core.row_sequence import RowCall, RowLoop
from tvm_ext.core.time_model import TimeModel

ROWS = 4
SAME = RowAccess.same(ROWS)


def in_rows(step: KernelCall, *accesses: RowAccess, output_rows: int = ROWS) -> KernelCall:
    spatial = Spatial(output_rows=output_rows, inputs=accesses or (RowAccess.sliding(ROWS, output_rows, taps=1),))
    return replace(step, implementation=replace(step.implementation, spatial=spatial))


def images(made: Program) -> Program:
    tensors = {name: replace(t, shape=(1, ROWS, 1, t.shape[0] // ROWS)) for name, t in made.tensors.items()}
    return replace(made, tensors=tensors)


@pytest.mark.parametrize("longer", ["x", "y"])
def test_bytes_that_are_no_equal_rows_are_not_overlapped(longer: str) -> None:
    """Nobody can say then which bytes a row takes."""
    made = images(program({"x": 64, "y": 64}, in_rows(call("s", "x", "y"))))
    plan = placed(beside({"x": 64, "y": 64}), x={"offset": 16}, y={"offset": 0})
    validate(made, plan)
    assert "step 0 (s)" in rejected(made, placed(plan, **{longer: {"num_bytes": 66}}))


def test_a_second_output_over_an_input_is_no_row_of_the_first() -> None:
    made = images(program({"x": 64, "y": 64, "z": 64}, in_rows(call("s", "x", "y z")), outputs="y z"))
    plan = placed(beside({"x": 64, "y": 64, "z": 64}), x={"offset": 16}, y={"offset": 0})
    validate(made, plan)
    for offset in (16, 64, 0, 48):
        assert "step 0 (s)" in rejected(made, placed(plan, z={"offset": offset}))


def test_an_input_read_twice_is_not_overlapped() -> None:
    step = in_rows(call("s", "x x", "y"), SAME, SAME)
    made = images(program({"x": 64, "y": 64}, step))
    assert "step 0 (s)" in rejected(made, placed(beside({"x": 64, "y": 64}), x={"offset": 16}, y={"offset": 0}))


def test_an_input_that_is_not_read_by_rows_is_not_overlapped() -> None:
    made = images(program({"x": 64, "u": 64, "y": 64}, in_rows(call("s", "x u", "y")), inputs="x u"))
    plan = placed(beside({"x": 64, "u": 64, "y": 64}), x={"offset": 16}, y={"offset": 0}, u={"offset": 128})
    validate(made, plan)
    assert "of u do not" in rejected(made, placed(plan, x={"offset": 128}, u={"offset": 16}))


def test_in_place_is_the_same_place_or_below_for_the_input_it_names() -> None:
    step = call("s", "x u", "y")
    step = replace(step, implementation=replace(step.implementation, in_place=(1,)))
    made = program({"x": 64, "u": 64, "y": 64}, step, inputs="x u")
    plan = beside({"x": 64, "u": 64, "y": 64})
    for offset in (64, 48, 128):
        validate(made, placed(plan, y={"offset": offset}, x={"offset": 192}))
    assert "of u do not" in rejected(made, placed(plan, y={"offset": 80}, x={"offset": 192}))
    assert "of x do not" in rejected(made, placed(plan, y={"offset": 0}))
    longer = placed(plan, y={"offset": 64, "num_bytes": 80}, x={"offset": 192})
    assert "of u do not" in rejected(made, longer), "elements of one size only lie over each other"


def sequence(*body: KernelCall, sizes: dict[str, int], **rings: int) -> Program:
    made = program(sizes, in_series("q", body, (1,) * len(body)))
    tensors = {name: replace(made.tensors[name], ring=Ring(rows=ROWS, stored=stored)) for name, stored in rings.items()}
    return replace(made, tensors=made.tensors | tensors)


def test_rows_that_a_stride_asks_for() -> None:
    """Row h of y reads rows 2h and 2h + 1: of a ring of two, both are there; of one, the first is not."""
    half = RowAccess.sliding(ROWS, 2, taps=2, stride=2)
    body = (in_rows(call("s0", "x", "a")), in_rows(call("s1", "a", "y"), half, output_rows=2))
    made = sequence(*body, sizes={"x": 64, "a": 64, "y": 32}, a=2)
    validate(made, beside({"x": 64, "a": 32, "y": 32}))
    short = sequence(*body, sizes={"x": 64, "a": 64, "y": 32}, a=1)
    assert "s1 reads row 0 of a, which its bytes do not hold" in rejected(short, beside({"x": 64, "a": 16, "y": 32}))


def test_rows_that_a_dilated_window_asks_for() -> None:
    wide = RowAccess.sliding(ROWS, 2, taps=2, dilation=2)
    body = (in_rows(call("s0", "x", "a")), in_rows(call("s1", "a", "y"), wide, output_rows=2))
    made = sequence(*body, sizes={"x": 64, "a": 64, "y": 32}, a=3)
    validate(made, beside({"x": 64, "a": 48, "y": 32}))
    short = sequence(*body, sizes={"x": 64, "a": 64, "y": 32}, a=2)
    assert "s1 reads row 0 of a, which its bytes do not hold" in rejected(short, beside({"x": 64, "a": 32, "y": 32}))


def test_more_rows_than_the_producer_has() -> None:
    """Rows of padding alone ask for nothing."""
    few = RowAccess.sliding(2, ROWS, taps=1)
    body = (in_rows(call("s0", "x", "a"), output_rows=2), in_rows(call("s1", "a", "y"), few))
    made = sequence(*body, sizes={"x": 64, "a": 32, "y": 64})
    validate(made, beside({"x": 64, "a": 32, "y": 64}))


def test_a_tensor_of_one_row_that_is_never_computed() -> None:
    body = (
        in_rows(call("s0", "x", "a")), in_rows(call("s1", "x", "b"), output_rows=1), in_rows(call("s2", "a", "y")),
    )  # fmt: skip
    made = sequence(*body, sizes={"x": 64, "a": 64, "b": 16, "y": 64})
    plan = beside({"x": 64, "a": 64, "b": 16, "y": 64})
    assert rejected(made, plan) == "step 0 (q): only 0 rows of b are computed."


def test_rows_of_a_sequence_are_equal() -> None:
    body = (in_rows(call("s0", "x", "a")), in_rows(call("s1", "a", "y")))
    made = sequence(*body, sizes={"x": 64, "a": 64, "y": 64})
    validate(made, beside({"x": 64, "a": 64, "y": 64}))
    message = rejected(made, beside({"x": 66, "a": 64, "y": 64}))
    assert message == "step 0 (q): x of 66 B cannot be divided into 4 equal rows."


def test_a_call_without_rows_in_a_sequence() -> None:
    body = (call("s0", "x", "a"), in_rows(call("s1", "a", "y")))
    schedule = (RowCall(operator=0, begin=0, end=ROWS), RowCall(operator=1, begin=0, end=ROWS))
    made = program({"x": 64, "a": 64, "y": 64}, RowSteps(name="q", body=body, schedule=schedule))
    assert "s0: is in a row sequence, but computes no rows." in rejected(made, beside({"x": 64, "a": 64, "y": 64}))


def in_calls(*schedule: RowCall | RowLoop) -> Program:
    """x -> a -> y of ROWS rows each, a in a ring of one, as the schedule says."""
    body = (in_rows(call("s0", "x", "a")), in_rows(call("s1", "a", "y")))
    made = program({"x": 64, "a": 64, "y": 64}, RowSteps(name="q", body=body, schedule=schedule))
    ring = replace(made.tensors["a"], ring=Ring(rows=ROWS, stored=1))
    return replace(made, tensors=made.tensors | {"a": ring})


def turns(count: int, first: int = 0, *, a: int = 1, y: int = 1) -> RowLoop:
    """A row of a, then one of y; the next turn is so many rows ahead."""
    body = tuple(RowCall(operator=index, begin=first, end=first + 1) for index in (0, 1))
    return RowLoop(count=count, body=body, advances={0: a, 1: y})


def test_a_schedule_is_replayed_as_it_stands() -> None:
    plan = beside({"x": 64, "a": 16, "y": 64})
    validate(in_calls(turns(ROWS)), plan)
    validate(in_calls(turns(1), turns(ROWS - 1, 1)), plan)
    halves = RowLoop(count=2, body=(turns(2),), advances={0: 2, 1: 2})
    validate(in_calls(halves), plan)
    assert rejected(in_calls(turns(ROWS - 1)), plan) == "step 0 (q): only 3 rows of y are computed."
    message = "step 0 (q): s0 computes rows from 2 on, but row 1 is next."
    assert rejected(in_calls(turns(1), turns(ROWS - 2, 2)), plan) == message
    assert rejected(in_calls(turns(ROWS, a=2)), plan) == message
    assert rejected(in_calls(replace(halves, advances={0: 1, 1: 2})), plan) == (
        "step 0 (q): s0 computes rows from 1 on, but row 2 is next."
    )
    late = in_calls(turns(1), RowCall(operator=0, begin=1, end=2), RowCall(operator=0, begin=2, end=3), turns(2, 1))
    assert "s0 computes rows from 1 on" in rejected(late, plan)
    ahead = in_calls(
        turns(1), *(RowCall(operator=0, begin=row, end=row + 1) for row in (1, 2)), RowCall(operator=1, begin=1, end=2)
    )
    assert "s1 reads row 1 of a, which its bytes do not hold" in rejected(ahead, plan)


def test_what_a_sequence_writes_over_its_input() -> None:
    """Row h of y may lie over row h of x, which is done with; not over the row behind it."""
    body = (in_rows(call("s0", "x", "a")), in_rows(call("s1", "a", "y")))
    made = sequence(*body, sizes={"x": 64, "a": 64, "y": 64}, a=1)
    plan = beside({"x": 64, "a": 16, "y": 64})
    validate(made, placed(plan, y={"offset": 0}))
    late = placed(plan, y={"offset": 16}, a={"offset": 128})
    assert "s0 reads row 1 of x, which its bytes do not hold" in rejected(made, late)


def test_scratch_of_a_sequence_over_its_rows() -> None:
    body = (in_rows(call("s0", "x", "a", scratch_bytes=16)), in_rows(call("s1", "a", "y")))
    made = sequence(*body, sizes={"x": 64, "a": 64, "y": 64}, a=1)
    plan = beside({"x": 64, "a": 16, "y": 64, "q_scratch": 16})
    validate(made, plan)
    assert "s0 reads row 0 of x" in rejected(made, placed(plan, q_scratch={"offset": 0}))
    assert "s0 reads row 1 of x" in rejected(made, placed(plan, q_scratch={"offset": 16}))
    assert "of y do not hold its value but hold q_scratch" in rejected(made, placed(plan, q_scratch={"offset": 80}))


def test_constants_fetched_for_a_sequence_last_until_its_last_call() -> None:
    fetch = Transfer(name="fetch", source="w", target="w_copy", number=0, source_is_constant=True)
    reading = replace(in_rows(call("s1", "a", "y")), constants=("w",), prefetched=(("w", "w_copy"),))
    body = (in_rows(call("s0", "x", "a")), reading)
    made = program(
        {"x": 64, "a": 64, "w_copy": 16, "y": 64}, fetch, Wait(name="wait", transfers=(fetch,)),
        in_series("q", body, (1, 1)),
    )  # fmt: skip
    made = replace(made, constants={"w": Constant(name="w", data=np.zeros(16, np.uint8), memory="flash")})
    plan = beside({"x": 64, "a": 64, "w_copy": 16, "y": 64})
    validate(made, plan)
    over = placed(plan, w_copy={"offset": 112})  # row 3 of a
    assert "s1 reads w from w_copy, which was overwritten" in rejected(made, over)
    wide = {"w_copy": {"offset": 64, "num_bytes": 32}, "a": {"offset": 80}, "y": {"offset": 256}}  # its end only
    assert "s1 reads w from w_copy, which was overwritten" in rejected(made, placed(plan, **wide))
    never = replace(made, steps=made.steps[2:])
    assert rejected(never, plan) == "step 0 (q): w is read from w_copy, but was never copied there."


def awaited_inside(*awaited: int) -> Program:
    """A fetch of the weights of s1, for which a sequence of s0 and s1 waits ahead of the first call of these steps."""
    fetch = Transfer(name="fetch", source="w", target="w_copy", number=0, source_is_constant=True)
    reading = replace(in_rows(call("s1", "a", "y")), constants=("w",), prefetched=(("w", "w_copy"),))
    wait = Wait(name="wait", transfers=(fetch,))
    schedule = (RowCall(operator=0, begin=0, end=1), RowCall(operator=1, begin=0, end=1), turns(ROWS - 1, 1))
    body = (in_rows(call("s0", "x", "a")), reading)
    steps = RowSteps(name="q", body=body, schedule=schedule, awaited=tuple((one, wait) for one in awaited))
    made = program({"x": 64, "a": 64, "w_copy": 16, "y": 64}, fetch, steps)
    return replace(made, constants={"w": Constant(name="w", data=np.zeros(16, np.uint8), memory="flash")})


def test_a_sequence_waits_between_its_calls() -> None:
    plan = beside({"x": 64, "a": 64, "w_copy": 16, "y": 64})
    made = awaited_inside(1)
    (steps,) = (step for step in made.steps if isinstance(step, RowSteps))
    assert list(steps.waits) == [1], "after the first row of a"
    validate(made, plan)
    validate(awaited_inside(0), plan)
    assert "s1 reads w from w_copy, which was overwritten" in rejected(awaited_inside(), plan)
    assert "waits for fetch, which is not under way" in rejected(awaited_inside(1, 1), plan)
    over = placed(plan, w_copy={"offset": 64})  # row 0 of a, which is computed before the wait
    assert "w_copy was written to while fetch filled it" in rejected(made, over)


def test_a_wait_for_a_step_that_begins_in_a_loop_stands_ahead_of_it() -> None:
    schedule = (turns(1), turns(ROWS - 1, 1))
    (steps,) = (step for step in awaited_inside(0, 1).steps if isinstance(step, RowSteps))
    assert list(replace(steps, schedule=schedule).waits) == [0]


def test_weights_arrive_while_a_sequence_runs() -> None:
    """A row of s0 hides as much of the fetch as it takes, because the first row of s1 waits."""
    time = TimeModel(platform=Platform.load("always_on"))

    def of(awaited: int) -> tuple[Program, RowSteps]:
        made = awaited_inside(awaited)
        (steps,) = (step for step in made.steps if isinstance(step, RowSteps))
        body = [replace(one, implementation=replace(one.implementation, instructions=64)) for one in steps.body]
        steps = replace(steps, body=tuple(body))
        tensors = {name: replace(one, memory="dtcm") for name, one in made.tensors.items()}
        return replace(made, tensors=tensors, steps=(made.steps[0], steps)), steps

    (at_once, steps), (inside, _) = of(0), of(1)
    row = step_cycles(at_once, steps.body[0], time) / ROWS
    assert row < time.transfer_cycles("flash", "dtcm", 16)
    assert predicted_cycles(at_once, time) - predicted_cycles(inside, time) == pytest.approx(row)
