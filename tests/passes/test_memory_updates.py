"""Cuts, repeats and places of several memories decided together: problems that agree with other counts of the same,
updates that are never slower than places alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.networks.random_updates import RandomUpdate, random_update
from relay_passes.solvers.memories import updates
from relay_passes.solvers.memories.cuts import cut_problem
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.repeats import Rerun, promising, sequence_of
from relay_passes.solvers.memories.search import assign
from relay_passes.solvers.memories.state import State
from relay_passes.solvers.memories.updates import Update, Updates, repeated_problem
from relay_passes.solvers.recompute.in_rows import unrolled
from relay_passes.solvers.split.search import frontier
from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.time_model import UNIFORM, Traffic

SEEDS = (0, 1, 2, 4)
"""Networks that a frontier cuts."""


def network(seed: int, steps: int = 14) -> RandomUpdate:
    return random_update(70_000 + seed, steps)


@cache
def fastest(seed: int) -> tuple[Update, Update]:
    """Return the fastest update of the network, and the unchanged network."""
    of = network(seed)
    return Updates(of.problem, of.segments).fastest()


def order(of: RandomUpdate) -> tuple[int, ...]:
    return tuple(range(len(of.problem.steps)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_takes_the_bytes_that_the_search_for_rows_counts(seed: int) -> None:
    of = network(seed)
    segments = of.segments(order(of))
    cuts = frontier(segments)
    assert any(part.rows_per_call for cut in cuts for part in cut.segments)
    for cut in cuts:
        problem, _ = cut_problem(of.problem, segments, cut.segments)
        used = max(problem.usage(problem.at_home())[problem.default_memory])
        assert 0 <= used - cut.peak_bytes <= ALIGNMENT_BYTES * 8  # of what runs whole, bytes there are not rounded


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
def test_a_search_keeps_count_of_cut_problems(seed: int) -> None:
    """Figures that it keeps up to date piece by piece are what the problem says of its result."""
    of = network(seed)
    segments = of.segments(order(of))
    for cut in frontier(segments):
        problem, _ = cut_problem(of.problem, segments, cut.segments)
        found = assign(problem, most_trials=300)
        state = State(problem)
        state.take(found)
        assert state.assignment() == found
        assert state.overflow() == problem.overflow(found)
        assert state.begins()[-1] == pytest.approx(problem.predicted_cycles(found), rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_each_kernel_of_a_sequence_accesses_the_scratch_in_its_own_way(seed: int) -> None:
    """A first step whose kernel never begins a burst does not make the scratch of the others cheap."""
    of = network(seed)
    steps = [
        replace(step, kernel=replace(UNIFORM, scratch=Traffic(transactions=0, bursts=index / 8, num_bytes=1)))
        for index, step in enumerate(of.problem.steps)
    ]
    problem, segments = replace(of.problem, steps=tuple(steps)), of.segments(order(of))
    cut, _ = cut_problem(problem, segments, frontier(segments)[-1].segments)
    assert any(step.together for step in cut.steps)
    memory = problem.default_memory
    apart, together = (sum(one.scratch_cycles(index, memory) for index in order(of)) for one in (problem, cut))
    assert together == pytest.approx(apart, rel=0.01)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_moves_within_a_sequence(seed: int) -> None:
    of = network(seed)
    segments = of.segments(order(of))
    problem, hosts = cut_problem(of.problem, segments, frontier(segments)[-1].segments)
    found = assign(problem, most_trials=300)
    for value, place in enumerate(found.places):
        for move in problem.moves_of(value, place):
            at = [step for step in (move.start, move.due) if step < len(problem.steps)]
            assert not any(problem.steps[step].together for step in at)
        assert value not in hosts or place == problem.at_home().places[value]
    for index, copy in found.weights.items():
        assert copy.start == problem.boundary_to(copy.start) <= problem.boundary_to(index)


@pytest.mark.parametrize("seed", SEEDS)
def test_repeats_are_numbered_as_by_rows(seed: int) -> None:
    of, random = network(seed), np.random.default_rng(seed)
    steps = len(of.problem.steps)
    reader = int(random.integers(3, steps))
    sequence = sequence_of(steps, [Rerun(int(random.integers(reader - 2)), reader, 0, 1.0, 1.0)])
    again = replace(of, problem=repeated_problem(of.problem, sequence))
    assert again.graph == unrolled(of.graph, sequence)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
def test_never_slower_than_places_alone(seed: int) -> None:
    found, uncut = fastest(seed)
    assert uncut.assignment == assign(network(seed).problem)
    assert found.score <= uncut.score


@pytest.mark.slow
def test_cuts_and_repeats_make_networks_faster() -> None:
    """A twentieth at least in the mean of a few random ones; quick assignments come near that."""
    parts: list[tuple[float, float]] = []
    for seed in range(8):
        of = network(seed)
        found, uncut = fastest(seed)
        quick = Updates(of.problem, of.segments).ranked()[0]
        assert quick.problem.overflow(quick.assignment) == quick.score.overflow
        if found.score.overflow == uncut.score.overflow == quick.score.overflow:
            parts.append((found.score.cycles / uncut.score.cycles, quick.score.cycles / uncut.score.cycles))
    searched, quickly = np.mean(parts, axis=0)
    assert searched < 0.95
    assert quickly < searched + 0.05


def test_a_value_that_is_dear_to_read_is_made_again() -> None:
    """Reading it at home takes longer than its maker does; not so with a dear maker."""
    of = network(1)
    found = promising(_slow_home(of.problem))
    assert found
    assert found == sorted(found, key=lambda one: one.again / one.kept)
    for one in found:
        (value,) = of.problem.steps[one.maker].writes
        assert value in of.problem.steps[one.reader].reads
        assert one.reader - one.since >= 3
    dear = tuple(replace(step, cycles=1e12) for step in of.problem.steps)
    assert not promising(_slow_home(replace(of.problem, steps=dear)))


def _slow_home(problem: AssignmentProblem) -> AssignmentProblem:
    platform = problem.time.platform
    links = [replace(link, bytes_per_cycle=0.01) if link.target == "sram" else link for link in platform.links]
    return replace(problem, time=replace(problem.time, platform=replace(platform, links=tuple(links))))


def test_the_unchanged_network_is_whole() -> None:
    of = network(0)
    uncut = Updates(of.problem, of.segments).searched()[-1]
    assert uncut.problem == of.problem
    assert not any(part.rows_per_call for part in uncut.cut.segments)


def test_a_network_of_many_steps_is_cut_without_recomputation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the cuts of least expected time are tried."""
    of = network(2)
    monkeypatch.setattr(updates, "MOST_STEPS", 8)
    monkeypatch.setattr(Updates, "cuts", None)
    monkeypatch.setattr(updates, "promising", None)
    fastest, uncut = Updates(of.problem, of.segments).fastest()
    assert fastest.score < uncut.score
    assert fastest.sequence == order(of)
