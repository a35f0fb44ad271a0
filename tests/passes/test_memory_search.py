"""The search behind AssignMemories: what it keeps up to date, what it holds, what it gains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relay_passes.solvers.memories import search as memory_search
from relay_passes.solvers.memories.assignment import Assignment, Place
from relay_passes.solvers.memories.problem import AssignmentProblem, Step
from relay_passes.solvers.memories.search import assign, assign_quickly
from relay_passes.solvers.memories.state import Item, State, Timeline, Transfer
from tests.support.memory_problems import always_on, in_sequences, random_problem
from tvm_ext.core.time_model import DOUBLE_WORDS, KernelTime, TimeModel

SEEDS = st.integers(0, 10_000)


def checked(problem: AssignmentProblem, found: Assignment) -> None:
    """Limits at every step, and every read and write from a copy that is there, by a count of its own."""
    used = {memory: np.zeros(len(problem.steps), int) for memory in (problem.default_memory, *problem.near)}
    for value, place in enumerate(found.places):
        there: dict[str, list[tuple[int, int]]] = {}
        for memory, begin, end in problem.occupied(value, place):
            used[memory][begin:end] += -(-problem.sizes[value] // 16) * 16
            there.setdefault(memory, []).append((begin, end))
        for use in problem.uses[value]:
            memory = place.memory_at(use, problem.default_memory)
            assert any(begin <= use < end for begin, end in there[memory]), (value, use, place)
        for move in problem.moves_of(value, place):
            assert move.start <= move.due
            assert not any(problem.steps[at].together for at in (move.start, move.due) if at < len(problem.steps))
            assert any(begin <= move.start and move.due <= end for begin, end in there[move.source])
            assert any(begin == move.start for begin, _ in there[move.target])
        ready = problem.home_again(value) if place.born != problem.default_memory else problem.makers.get(value, -1) + 1
        assert all(stay.start >= ready and stay.start <= stay.first <= stay.last for stay in place.stays)
        if value in problem.outputs or value not in problem.makers:
            assert place.born == problem.default_memory
    for index, copy in found.weights.items():
        assert copy.start <= index and problem.steps[index].movable
        used[copy.memory][copy.start : index + 1] += -(-problem.steps[index].weights_bytes // 16) * 16
    for memory in problem.near:
        shared = [max(step.shared.values(), default=0) for step in problem.steps]
        assert (used[memory] <= problem.limits[memory] + np.array(shared)).all()
    assert problem.overflow(found) == (0, 0)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(1, 14), st.integers(0, 40_000), st.booleans(), st.booleans())
@example(seed=233, steps=3, near=2000, dma=True, split=True)  # two uses within one sequence
def test_limits_are_held_and_nothing_gets_slower(seed: int, steps: int, near: int, dma: bool, split: bool) -> None:
    problem = random_problem(seed, steps, near_bytes=near, dma=dma)
    problem = in_sequences(problem) if split else problem
    for assigned in (assign, assign_quickly):
        found = assigned(problem)
        checked(problem, found)
        assert problem.predicted_cycles(found) <= problem.predicted_cycles(problem.at_home())
        assert assigned(problem) == found


def test_quick_assignments_are_near_the_search() -> None:
    gaps: list[float] = []
    for seed in range(8):
        problem = random_problem(seed, 14, near_bytes=8_000)
        cycles = [problem.predicted_cycles(by(problem)) for by in (assign_quickly, assign)]
        gaps.append(cycles[0] / cycles[1] - 1)
    assert np.mean(gaps) < 0.02


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(2, 12), st.integers(0, 40_000), st.booleans())
def test_no_choice_that_is_left_out_would_gain(seed: int, steps: int, near: int, dma: bool) -> None:
    """In any state, also where a fast memory is too small: a choice that may not gain has no better score."""
    problem = random_problem(seed, steps, near_bytes=near, dma=dma)
    search = memory_search._Search(problem)
    random = np.random.default_rng(seed)
    for item in search.items:
        menu = search.menus[item]
        search.state.set(item, menu[int(random.integers(len(menu)))])
    search.best = search.state.score()
    for item in search.items:
        before, may_gain = search.state.choices[item], search._may_gain(item)
        for choice in search.menus[item]:
            search.state.set(item, choice)
            assert may_gain(choice) or search.state.score() >= search.best
        search.state.set(item, before)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(2, 12), st.booleans())
def test_what_is_kept_up_to_date_is_what_the_problem_says(seed: int, steps: int, dma: bool) -> None:
    problem = random_problem(seed, steps, dma=dma)
    search = memory_search._Search(problem)
    state, random = search.state, np.random.default_rng(seed)
    for _ in range(30):
        item = search.items[int(random.integers(len(search.items)))] if search.items else next(iter(state.choices))
        menu = search.menus[item]
        state.set(item, menu[int(random.integers(len(menu)))])
        overflow, cycles = state.score()
        assert overflow == problem.overflow(state.assignment())
        assert cycles == pytest.approx(problem.predicted_cycles(state.assignment()))


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(2, 24), st.booleans(), st.integers(1, 4))
def test_times_after_changes_are_those_of_a_run_timed_anew(seed: int, steps: int, dma: bool, often: int) -> None:
    """To the last bit, wherever a change begins and ends, and however often what differs is kept."""
    problem = random_problem(seed, steps, dma=dma)
    search = memory_search._Search(problem)
    state, random = search.state, np.random.default_rng(seed)
    for turn in range(24 if search.items else 0):
        item = search.items[int(random.integers(len(search.items)))]
        menu = search.menus[item]
        before = state.choices[item]
        state.set(item, menu[int(random.integers(len(menu)))])
        anew = State(problem)
        for other, choice in state.choices.items():
            anew.set(other, choice)
        anew.settle()
        assert state.score() == anew.score()
        assert all(state.crowded(memory) == anew.crowded(memory) for memory in problem.near)
        at = int(random.integers(steps))
        assert state.items_at("dtcm", at) == anew.items_at("dtcm", at)
        if turn % often == 0:
            state.settle()
        elif turn % 3 == 0:
            state.set(item, before)


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.integers(2, 20))
def test_a_change_is_timed_as_the_whole(seed: int, steps: int) -> None:
    """Many transfers, some longer than the steps beside them: also of those under way where a change begins or ends."""
    random = np.random.default_rng(seed)
    cycles = [float(random.integers(1, 200)) for _ in range(steps)]
    starting: dict[int, list[Transfer]] = {}
    for number in range(int(random.integers(1, 2 * steps))):
        start = int(random.integers(steps))
        due = min(steps, start + int(random.integers(0, 6)))
        transfer = due, (number,), float(random.integers(1, 500)), bool(random.random() < 0.8)
        starting.setdefault(start, []).append(transfer)
    kept = Timeline(cycles, starting)
    for _ in range(4):
        first = int(random.integers(steps))
        cycles[first] += float(random.integers(-20, 400))
        last = first
        if starting.get(first) and random.random() < 0.5:
            due, *_ = starting[first].pop()
            last = max(last, due)
        elif random.random() < 0.5:
            due = min(steps, first + int(random.integers(0, 9)))
            starting.setdefault(first, []).append((due, (steps,), float(random.integers(1, 900)), True))
            last = max(last, first)
        assert kept.finish(first, last) == Timeline(cycles, starting).finish(steps, -1)
        kept.settle(first)


def chain(*sizes: int, limit: int, skip: bool = False) -> AssignmentProblem:
    """Values one after the other, each step as slow as its operands; skip: the last step reads the first result too."""
    kernel = KernelTime.of(DOUBLE_WORDS)
    steps = [
        Step(cycles=1000, reads={i: 20 * sizes[i]}, writes={i + 1: sizes[i + 1]}, kernel=kernel)
        for i in range(len(sizes) - 1)
    ]
    if skip:
        steps[-1] = replace(steps[-1], reads={len(sizes) - 2: sizes[-2], 1: 20 * sizes[1]})
    return AssignmentProblem(
        steps=tuple(steps), sizes=sizes, outputs=frozenset({len(sizes) - 1}), default_memory="sram", near=("dtcm",),
        limits={"sram": 1 << 30, "dtcm": limit}, stored="flash", time=TimeModel(platform=always_on()),
    )  # fmt: skip


def test_what_fits_is_made_near() -> None:
    found = assign(chain(64, 1024, 1024, 1024, 64, limit=4096))
    assert [place.born for place in found.places] == ["sram", "dtcm", "dtcm", "dtcm", "sram"]


def test_what_is_wanted_last_is_spilled_and_fetched_back() -> None:
    """Room for two values: the first is in the way of the third and the fourth, and is read again at the end."""
    problem = chain(64, 4096, 4096, 4096, 4096, 4096, 64, limit=2 * 4096, skip=True)
    found = assign(problem)
    checked(problem, found)
    place = found.places[1]
    assert place.born == "dtcm" and len(place.stays) == 1
    spill, fetch = problem.moves_of(1, place)
    assert (spill.source, spill.target, spill.spills) == ("dtcm", "sram", True)
    assert (fetch.source, fetch.target) == ("sram", "dtcm")
    assert fetch.start >= 4
    assert problem.predicted_cycles(found) < 0.6 * problem.predicted_cycles(problem.at_home())


def test_without_room_everything_stays() -> None:
    problem = chain(64, 1024, 1024, 64, limit=16)
    assert assign(problem) == problem.at_home()


def test_outputs_and_inputs_are_made_where_callers_expect_them() -> None:
    problem = chain(64, 64, limit=4096)
    assert all(place.born == "sram" for place in assign(problem).places)


def test_items_are_told_apart() -> None:
    state = State(chain(64, 64, limit=64))
    assert state.choices[Item("value", 0)] == Place(born="sram", born_last=1)
