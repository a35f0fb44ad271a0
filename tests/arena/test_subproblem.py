"""Bounds from a few moments, and repairs of what lies too high: against brute force and by replay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.arena.exact import PackingProblem, raised_bound, repaired
from codegen_c.arena.problem import Buffer, clearances, height, lower_bound
from codegen_c.arena.solve import first_fit, optimise
from tests.arena.test_solve_exact import lowest

PROBLEMS = settings(max_examples=80, deadline=None, derandomize=True)


@st.composite
def problems(draw: st.DrawFn, most: int, size: int) -> list[Buffer]:
    spans = draw(
        st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4), st.integers(1, size)), min_size=1, max_size=most)
    )
    return [Buffer(begin=begin, end=begin + length, size=n) for begin, length, n in spans]


def problem_of(buffers: Sequence[Buffer]) -> PackingProblem:
    return PackingProblem(buffers=buffers, near=clearances(buffers), choices=[])


def assert_apart(buffers: Sequence[Buffer], offsets: Sequence[int]) -> None:
    for (a, x), (b, y) in combinations(zip(buffers, offsets, strict=True), 2):
        assert not a.overlaps(b) or x + a.size <= y or y + b.size <= x


@settings(PROBLEMS, max_examples=25)
@given(problems(most=6, size=4))
@pytest.mark.slow
def test_a_raised_bound_is_never_above_the_best_solution(buffers: list[Buffer]) -> None:
    best = lowest(buffers)
    reached = sum(buffer.size for buffer in buffers)
    assert lower_bound(buffers) <= raised_bound(problem_of(buffers), lower_bound(buffers), reached) <= best


def test_a_moment_that_needs_more_than_its_bytes() -> None:
    """Three buffers at once, of which two may share: by bytes 10, by place 14, for the third lies outside of both."""
    buffers = [Buffer(begin=0, end=1, size=8), Buffer(begin=0, end=1, size=6), Buffer(begin=0, end=1, size=4)]
    choices = [({(0, 1): 4},), ({(0, 2): 8},)]
    problem = PackingProblem(buffers=buffers, near=clearances(buffers), choices=choices)
    assert raised_bound(problem, 10, 18) == 14
    solution = optimise(buffers, choices, bound=10)
    assert (solution.num_bytes, solution.lower_bound_bytes, solution.proved) == (14, 14, True)


@PROBLEMS
@given(problems(most=24, size=64))
def test_what_was_repaired_is_below_the_capacity_and_apart(buffers: list[Buffer]) -> None:
    problem = problem_of(buffers)
    stacked = [sum(buffer.size for buffer in buffers[:index]) for index in range(len(buffers))]
    found = repaired(problem, stacked, first_fit(buffers, problem.near, (), 0).num_bytes)
    assert found is not None, "there is such a solution, and the whole problem is small"
    assert height(buffers, found) <= first_fit(buffers, problem.near, (), 0).num_bytes
    assert_apart(buffers, found)


def test_repair_leaves_alone_what_is_far_away() -> None:
    near = [Buffer(begin=0, end=2, size=10), Buffer(begin=1, end=3, size=10)]
    far = [Buffer(begin=900, end=902, size=5), Buffer(begin=901, end=903, size=7)]
    assert repaired(problem_of([*near, *far]), [0, 30, 8, 1], 20) in ([0, 10, 8, 1], [10, 0, 8, 1])


def test_fixed_buffers_stay() -> None:
    buffers = [Buffer(begin=0, end=2, size=10, offset=6), Buffer(begin=1, end=3, size=10)]
    assert repaired(problem_of(buffers), [6, 30], 26) == [6, 16]
    assert repaired(problem_of(buffers), [6, 30], 25) is None
