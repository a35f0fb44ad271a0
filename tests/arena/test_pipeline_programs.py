"""Random programs as pipelines of two or three stages: validated, run with inputs under way, refused where planted."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.validate_order import validate_order
from codegen_c.arena.validate_successive import validate_successive
from codegen_c.program.parallel import ParallelProgram, RunStep
from codegen_c.program.program import Program
from codegen_c.program.reference import run
from tests.support.interleavings import Deadlock
from tests.support.pipelines import in_stages, random_order, random_pipeline, run_pipeline
from tests.support.sweeps import some_of
from tvm_ext.core.errors import PlanRejected

INPUTS = 5
PROGRAMS_PER_CASE = 6
CASES = some_of(range(2), sweep=range(2, 80))


def wrong(program: Program, parallel: ParallelProgram, plan: MemoryPlan, seed: int) -> bool:
    """True if an input under some interleaving ends in other bytes than by itself, or not at all."""
    rng = np.random.default_rng(seed)
    given = [
        {name: rng.integers(0, 256, program.tensors[name].shape, np.uint8) for name in program.inputs}
        for _ in range(INPUTS)
    ]
    try:
        found = run_pipeline(parallel, plan, given, seed)
    except Deadlock:
        return True
    expected = [run(program, inputs) for inputs in given]
    return any((want[name] != got[name]).any() for want, got in zip(expected, found, strict=True) for name in got)


@pytest.mark.parametrize("case", CASES)
def test_every_interleaving_leaves_the_bytes_of_one_input_by_itself(case: int) -> None:
    for seed in range(case * PROGRAMS_PER_CASE, (case + 1) * PROGRAMS_PER_CASE):
        program, lists = random_pipeline(seed)
        parallel, plan = in_stages(program, lists)
        validate_order(parallel, plan)
        validate_successive(parallel, plan)
        assert parallel.in_flight == len(lists)
        assert not any(wrong(program, parallel, plan, turn) for turn in range(3)), seed


def test_one_place_where_stages_need_more_is_refused_and_shows() -> None:
    refused = shown = 0
    for seed in range(6):
        program, lists = random_pipeline(seed)
        parallel, plan = in_stages(program, lists)
        for name in [name for name in parallel.copies if not program.tensors[name].part]:
            one = plan.placements[name]
            family = [c for copied in parallel.copies for c in parallel.copies[copied]]
            moved = {
                copy: replace(plan.placements[copy], offset=one.offset + plan.placements[copy].offset - whole.offset)
                for copy in family
                if (whole := plan.placements[plan.placements[copy].part_of or copy]).name in parallel.copies[name]
            }
            planted = replace(plan, placements=plan.placements | moved)
            try:
                validate_successive(parallel, planted)
                assert not any(wrong(program, parallel, planted, turn) for turn in range(3)), (seed, name)
            except PlanRejected:
                refused += 1
                shown += any(wrong(program, parallel, planted, turn) for turn in range(6))
    assert refused > 20 and shown > 0.5 * refused


def test_no_signal_can_be_left_out() -> None:
    for seed in range(6):
        parallel, plan = in_stages(*random_pipeline(seed))
        for signal in range(parallel.num_signals):
            kept = [[e for e in s.entries if isinstance(e, RunStep) or e.signal != signal] for s in parallel.lists]
            lists = [replace(s, entries=tuple(own)) for s, own in zip(parallel.lists, kept, strict=True)]
            with pytest.raises(PlanRejected):
                validate_successive(replace(parallel, lists=tuple(lists)), plan)


def test_plans_of_one_input_at_a_time_are_refused() -> None:
    """Memory for every order of the steps of one run knows nothing of the next one."""
    refused = 0
    for seed in range(6):
        program, lists = random_pipeline(seed)
        parallel, _ = in_stages(program, lists)
        free, plan = in_stages(program, lists, apart=[*program.tensors])
        assert not free.copies and len(free.phases) == parallel.in_flight
        try:
            validate_successive(free, plan)
        except PlanRejected:
            refused += 1
    assert refused == 6


def test_orders_of_puts_and_takes_differ() -> None:
    orders = {random_order(random.Random(seed), 5, 2) for seed in range(20)}
    assert len(orders) > 5 and all(sorted(order) == list("pppppttttt") for order in orders)
