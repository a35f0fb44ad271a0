"""The most and the least expensive run of programs with branches, against all combinations of conditions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import CFunction, Implementation, OpenEnd
from codegen_c.program.extreme_runs import best_run, has_branches, instructions_of, macs_of, worst_run
from codegen_c.program.program import Program
from codegen_c.program.steps import Guard, KernelCall

KERNEL = Implementation(kernel="none", function=CFunction(parameters=(), body=""), reference=list)
Step = tuple[int, tuple[tuple[int, bool], ...]]


def program(steps: list[Step]) -> Program:
    """A program of kernels with these instructions and guards by the numbers of conditions."""
    calls = tuple(
        KernelCall(
            name=f"s{index}", implementation=replace(KERNEL, instructions=cost), inputs=(), outputs=(),
            guards=tuple(Guard(condition=f"c{number}", holds=holds) for number, holds in guards),
        )
        for index, (cost, guards) in enumerate(steps)
    )  # fmt: skip
    return Program(name="p", inputs=(), outputs=(), tensors={}, steps=calls)


def total(found: Program) -> int:
    return sum(map(instructions_of, found.steps))


def every_total(steps: list[Step]) -> list[int]:
    return [
        sum(cost for cost, guards in steps if all(values[number] is holds for number, holds in guards))
        for values in product((True, False), repeat=5)
    ]


guards = st.dictionaries(st.integers(0, 4), st.booleans(), max_size=3).map(lambda found: tuple(found.items()))


@given(st.lists(st.tuples(st.integers(0, 50), guards), max_size=12))
def test_no_combination_of_conditions_costs_more_or_less(steps: list[Step]) -> None:
    made, totals = program(steps), every_total(steps)
    assert total(worst_run(made, instructions_of)) == max(totals)
    assert total(best_run(made, instructions_of)) == min(totals)


def test_a_program_without_branches_stays() -> None:
    made = program([(3, ()), (4, ())])
    assert worst_run(made, instructions_of) is made and best_run(made, instructions_of) is made


@pytest.mark.parametrize("count", [40, 1500])
def test_many_conditions_that_hang_together_end_soon(count: int) -> None:
    """Beyond the limits of the search the result is still a run: one side of each condition."""
    chain = [(index % 7, ((index, True), (index + 1, index % 3 == 0))) for index in range(count)]
    nested = [(1, tuple((number, True) for number in range(index + 1))) for index in range(min(count, 200))]
    for steps in (chain, nested):
        made = program([*steps, (5, ((0, False),))])
        for found in (worst_run(made, instructions_of), best_run(made, instructions_of)):
            values = {guard for step in found.steps for guard in step.guards if isinstance(step, KernelCall)}
            assert len({guard.condition for guard in values}) == len(values)
        assert total(best_run(made, instructions_of)) <= total(worst_run(made, instructions_of))


def test_a_loop_that_data_end_costs_the_fewest_iterations_at_best() -> None:
    """Beside branches, too: the loop is in the less expensive branch only if it ends early."""
    kernel = replace(KERNEL, instructions=90, macs=9, open_end=OpenEnd(instructions=10, macs=1, most_passes=9))
    made = program([(50, ((0, True),)), (0, ((0, False),)), (7, ())])
    looped = replace(made, steps=(made.steps[0], replace(made.steps[1], implementation=kernel), made.steps[2]))
    assert has_branches(looped) and has_branches(replace(looped, steps=looped.steps[1:2]))
    assert total(worst_run(looped, instructions_of)) == 97 and total(best_run(looped, instructions_of)) == 17
    assert sum(map(macs_of, best_run(looped, instructions_of).steps)) == 1
