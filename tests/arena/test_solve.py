"""Offsets for buffers with lifetimes: made-up problems, and the published ones."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.arena.exact import _windows  # pyright: ignore[reportPrivateUsage]
from codegen_c.arena.solve import Buffer, _pressures, height, lower_bound, solve  # pyright: ignore[reportPrivateUsage]
from tests.support.sweeps import some_of

PROBLEMS = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def buffers(draw: st.DrawFn) -> Buffer:
    begin = draw(st.integers(0, 12))
    return Buffer(
        begin=begin,
        end=begin + draw(st.integers(1, 6)),
        size=draw(st.integers(0, 64)),
        alignment=draw(st.sampled_from((1, 4, 16))),
    )


def assert_valid(problem: list[Buffer], offsets: list[int]) -> None:
    """No two buffers share a byte at a time; written without the solver's own notion of overlap."""
    assert len(offsets) == len(problem)
    for i, (a, x) in enumerate(zip(problem, offsets, strict=True)):
        assert x >= 0 and x % a.alignment == 0
        for b, y in zip(problem[:i], offsets[:i], strict=True):
            apart_in_time = a.end <= b.begin or b.end <= a.begin
            apart_in_space = x + a.size <= y or y + b.size <= x
            assert apart_in_time or apart_in_space or 0 in (a.size, b.size), (a, x, b, y)


@PROBLEMS
@given(st.lists(buffers(), min_size=1, max_size=12))
def test_live_bytes_at_each_time_and_buffers_of_each_window(problem: list[Buffer]) -> None:
    """The sorted sweeps give what comparing every buffer with every time gives."""
    begins = sorted({buffer.begin for buffer in problem})
    live = {time: sum(b.size for b in problem if b.begin <= time < b.end) for time in begins}
    assert _pressures(problem) == [max(live[t] for t in begins if b.begin <= t < b.end) for b in problem]
    for width in (1, 2, 4):
        windows = zip(begins, begins[width - 1 :], strict=False)
        expected = [[i for i, b in enumerate(problem) if b.begin <= last and first < b.end] for first, last in windows]
        assert list(_windows(problem, width)) == expected


@PROBLEMS
@given(st.lists(buffers(), max_size=12))
def test_solutions_are_valid_and_never_below_the_bound(problem: list[Buffer]) -> None:
    offsets = solve(problem)
    assert_valid(problem, offsets)
    bound = max((sum(b.size for b in problem if b.begin <= t < b.end) for t in range(20)), default=0)
    assert lower_bound(problem) == bound <= height(problem, offsets)


@PROBLEMS
@given(st.lists(buffers(), max_size=12))
def test_the_same_problem_gives_the_same_solution(problem: list[Buffer]) -> None:
    assert solve(problem) == solve(list(problem))


@PROBLEMS
@given(st.lists(buffers(), max_size=12))
def test_no_more_than_without_any_sharing(problem: list[Buffer]) -> None:
    assert height(problem, solve(problem)) <= sum(b.size + b.alignment for b in problem)


def test_nothing() -> None:
    assert solve([]) == [] and lower_bound([]) == 0 and height([], []) == 0


def test_a_chain_needs_only_its_two_largest_neighbours() -> None:
    sizes = [100, 20, 80, 40, 60]
    chain = [Buffer(begin=i, end=i + 2, size=size) for i, size in enumerate(sizes)]
    assert height(chain, solve(chain)) == lower_bound(chain) == 120


def test_ends_are_exclusive() -> None:
    first, second = Buffer(begin=0, end=3, size=8), Buffer(begin=3, end=4, size=8)
    assert not first.overlaps(second) and solve([first, second]) == [0, 0]


def test_long_lifetimes_cost_no_time() -> None:
    """Work depends on the number of buffers, not on that of moments."""
    problem = [Buffer(begin=i, end=10**12 + i, size=1) for i in range(20)]
    assert height(problem, solve(problem)) == 20


@pytest.mark.parametrize("name", some_of(["A.1048576", "input.12"], sweep=["B.1048576", "C.1048576", "D.1048576"]))
@pytest.mark.slow
def test_published_problems(shared: Path, name: str) -> None:
    """Valid by first fit, whose heights are printed and not judged: the files' names say what can be reached."""
    path = shared / "allocation" / f"{name}.csv"
    if not path.is_file():
        pytest.skip(f"no allocation/{path.name} in {shared.name}")
    with path.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    problem = [Buffer(begin=int(r["lower"]), end=int(r["upper"]), size=int(r["size"])) for r in rows]
    offsets = solve(problem)
    assert_valid(problem, offsets)
    print(f"{name}: {height(problem, offsets)} B, bound {lower_bound(problem)} B")
    assert lower_bound(problem) <= min(int(name.rsplit(".", 1)[1]), height(problem, offsets))
