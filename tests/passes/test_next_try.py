"""The next try as a pure function of made-up histories: no model, no compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tvm_ext.fitting.next_try import (
    MOST_IN_VAIN,
    MOST_SPILLS,
    MOST_TRIES,
    NEGLIGIBLE,
    Method,
    Offer,
    Tried,
    Try,
    likely_tries,
    next_try,
)

WHOLE = Method(name="whole")
SPLIT = Method(name="split", floor="whole")
STRIPS = Method(name="strips", floor="whole", is_estimated=True)
LEAN = Method(name="lean", floor="whole")
LEAN_SPLIT = Method(name="lean split", floor="lean")
INT8 = Method(name="int8", group=1)
TABLE = (WHOLE, SPLIT, STRIPS, LEAN, LEAN_SPLIT, INT8)

Outcomes = Mapping[str, Sequence[tuple[int | None, int]]]
"""Method -> bytes and instructions that each of its offers comes to; None for bytes: it finds nothing."""


def offers_of(outcomes: Outcomes, modelled: Outcomes | None = None) -> Mapping[str, tuple[Offer, ...]]:
    """Offers that promise what comes, or what a model of it says; of what no pass makes smaller nothing is known."""

    def offer(name: str, num_bytes: int | None, instructions: int) -> Offer:
        floor = 1000 if not name.startswith("lean") else 2000
        if name in ("whole", "lean", "int8"):
            return Offer()
        return Offer(budget_bytes=1, arena_bytes=num_bytes or 0, added_instructions=max(0, instructions - floor))

    promised = {**outcomes, **(modelled or {})}
    return {name: tuple(offer(name, *row) for row in rows) for name, rows in promised.items()}


def played(
    outcomes: Outcomes, limit: int, modelled: Outcomes | None = None, weights_fit: bool = True
) -> tuple[Tried, ...]:
    """The history of a limit."""
    offers = offers_of(outcomes, modelled)
    methods = [method for method in TABLE if method.name in outcomes]
    history: tuple[Tried, ...] = ()
    while one := next_try(methods, lambda method: offers[method.name], history, limit):
        assert one not in [tried.one for tried in history]
        num_bytes, instructions = outcomes[one.method][one.index]
        fits = num_bytes is not None and num_bytes <= limit and weights_fit
        history += (Tried(one=one, arena_bytes=num_bytes, instructions=instructions, fits=fits),)
        assert len(history) <= MOST_TRIES
    return history


def names(history: Sequence[Tried]) -> list[tuple[str, int]]:
    return [(tried.one.method, tried.one.index) for tried in history]


CHAIN: Outcomes = {
    "whole": [(1000, 1000)],
    "split": [(800, 1100), (600, 1200), (400, 1300)],
    "strips": [(300, 1500), (200, 1700)],
    "lean": [(900, 3000)],
    "lean split": [(100, 3100)],
}


def test_the_whole_that_fits_is_the_only_try() -> None:
    assert names(played(CHAIN, 1000)) == [("whole", 0)]


def test_the_first_that_fits_of_a_method_ends_it() -> None:
    """Strips that promise more instructions are not tried; that the leanest cost more, one try shows."""
    assert names(played(CHAIN, 700)) == [("whole", 0), ("split", 1), ("lean", 0)]


def test_what_falls_short_of_its_promise_is_followed_by_the_next_offer() -> None:
    history = played(CHAIN | {"split": [(800, 1100), (640, 1200), (400, 1300)]}, 600, {"split": CHAIN["split"]})
    assert names(history)[:3] == [("whole", 0), ("split", 1), ("split", 2)]


def test_a_cheaper_method_is_found_behind_one_that_fits() -> None:
    history = played(CHAIN | {"strips": [(500, 1100)]}, 500)
    assert names(history) == [("whole", 0), ("split", 2), ("strips", 0), ("lean", 0)]


def test_estimates_are_tried_on_while_they_promise_less() -> None:
    outcomes = CHAIN | {"split": [], "strips": [(500, 1900), (400, 1600), (300, 2500)]}
    promised: Outcomes = {"strips": [(500, 1400), (400, 1500), (300, 2000)]}
    assert [name for name in names(played(outcomes, 500, promised)) if name[0] == "strips"] == [
        ("strips", 0), ("strips", 1),
    ]  # fmt: skip


def test_what_comes_out_dearer_than_promised_is_expected_of_the_next() -> None:
    outcomes = CHAIN | {"split": [], "strips": [(500, 1900), (400, 1600)]}
    promised: Outcomes = {"strips": [(500, 1200), (400, 1400)]}
    assert ("strips", 1) not in names(played(outcomes, 500, promised))


def test_a_floor_that_was_left_out_has_a_floor_itself() -> None:
    """Where the whole fits, nothing of the leanest is tried: not they, and not their splits."""
    assert names(played({"whole": [(1000, 1000)], "lean": [(10, 900)], "lean split": [(5, 800)]}, 1000)) == [
        ("whole", 0)
    ]


def test_a_rejected_plan_is_followed_by_the_next_way() -> None:
    rejected = Tried(one=Try(method="split", index=1), rejected="a wrong plan")
    history = (*played(CHAIN, 1)[:1], rejected)
    offers = offers_of(CHAIN)
    assert next_try(TABLE[:5], lambda method: offers[method.name], history, 700) == Try(method="split", index=2)


def test_nothing_fits_and_the_least_of_each_method_is_tried_for_the_error() -> None:
    assert sorted(names(played(CHAIN, 1))) == [
        ("lean", 0), ("lean split", 0), ("split", 2), ("strips", 1), ("whole", 0),
    ]  # fmt: skip


def test_tries_where_nothing_fits_are_known_before_they_end() -> None:
    offers = offers_of(CHAIN)
    methods = [method for method in TABLE if method.name in CHAIN]

    def all_of(method: Method) -> tuple[Offer, ...]:
        return offers[method.name]

    expected = [tried.one for tried in played(CHAIN, 1)]
    assert list(likely_tries(methods, all_of, (), 1, all_of)) == expected
    assert next(likely_tries(methods, all_of, played(CHAIN, 2000), 2000, all_of), None) is None

    def of_splits(method: Method) -> tuple[Offer, ...]:
        return offers[method.name] if method.name in ("whole", "split") else ()

    known = list(likely_tries(methods, all_of, (), 1, of_splits))
    assert known == [one for one in expected if one.method in ("whole", "split")]


def test_the_least_that_comes_to_something_is_searched_for() -> None:
    """Offers find nothing from some budget down: the last one that does is found by halving."""
    outcomes: Outcomes = {
        "whole": [(1000, 1000)],
        "split": [(900 - 10 * i if i < 23 else None, 2000) for i in range(60)],
    }
    promised: Outcomes = {"split": [(900 - 10 * i, 1000) for i in range(60)]}
    history = played(outcomes, 1, promised)
    assert min(tried.arena_bytes for tried in history if tried.arena_bytes) == 900 - 220 and len(history) < 10


def test_any_of_the_last_offers_may_come_to_the_least() -> None:
    """Those of a method whose plans may come out larger than searched; of others the last one."""
    offers = {"parts": tuple(Offer(budget_bytes=100 - i, arena_bytes=100 - i) for i in range(4))}
    for num_least, expected in ((1, [3]), (3, [3, 2, 1])):
        method = Method(name="parts", num_least=num_least)
        history: tuple[Tried, ...] = ()
        while one := next_try([method], lambda method: offers[method.name], history, 10):
            history += (Tried(one=one, arena_bytes=90 + one.index),)
        assert [tried.one.index for tried in history] == expected


def test_offers_in_vain_end_a_method() -> None:
    outcomes: Outcomes = {"whole": [(1000, 1000)], "split": [(None, 0)] * 30, "lean": [(500, 2000)]}
    history = played(outcomes, 600, {"split": [(590 - i, 1000) for i in range(30)]})
    assert names(history) == [("whole", 0), *(("split", i) for i in range(MOST_IN_VAIN)), ("lean", 0)]


def test_weights_that_are_too_large_end_a_group() -> None:
    assert names(played(CHAIN | {"int8": [(250, 500)]}, 1000, weights_fit=False)) == [("whole", 0), ("int8", 0)]


def test_a_later_group_only_where_nothing_fits() -> None:
    assert ("int8", 0) not in names(played(CHAIN | {"int8": [(50, 500)]}, 100))
    assert names(played(CHAIN | {"int8": [(50, 500)]}, 60))[-1] == ("int8", 0)


def test_too_much_of_another_memory_is_asked_for_less_and_at_last_for_none() -> None:
    history: list[Tried] = []
    one = next_try([WHOLE], lambda _: (Offer(),), history, 100)
    for spill in range(1, MOST_SPILLS + 1):
        assert one is not None and not one.is_alone
        history.append(Tried(one=one, arena_bytes=50, instructions=10, over_bytes=(("dtcm", 16),)))
        one = next_try([WHOLE], lambda _: (Offer(),), history, 100)
        assert one is not None and (one.is_alone or one.less_bytes == (("dtcm", 16 * spill),))
    assert one is not None and one.is_alone
    history.append(Tried(one=one, arena_bytes=90, instructions=12, fits=True))
    assert next_try([WHOLE], lambda _: (Offer(),), history, 100) is None


@st.composite
def exact_outcomes(draw: st.DrawFn) -> Outcomes:
    """Fewer and fewer bytes for more and more instructions, of each method."""

    def frontier(base: int) -> list[tuple[int | None, int]]:
        sizes = sorted(draw(st.sets(st.integers(1, 900), min_size=1, max_size=8)), reverse=True)
        costs = sorted(draw(st.lists(st.integers(base + 1, base + 3000), min_size=len(sizes), max_size=len(sizes))))
        return list(zip(sizes, costs, strict=True))

    return {"whole": [(1000, 1000)], "split": frontier(1000), "strips": frontier(1000), "lean": [(900, 2000)],
            "lean split": frontier(2000)}  # fmt: skip


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(exact_outcomes())
def test_a_larger_limit_never_costs_more_than_is_negligible(outcomes: Outcomes) -> None:
    """By one part in 64 of the whole at the most; and whatever any offer comes to can be had."""
    least = min(num_bytes for rows in outcomes.values() for num_bytes, _ in rows if num_bytes)
    best = None
    for limit in sorted({least, *(b for rows in outcomes.values() for b, _ in rows if b), 950, 1000}):
        fitting = [tried.instructions for tried in played(outcomes, limit) if tried.fits]
        assert fitting, limit
        assert best is None or min(fitting) <= best + best // NEGLIGIBLE
        best = min(fitting)
    assert not any(tried.fits for tried in played(outcomes, least - 1))


GROWN: Outcomes = {
    "whole": [(1000, 1000)],
    "split": [(800, 1100), (600, 1200), (590, 1200), (400, 1300), (200, 1400), (100, 1500)],
}
"""What offers promise on one core."""


def shared(growth: float, limit: int, cycles: Sequence[int]) -> tuple[Tried, ...]:
    """The history of a limit on all cores. growth: bytes of each plan, relative to its offer. cycles: of each split."""
    offers, methods = offers_of(GROWN), [WHOLE, SPLIT]
    history: tuple[Tried, ...] = ()
    while one := next_try(methods, lambda method: offers[method.name], history, limit, "all"):
        assert one.cores == "all"
        num_bytes = int(growth * GROWN[one.method][one.index][0])
        time = 1000 if one.method == "whole" else cycles[one.index]
        fits = num_bytes <= limit
        history += (Tried(one=one, arena_bytes=num_bytes, instructions=10_000, cycles=time, fits=fits),)
    return history


def test_offers_that_would_grow_over_the_limit_are_skipped() -> None:
    assert names(shared(2, 810, [1010] * 6)) == [("whole", 0), ("split", 0), ("split", 3)]


def test_the_smallest_offer_is_tried_on_all_cores_before_they_are_given_up() -> None:
    assert names(shared(9, 700, [1010] * 6)) == [("whole", 0), ("split", 1), ("split", 5)]


def test_a_slow_plan_on_all_cores_is_followed_by_others() -> None:
    """The third runs on one core, as a sequence that adds up rows does; the instructions do not tell."""
    assert names(shared(2, 850, [1010, 1010, 1010, 1900, 1010, 1010]))[-2:] == [("split", 3), ("split", 4)]
