"""Tensors alive at once under some interleaving, compared with all interleavings; plans that hold under all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from codegen_c.arena.at_once import at_once
from codegen_c.arena.lifetimes import lifetimes
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate_order import validate_order
from codegen_c.program.parallel import ParallelProgram, StepOrder, order_of
from codegen_c.program.program import Program
from codegen_c.program.share_steps import share_steps
from codegen_c.program.steps import reads, scratch_bytes, writes
from tests.arena.programs import call, program
from tests.support.parallel_programs import in_place, random_lists, random_program
from tvm_ext.core.errors import BadOptions

CHAINS = program(
    {"x": 16, "a": 32, "b": 16, "c": 48, "d": 16, "y": 16},
    call("s0", "x", "a"), call("s1", "a", "b"), call("s2", "x", "c"), call("s3", "c", "d"), call("s4", "b d", "y"),
)  # fmt: skip
APART = {"c0": ["s0", "s1", "s4"], "c1": ["s2", "s3"]}


def interleavings(order: StepOrder) -> Iterator[tuple[tuple[str, int], ...]]:
    """Every order of begins and ends of steps that a partial order allows."""
    count = len(order.home)

    def after(done: tuple[tuple[str, int], ...]) -> Iterator[tuple[tuple[str, int], ...]]:
        if len(done) == 2 * count:
            yield done
        for step in range(count):
            begun, ended = ("begin", step) in done, ("end", step) in done
            if begun and not ended:
                yield from after((*done, ("end", step)))
            if not begun and all(("end", i) in done for i in range(count) if i != step and order.before(i, step)):
                yield from after((*done, ("begin", step)))

    yield from after(())


def seen_at_once(made: Program, order: StepOrder) -> set[frozenset[str]]:
    """Pairs of tensors alive at once in at least one interleaving."""
    found: set[frozenset[str]] = set()
    touched = {
        name: [i for i, step in enumerate(made.steps) if name in (*reads(step), *writes(step))] for name in made.tensors
    }
    touched |= {f"{step.name}_scratch": [i] for i, step in enumerate(made.steps) if scratch_bytes(step)}
    for events in interleavings(order):
        time = {event: number for number, event in enumerate(events)}
        spans = {
            name: (min(time["begin", i] for i in used), max(time["end", i] for i in used))
            for name, used in touched.items()
        }
        spans |= {name: (-1, spans[name][1]) for name in made.inputs}
        spans |= {name: (spans[name][0], len(events)) for name in made.outputs}
        names = list(spans)
        found |= {
            frozenset((one, other)) for k, one in enumerate(names) for other in names[k + 1 :]
            if spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]
        }  # fmt: skip
    return found


@pytest.mark.parametrize(
    "lists",
    [
        APART, {"c0": ["s0", "s1", "s2", "s3", "s4"]}, {"c0": ["s0", "s2", "s4"], "c1": ["s1", "s3"]},
        {"c0": ["s0"], "c1": ["s1", "s4"], "c2": ["s2", "s3"]}, {"c0": ["s4"], "c1": ["s0", "s3"], "c2": ["s2", "s1"]},
    ],
)  # fmt: skip
def test_pairs_are_those_of_all_interleavings(lists: dict[str, list[str]]) -> None:
    steps = (*CHAINS.steps[:1], call("s1", "a", "b", scratch_bytes=8), *CHAINS.steps[2:])
    made = share_steps(replace(CHAINS, steps=steps), lists)
    uses, expected = at_once(made.program, order_of(made)), seen_at_once(made.program, order_of(made))
    names = list(uses.touched)
    pairs = {frozenset((one, other)) for one in names for other in names if one != other and uses.meet(one, other)}
    assert pairs == expected
    if len(lists) == 1:
        alive = lifetimes(made.program)
        assert frozenset("ac") not in pairs and alive["a"][1] <= alive["c"][0]
    if lists == APART:
        assert frozenset("ac") in pairs and frozenset("ay") not in pairs


@pytest.mark.parametrize("seed", range(10))
def test_on_one_processor_pairs_are_those_of_lifetimes(seed: int) -> None:
    given = random_program(seed, 12)
    alone = share_steps(given, random_lists(given, seed, 1))
    alive = lifetimes(given)
    uses = at_once(alone.program, order_of(alone))
    spans = {name: alive.get(name, (steps[0], steps[0] + 1)) for name, steps in uses.touched.items()}
    meet = np.array([[a[0] < b[1] and b[0] < a[1] for b in spans.values()] for a in spans.values()])
    pairs = uses.pairs(list(spans))
    assert (pairs == meet & ~np.eye(len(meet), dtype=bool)).all()
    several = share_steps(given, random_lists(given, seed, 3))
    more = at_once(several.program, order_of(several)).pairs(list(spans))
    assert (more == more.T).all() and (more | ~pairs).all()


def shared(made: Program, lists: dict[str, list[str]], **options: object) -> tuple[ParallelProgram, int]:
    """The program in lists, planned for all interleavings and validated, and the bytes of its arena."""
    parallel = share_steps(made, lists)
    planned, plan = plan_memory(parallel.program, activations="ram", order=order_of(parallel), **options)
    parallel = replace(parallel, program=planned)
    validate_order(parallel, plan)
    return parallel, plan.bytes_in("ram")


def test_chains_on_two_processors_lie_beside_each_other() -> None:
    assert plan_memory(CHAINS, activations="ram")[1].arena_bytes == 16 + 16 + 48
    assert shared(CHAINS, APART)[1] == 16 + 32 + 16 + 48 + 16
    assert shared(CHAINS, {"c0": ["s0", "s1", "s2", "s3", "s4"]})[1] == 16 + 16 + 48


def test_an_output_takes_the_place_of_an_input_that_no_other_processor_reads() -> None:
    base = program({"x": 16, "a": 64, "b": 16, "c": 64, "y": 16}, call("s0", "x", "a"))
    last = in_place("s2", base.tensors["a"], base.tensors["c"])
    made = replace(base, steps=(*base.steps, call("s1", "a", "b"), last, call("s3", "b c", "y")))
    assert plan_memory(made, activations="ram")[1].arena_bytes == 64 + 16 + 16
    assert shared(made, {"c0": ["s0", "s1", "s3"], "c1": ["s2"]})[1] == 64 + 16 + 64
    assert shared(made, {"c0": ["s0"], "c1": ["s1", "s2"], "c2": ["s3"]})[1] == 64 + 16 + 16
    parallel, num_bytes = shared(made, {"c0": ["s0", "s1", "s2", "s3"], "c1": []})
    assert num_bytes == 64 + 16 + 16 and parallel.num_signals == 0


def test_kept_and_held_tensors() -> None:
    assert shared(CHAINS, APART, kept=["x", "a", "c"])[1] == 16 + 32 + 16 + 48 + 16 + 16
    assert shared(CHAINS, APART, held_by_caller=["x", "y"])[1] == 32 + 16 + 48 + 16


def test_pins_of_tensors_that_only_other_processors_use_at_once() -> None:
    """a is dead behind s1 where one processor runs all, and c made after it."""
    pinned = {"a": 64, "c": 64}
    plan_memory(CHAINS, activations="ram", pinned=pinned)
    with pytest.raises(
        BadOptions, match="pin c=64: a is pinned to bytes 64 to 96 of ram and is needed at the same time"
    ):
        shared(CHAINS, APART, pinned=pinned)
    assert shared(CHAINS, APART, pinned={"a": 64, "c": 96})[1] == 144


def test_a_program_without_steps() -> None:
    empty = replace(program({"x": 16}, inputs="x", outputs="x"), steps=())
    parallel, num_bytes = shared(empty, {"c0": []})
    assert num_bytes == 16 and parallel.lists[0].entries == ()
