"""Proposals of a guide for places in several memories: they hold limits, and no result is slower for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.networks.random_updates import random_update
from relay_passes.solvers.memories import search as memory_search
from relay_passes.solvers.memories.propose import FACT_LEADS, NUM_FACTS, Menus, candidates, facts_of, propose
from relay_passes.solvers.memories.search import assign
from relay_passes.solvers.memories.state import State
from tests.passes.test_memory_search import checked
from tests.support.memory_problems import in_sequences, on_two_cores, random_problem
from tvm_ext.compilation.learned_updates import learned_updates

SEEDS = st.integers(0, 10_000)


def by_chance(seed: int):
    """A guide that knows nothing: whatever it rates, what comes out has to be a plan."""
    random = np.random.default_rng(seed)
    return lambda facts: random.uniform(-1, 2, len(facts))


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(1, 14), st.integers(0, 40_000), st.booleans(), st.booleans(), st.booleans())
def test_any_ratings_come_to_a_plan(seed: int, steps: int, near: int, dma: bool, split: bool, learned: bool) -> None:
    problem = random_problem(seed, steps, near_bytes=near, dma=dma)
    problem = in_sequences(problem) if split else problem
    found = assign(problem, learned_updates().places if learned else by_chance(seed), most_trials=0)
    checked(problem, found)
    assert problem.predicted_cycles(found) <= problem.predicted_cycles(problem.at_home())


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.integers(2, 10), st.booleans())
def test_no_core_is_sent_where_it_does_not_reach(seed: int, steps: int, dma: bool) -> None:
    problem = on_two_cores(random_problem(seed, steps), seed, dma=dma)
    found = assign(problem, by_chance(seed), most_trials=0)
    for index, step in enumerate(problem.steps):
        memories = [found.places[value].memory_at(index, problem.default_memory) for value in step.reads]
        memories += [found.places[value].born for value in step.writes]
        assert all(problem.reaches(index, memory) for memory in memories)


@pytest.mark.parametrize("seed", range(5))
def test_no_result_is_slower_or_larger_for_a_guide(seed: int) -> None:
    problem = random_update(seed, 12).problem
    without = assign(problem)
    for rate in (learned_updates().places, by_chance(seed)):
        found = assign(problem, rate)
        assert problem.overflow(found) <= problem.overflow(without)
        if problem.overflow(found) == problem.overflow(without):
            assert problem.predicted_cycles(found) <= problem.predicted_cycles(without) + 1


def test_a_proposal_is_taken_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search whose time is over at once leaves everything home."""
    problem = random_update(3, 24).problem
    monkeypatch.setattr(memory_search._Search, "greedy", lambda _search: None)
    monkeypatch.setattr(memory_search._Search, "keep_near", lambda _search: None)
    without, found = assign(problem, most_trials=-1), assign(problem, learned_updates().places, most_trials=-1)
    assert (without.places, without.weights) == (problem.at_home().places, {})
    assert problem.predicted_cycles(found) < problem.predicted_cycles(without) / 2


def test_proposals_repeat() -> None:
    problem = random_update(7, 24).problem
    rate = learned_updates().places
    assert assign(problem, rate, most_trials=0) == assign(problem, rate, most_trials=0)


def test_ratings_decide_what_is_put_in() -> None:
    """Among the choices of an item that all save as much, the one that is rated best."""
    problem = random_update(4, 16).problem
    state = State(problem)
    choices = candidates(state, Menus(state, FACT_LEADS))
    facts = facts_of(state, choices)
    assert facts.shape == (len(choices), NUM_FACTS) and np.isfinite(facts).all()
    wanted = int(np.argmax(facts[:, 4] * (facts[:, 10] == 0)))  # the most saved without a transfer
    propose(state, Menus(State(problem), FACT_LEADS), lambda rows: np.eye(len(rows))[wanted])
    item, choice = choices[wanted]
    assert state.choices[item] == choice


def test_near_a_search_on_networks_that_it_has_not_seen() -> None:
    """The figures are in benchmarks/results/whole_updates.json; a guide that learned nothing is far from these."""
    gaps, chance = [], []
    for seed in (50_002, 50_003, 50_012, 50_013):
        problem = random_update(seed, 16).problem
        cycles = problem.predicted_cycles(assign(problem))
        gaps.append(problem.predicted_cycles(assign(problem, learned_updates().places, most_trials=0)) / cycles - 1)
        chance.append(problem.predicted_cycles(assign(problem, by_chance(seed), most_trials=0)) / cycles - 1)
    assert np.mean(gaps) < 0.05
    assert np.mean(gaps) < np.mean(chance)
