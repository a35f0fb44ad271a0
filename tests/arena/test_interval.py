"""Intervals of pipelines replayed by hand-made counts: the longest stage where nothing else waits."""

from __future__ import annotations

import pytest

from codegen_c.program.makespan import put_order, replayed_interval, successive_signals
from codegen_c.program.parallel import Notify, ParallelProgram, RunStep
from codegen_c.program.program import Program
from codegen_c.program.share_steps import share_steps
from tests.arena.programs import call, program
from tests.support.pipelines import in_stages

CHAIN = program({"x": 16, "a": 16, "y": 16}, call("s0", "x", "a"), call("s1", "a", "y"))
INPUTS = 8


def counted(parallel: ParallelProgram, costs: dict[int, int], at_signals: int) -> list[list[int]]:
    """Instructions behind each signal. costs: of each step; at_signals: of sending or awaiting one."""
    at, own = parallel.take_begins, parallel.lists[0].entries
    parts = {"p": own[:at], "t": own[at:]}
    lists = [[e for letter in put_order(parallel.in_flight, INPUTS) for e in parts[letter]]]
    lists += [[*steps.entries] * INPUTS for steps in parallel.lists[1:]]
    found: list[list[int]] = []
    for entries in lists:
        clock, counts = 0, list[int]()
        for entry in entries:
            clock += costs[entry.index] if isinstance(entry, RunStep) else at_signals
            counts += [] if isinstance(entry, RunStep) else [clock]
        found.append(counts)
    return found


def two_stages(made: Program, *lists: str) -> ParallelProgram:
    return in_stages(made, {f"cpu{n}": text.split() for n, text in enumerate(lists)})[0]


@pytest.mark.parametrize("lists", [("s0", "s1"), ("s1", "s0")])
@pytest.mark.parametrize(("first", "second"), [(1000, 700), (700, 1000), (900, 900)])
def test_the_interval_is_the_longer_stage(first: int, second: int, lists: tuple[str, str]) -> None:
    parallel = two_stages(CHAIN, *lists)
    costs = {index: first if step.name == "s0" else second for index, step in enumerate(parallel.program.steps)}
    found = replayed_interval(parallel, counted(parallel, costs, 5), INPUTS)
    stages = {"s0": first, "s1": second}
    assert found.stages == tuple(stages[name] + 10 for name in lists)
    assert found.instructions == max(found.stages)


def test_three_stages() -> None:
    made = program(
        {"x": 16, "a": 16, "b": 16, "y": 16}, call("s0", "x", "a"), call("s1", "a", "b"), call("s2", "b", "y")
    )
    parallel = two_stages(made, "s0", "s1", "s2")
    assert parallel.in_flight == 3 and put_order(3, 5) == "ppptptpttt"[:10]
    found = replayed_interval(parallel, counted(parallel, {0: 300, 1: 800, 2: 500}, 0), INPUTS)
    assert found.stages == (300, 800, 500) and found.instructions == 800


def test_signals_follow_puts_and_takes() -> None:
    parallel = two_stages(CHAIN, "s0", "s1")
    caller, other = successive_signals(parallel, 3)
    letters = ["p" if isinstance(entry, Notify) else "t" for entry in caller]
    assert "".join(letters) == put_order(2, 3) == "pptptt" and len(other) == 6
    assert put_order(2, 1) == "pt"


def test_one_input_at_a_time_has_one_in_flight() -> None:
    parallel = share_steps(CHAIN, {"cpu0": ["s0"], "cpu1": ["s1"]})
    assert parallel.in_flight == 1 and put_order(1, 2) == "ptpt"
