"""The complete search against brute force on small problems: alignment, fixed offsets, gaps, partial overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.arena import exact
from codegen_c.arena.exact import place_below
from codegen_c.arena.problem import Buffer, Choice, Gap, height, lower_bound
from codegen_c.arena.solve import optimise
from tvm_ext.core.errors import PlanRejected

PROBLEMS = settings(max_examples=60, deadline=None, derandomize=True)
NODES = 1_000_000
HIGHEST = 24


@st.composite
def buffers(draw: st.DrawFn, gaps: bool = False) -> Buffer:
    begin = draw(st.integers(0, 5))
    end = begin + draw(st.integers(1, 5))
    size = draw(st.integers(1, 4))
    alignment = draw(st.sampled_from((1, 1, 2, 3)))
    holes: tuple[Gap, ...] = ()
    if gaps and end - begin > 2 and draw(st.booleans()):
        low = draw(st.integers(0, size - 1))
        holes = (Gap(begin=begin + 1, end=end - 1, low=low, high=draw(st.sampled_from((low, size)))),)
    return Buffer(begin=begin, end=end, size=size, alignment=alignment, gaps=holes)


def bytes_at(buffer: Buffer, offset: int, time: int) -> set[int]:
    """Addresses in use; written without the solver's notion of extents."""
    if not buffer.begin <= time < buffer.end:
        return set()
    for gap in buffer.gaps:
        if gap.begin <= time < gap.end:
            return set(range(offset + gap.low, offset + gap.high))
    return set(range(offset, offset + buffer.size))


def agree(
    a: int, x: int, b: int, y: int, problem: Sequence[Buffer], choices: Sequence[dict[tuple[int, int], int]]
) -> bool:
    for way in choices:
        if (a, b) in way or (b, a) in way:
            above = way.get((a, b), problem[a].size)
            below = way.get((b, a), problem[b].size)
            return x + above <= y or y + below <= x
    return not any(bytes_at(problem[a], x, t) & bytes_at(problem[b], y, t) for t in range(12))


def lowest(problem: Sequence[Buffer], ways: Sequence[dict[tuple[int, int], int]] = ()) -> int:
    """Height of the best solution, by trying all offsets of all buffers."""

    def reaches(limit: int, offsets: list[int]) -> bool:
        index = len(offsets)
        if index == len(problem):
            return True
        buffer = problem[index]
        places = range(0, limit - buffer.size + 1, buffer.alignment) if buffer.offset is None else (buffer.offset,)
        for place in places:
            if place + buffer.size > limit:
                continue
            if all(agree(j, y, index, place, problem, ways) for j, y in enumerate(offsets)) and reaches(
                limit, [*offsets, place]
            ):
                return True
        return False

    return next(limit for limit in range(HIGHEST + 1) if reaches(limit, []))


def assert_minimal(problem: Sequence[Buffer], best: int) -> None:
    found = place_below(problem, {}, best, NODES)
    assert found.offsets is not None
    assert height(problem, found.offsets) == best
    for i, x in enumerate(found.offsets):
        assert x % problem[i].alignment == 0 or problem[i].offset == x
        assert all(agree(j, y, i, x, problem, ()) for j, y in enumerate(found.offsets[:i]))
    below = place_below(problem, {}, best - 1, NODES)
    assert below.offsets is None and below.exhausted


@PROBLEMS
@given(st.lists(buffers(), min_size=1, max_size=6))
@pytest.mark.slow
def test_exact_is_minimal(problem: list[Buffer]) -> None:
    assert_minimal(problem, lowest(problem))


@PROBLEMS
@given(st.lists(buffers(), min_size=1, max_size=5), st.integers(0, 6))
def test_exact_is_minimal_around_a_fixed_buffer(problem: list[Buffer], offset: int) -> None:
    problem = [replace(problem[0], offset=offset, alignment=1), *problem[1:]]
    assert_minimal(problem, lowest(problem))


@PROBLEMS
@given(st.lists(buffers(gaps=True), min_size=1, max_size=5))
def test_gaps_are_valid_and_never_proved_wrongly(problem: list[Buffer]) -> None:
    """Where windows let buffers interleave, less is promised: valid offsets, and no proof that is wrong."""
    best = lowest(problem)
    found, below = place_below(problem, {}, HIGHEST, NODES), place_below(problem, {}, best, NODES)
    assert found.offsets is not None and not below.exhausted
    for i, x in enumerate(found.offsets):
        assert all(agree(j, y, i, x, problem, ()) for j, y in enumerate(found.offsets[:i]))
    assert place_below(problem, {}, best - 1, NODES).offsets is None
    solution = optimise(problem)
    assert solution.lower_bound_bytes <= best <= solution.num_bytes


@PROBLEMS
@given(st.lists(buffers(), min_size=2, max_size=5), st.data())
@pytest.mark.slow
def test_choices_are_minimal(problem: list[Buffer], data: st.DataObject) -> None:
    """Pairs of one choice either all go up or all go down; the best way is found, and it is proved."""
    problem = [replace(buffer, alignment=1, begin=0, end=2) for buffer in problem]
    ups = {(0, i): data.draw(st.integers(0, problem[0].size)) for i in range(1, min(3, len(problem)))}
    downs = {(i, 0): data.draw(st.integers(0, problem[i].size)) for _, i in ups}
    choices: list[Choice] = [(ups, downs)]
    best = min(lowest(problem, [ups]), lowest(problem, [downs]))
    solution = optimise(problem, choices, bound=0)
    assert solution.num_bytes == best and solution.proved


@PROBLEMS
@given(st.lists(buffers(), min_size=1, max_size=6))
@pytest.mark.slow
def test_beams_find_offsets_where_there_is_room_and_prove_nothing(problem: list[Buffer]) -> None:
    best = lowest(problem)
    for capacity in (2 * HIGHEST, best):
        found = place_below(problem, {}, capacity, 0, beams=2)
        assert found.offsets is not None or capacity == best
        for i, x in enumerate(found.offsets or ()):
            assert x % problem[i].alignment == 0 and 0 <= x <= capacity - problem[i].size
            assert all(agree(j, y, i, x, problem, ()) for j, y in enumerate((found.offsets or ())[:i]))
    below = place_below(problem, {}, best - 1, 0, beams=2)
    assert below.offsets is None and not below.exhausted


@PROBLEMS
@given(st.lists(buffers(gaps=True), min_size=1, max_size=5), st.integers(0, 6))
def test_beams_keep_fixed_offsets_and_gaps(problem: list[Buffer], offset: int) -> None:
    problem = [replace(problem[0], offset=offset, alignment=1), *problem[1:]]
    found = place_below(problem, {}, 2 * HIGHEST, 0, beams=2)
    for i, x in enumerate(found.offsets or ()):
        assert x == (problem[i].offset if problem[i].offset is not None else x) and x % problem[i].alignment == 0
        assert all(agree(j, y, i, x, problem, ()) for j, y in enumerate((found.offsets or ())[:i]))


def test_beams_give_the_same_offsets_each_time() -> None:
    problem = [Buffer(begin=i % 5, end=i % 5 + 1 + i % 3, size=3 + 7 * i % 11) for i in range(24)]
    first, again = (place_below(problem, {}, 3 * lower_bound(problem), 0, beams=1) for _ in range(2))
    assert first.offsets is not None and first == again


def test_a_bound_that_cannot_be_reached_is_raised() -> None:
    """Aligned to 16, two buffers of 8 B need 24 B though only 16 B are in use."""
    problem = [Buffer(begin=0, end=2, size=8, alignment=16), Buffer(begin=1, end=3, size=8, alignment=16)]
    solution = optimise(problem)
    assert lower_bound(problem) == 16
    assert (solution.num_bytes, solution.lower_bound_bytes, solution.proved) == (24, 24, True)


def test_fixed_buffers_that_overlap_are_rejected() -> None:
    with pytest.raises(PlanRejected, match=r"buffers 0 \(8 B at 0\) and 1 \(8 B at 4\) .* Move one of them"):
        optimise([Buffer(begin=0, end=2, size=8, offset=0), Buffer(begin=1, end=3, size=8, offset=4)])


def test_a_buffer_fixed_above_the_capacity_proves_that_nothing_fits() -> None:
    assert place_below([Buffer(begin=0, end=1, size=8, offset=8)], {}, 15, NODES).exhausted


def test_without_time_left_nothing_is_claimed() -> None:
    outcome = place_below([Buffer(begin=0, end=1, size=8)], {}, 8, 0)
    assert outcome.offsets is None and not outcome.exhausted


def test_without_a_compiler_first_fit_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = [Buffer(begin=0, end=2, size=8, alignment=16), Buffer(begin=1, end=3, size=8, alignment=16)]
    monkeypatch.setenv("CC", "no-such-compiler")
    exact._library.cache_clear()
    try:
        assert not exact.is_available()
        solution = optimise(problem)
    finally:
        exact._library.cache_clear()
    assert (solution.num_bytes, solution.lower_bound_bytes, solution.proved) == (24, 16, False)
