"""Random programs on one to three processors: validated, run under random interleavings, refused without any signal."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from codegen_c.arena.memory_plan import Arena, MemoryPlan, Placement
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate_order import validate_order
from codegen_c.program.parallel import ParallelProgram, RunStep, order_of
from codegen_c.program.program import Program
from codegen_c.program.reference import run
from codegen_c.program.share_steps import share_steps
from codegen_c.program.steps import scratch_bytes
from tests.support.interleavings import Deadlock, run_interleaved
from tests.support.parallel_programs import random_lists, random_program
from tests.support.sweeps import some_of
from tvm_ext.core.errors import PlanRejected

Shared = tuple[ParallelProgram, MemoryPlan]
PROGRAMS_PER_CASE = 10


@cache
def drawn(seed: int) -> tuple[Program, Shared, Shared]:
    """A program, in lists with memory for all interleavings, and in lists that keep to the memory of one processor."""
    rng = random.Random(seed)
    program = random_program(seed, rng.randint(3, 20))
    lists = shuffled(program, random_lists(program, seed, rng.choice([1, 2, 2, 3, 3])), rng)
    held = rng.choice([(), (), (*program.inputs, *program.outputs)])
    parallel = share_steps(program, lists)
    planned, plan = plan_memory(parallel.program, activations="ram", held_by_caller=held, order=order_of(parallel))
    alone, tight = plan_memory(parallel.program, activations="ram", held_by_caller=held)
    return program, (replace(parallel, program=planned), plan), (share_steps(alone, lists, tight.places), tight)


def shuffled(program: Program, lists: dict[str, list[str]], rng: random.Random) -> dict[str, list[str]]:
    """Lists in which some steps changed places, where that can be."""
    for _ in range(rng.choice([0, 3, 10])):
        names = rng.choice(list(lists.values()))
        if len(names) < 2:
            continue
        index = rng.randrange(len(names) - 1)
        other = [*names[:index], names[index + 1], names[index], *names[index + 2 :]]
        changed = {key: other if listed is names else listed for key, listed in lists.items()}
        try:
            parallel = share_steps(program, changed)
            validate_order(parallel, beside(parallel.program))
        except PlanRejected:  # steps that wait for each other, or transfers out of turn
            continue
        lists = changed
    return lists


def without(parallel: ParallelProgram, signal: int) -> ParallelProgram:
    lists = [
        replace(s, entries=tuple(e for e in s.entries if isinstance(e, RunStep) or e.signal != signal))
        for s in parallel.lists
    ]
    return replace(parallel, lists=tuple(lists))


def runs(program: Program, seed: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        {name: rng.integers(0, 256, program.tensors[name].shape, np.uint8) for name in program.inputs} for _ in range(2)
    ]


def wrong(program: Program, shared: Shared, seed: int) -> bool:
    """True if a run under some interleaving ends in other bytes than one processor's, or not at all."""
    given = runs(program, seed)
    try:
        found = run_interleaved(*shared, given, seed)
    except Deadlock:
        return True
    expected = [run(program, inputs) for inputs in given]
    return any((want[name] != got[name]).any() for want, got in zip(expected, found, strict=True) for name in got)


def seeds(case: int) -> Iterator[int]:
    yield from range(case * PROGRAMS_PER_CASE, (case + 1) * PROGRAMS_PER_CASE)


CASES = some_of(range(6), sweep=range(6, 60))


@pytest.mark.parametrize("case", CASES)
def test_every_interleaving_leaves_the_bytes_of_one_processor(case: int) -> None:
    for seed in seeds(case):
        program, *ways = drawn(seed)
        for shared in ways:
            validate_order(*shared)
            assert not any(wrong(program, shared, turn) for turn in range(3)), seed


@pytest.mark.parametrize("case", CASES)
def test_no_signal_can_be_left_out(case: int) -> None:
    for seed in seeds(case):
        _, *ways = drawn(seed)
        for parallel, plan in ways:
            for signal in range(parallel.num_signals):
                with pytest.raises(PlanRejected):
                    validate_order(without(parallel, signal), plan)


def test_a_missing_signal_shows_as_a_wrong_byte() -> None:
    """So the runs above can fail; those of a missing end of the run, or of bytes that agree by chance, seldom show."""
    shown = total = 0
    for seed in range(10):
        program, *ways = drawn(seed)
        for parallel, plan in ways:
            for signal in range(parallel.num_signals):
                total += 1
                shown += any(wrong(program, (without(parallel, signal), plan), turn) for turn in range(4))
    assert total > 40 and shown > 0.7 * total


def test_a_plan_of_one_processor_shows_as_a_wrong_byte() -> None:
    """Lists that order values alone, on a plan that knows nothing of other processors."""
    refused: list[bool] = []
    for seed in range(40):
        program, (parallel, _), (tight, plan) = drawn(seed)
        careless = replace(parallel, program=tight.program), plan
        try:
            validate_order(*careless)
            assert not any(wrong(program, careless, turn) for turn in range(3)), seed
        except PlanRejected:
            refused.append(any(wrong(program, careless, turn) for turn in range(10)))
    assert len(refused) > 10 and sum(refused) > 0.6 * len(refused)


def test_programs_of_1000_steps() -> None:
    program = random_program(1, 1000)
    plan = beside(program)
    parallel = share_steps(program, random_lists(program, 3, 3), plan.places)
    assert len(parallel.program.steps) >= 1000 and parallel.num_signals > 300
    validate_order(parallel, plan)
    with pytest.raises(PlanRejected):
        validate_order(without(parallel, parallel.num_signals // 2), plan)


def beside(program: Program) -> MemoryPlan:
    """Everything beside everything."""
    places: dict[str, Placement] = {}
    ends = {"ram": 0, "fast": 0}
    sizes = {name: (tensor.memory, tensor.num_bytes) for name, tensor in program.tensors.items() if not tensor.part}
    sizes |= {f"{step.name}_scratch": ("ram", scratch_bytes(step)) for step in program.steps if scratch_bytes(step)}
    for name, (memory, size) in sizes.items():
        places[name] = Placement(name=name, memory=memory, offset=ends[memory], num_bytes=size, begin=0, end=1)
        places[name] = replace(places[name], is_scratch=name.endswith("_scratch"))
        ends[memory] += -(-size // 16) * 16
    for name, tensor in program.tensors.items():
        if tensor.part:
            whole, first = places[tensor.part.tensor], tensor.part.first
            part = replace(whole, name=name, offset=whole.offset + first, num_bytes=tensor.num_bytes)
            places[name] = replace(part, part_of=whole.name)
    arenas = [Arena(memory=name, num_bytes=end, lower_bound_bytes=0, peak_step=0) for name, end in ends.items()]
    return MemoryPlan(placements=places, arenas=tuple(arenas))
