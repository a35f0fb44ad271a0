"""The choice of the next try in the search for a fit: a pure function of the earlier tries.

A method makes offers, which are budgets for its pass, from the cheapest to the one with the fewest bytes. The offers
depend on the model alone, and the cheapest offer within the limit is taken, so a larger limit never costs more time.

1. For each method, try the offers that may be within the limit, the cheapest first, until an offer fits. Skip offers
   that cannot cost less than a result that already fits.
2. If nothing fits, go on with the next group of methods. If no group fits, try the smallest offer of each method, for
   the error message.

Offers are made for one core. On several cores tensors, rings and scratch of all cores are alive at once: arenas of 20
networks came to 1.3 to 2.8 times the bytes of their offers, and the time of a plan depends on what the cores share. A
search for all cores (`cores = "all"`) therefore compares times, and the last try of a method says which of its offers
may fit: offers between are skipped, because each of them would be compiled in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

MOST_TRIES = 64
"""Limit of tries for a model within a memory limit, over all methods."""
NEGLIGIBLE = 64
"""A result within 1/64 of a method's floor of instructions is good enough to skip the method."""
LEAST_REPEATED = 0.75
"""Fraction of a method's smallest ratio of actual to offered cost that is assumed for its further offers."""
MOST_SHARED = 24
"""Limit of tries for all cores."""
GOOD_SHARED = 8
"""A result for all cores within 1/8 of the time of whole layers is good enough: one core takes about twice as long."""
LEAST_GROWN = 0.9
"""Fraction of the growth of a try's arena on all cores that is assumed for further offers of its method."""
MOST_IN_VAIN = 2
"""Number of successive offers whose pass changes nothing after which a method's smaller offers are skipped."""
MOST_SPILLS = 5
"""Number of tries with less and less of the other memories, before an offer gets the default memory alone."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method that reduces the memory of a model.

    group: a fit of an earlier group is preferred to every fit of a later group. floor: name of a method that never
    takes more instructions than this one. is_estimated: True if a later offer may cost less than an earlier one.
    num_least: number of last offers of which any may have the fewest bytes.
    """

    name: str
    group: int = 0
    floor: str | None = None
    is_estimated: bool = False
    num_least: int = 1


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A budget for a method's pass; budget_bytes is None for a method without a budget.

    arena_bytes, added_instructions: lower bounds of the result; instructions are in addition to the method's floor.
    parts: number of parts in which attention runs.
    """

    budget_bytes: int | None = None
    parts: int = 1
    arena_bytes: int = 0
    added_instructions: int = 0


Cores = Literal["any", "all", "first"]
"""Cores that operators are placed on: all, the first, or all and then the first if the bytes are over the limit."""


@dataclass(frozen=True, kw_only=True)
class Try:
    """An offer of a method, by its index. less_bytes: reduction of the limits of memories other than the default one.

    is_alone: True if tensors may only use the default memory.
    """

    method: str
    index: int = 0
    less_bytes: tuple[tuple[str, int], ...] = ()
    is_alone: bool = False
    cores: Cores = "any"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Result of a try. arena_bytes: in the default memory; None if its pass changed nothing or its plan was rejected.

    cycles: predicted, of a run. num_cores: cores that run steps. single_cycles: the same on the best core alone, 0 if
    unknown.
    fits: True if all memories hold the result. over_bytes: excess over the limits of memories other than the default.
    """

    one: Try
    arena_bytes: int | None = None
    instructions: int = 0
    cycles: float = 0.0
    num_cores: int = 1
    single_cycles: float = 0.0
    fits: bool = False
    over_bytes: tuple[tuple[str, int], ...] = ()
    rejected: str | None = None


Offers = Callable[[Method], Sequence[Offer]]
"""Function that returns the offers of a method, the cheapest first. It is only called if the offers are needed."""


def next_try(
    methods: Sequence[Method], offers: Offers, history: Sequence[Tried], limit_bytes: int, cores: Cores = "any"
) -> Try | None:
    """Return the next try; None if the search is finished.

    A search for all cores ends if nothing fits, because tries of the first core alone follow.
    """
    is_shared = cores == "all"
    known = _by_time(history) if is_shared else history
    found = _next(methods, offers, known, limit_bytes, is_shared=is_shared)
    return replace(found, cores=cores) if found else None


def _by_time(history: Sequence[Tried]) -> list[Tried]:
    """Return tries whose instructions are their predicted times, at the rate of the first try."""
    rate = next((one.instructions / one.cycles for one in history if one.cycles), 0.0)
    return [replace(one, instructions=round(one.cycles * rate)) for one in history]


def _next(
    methods: Sequence[Method], offers: Offers, history: Sequence[Tried], limit_bytes: int, *, is_shared: bool
) -> Try | None:
    """Return the next try, on any cores. is_shared: True for all cores."""
    if len(history) >= (MOST_SHARED if is_shared else MOST_TRIES):
        return None
    if history and history[-1].over_bytes:
        return _with_less(history)
    hopeful: list[Method] = []
    for group in sorted({method.group for method in methods}):
        own = [method for method in methods if method.group == group]
        tried = [one for one in history if not one.over_bytes and one.one.method in {m.name for m in own}]
        if _is_hopeless(tried, limit_bytes):
            continue
        for method in own:
            found = _within(method, _floor(method, own, tried), offers, tried, limit_bytes, is_shared=is_shared)
            if found is not None:
                return found
        if any(one.fits for one in tried):
            return None
        hopeful += own
    nearest = (_nearest(method, offers, history) for method in hopeful if not is_shared)
    return next((found for found in nearest if found is not None), None)


def likely_tries(
    methods: Sequence[Method],
    offers: Offers,
    history: Sequence[Tried],
    limit_bytes: int,
    known: Offers,
    cores: Cores = "any",
) -> Iterator[Try]:
    """Yield the next try, and the tries that follow if none is within the limit, so that they can start early.

    known: returns the offers of a method without any work; empty for a method whose offers are not yet computed.
    """
    ahead, source = [*history], offers
    while one := next_try(methods, source, ahead, limit_bytes, cores):
        yield one
        source = known
        method = next(method for method in methods if method.name == one.method)
        promised = offers(method)[one.index].arena_bytes
        ahead.append(Tried(one=one, arena_bytes=max(promised, limit_bytes + 1)))


def _with_less(history: Sequence[Tried]) -> Try:
    """Return the last try with lower limits of the memories that it exceeded; after some repeats, without them."""
    last = history[-1]
    spills = sum(
        bool(tried.over_bytes) and (tried.one.method, tried.one.index) == (last.one.method, last.one.index)
        for tried in history
    )
    if spills >= MOST_SPILLS:
        return Try(method=last.one.method, index=last.one.index, is_alone=True)
    less = dict(last.one.less_bytes)
    less |= {memory: less.get(memory, 0) + over for memory, over in last.over_bytes}
    return Try(method=last.one.method, index=last.one.index, less_bytes=tuple(sorted(less.items())))


def _is_hopeless(tried: Sequence[Tried], limit_bytes: int) -> bool:
    """Return True if an arena is within the limit and yet nothing fits: weights are too large for every method."""
    within = [one for one in tried if one.arena_bytes is not None and one.arena_bytes <= limit_bytes]
    return bool(within) and not any(one.fits for one in within)


def _floor(method: Method, methods: Sequence[Method], tried: Sequence[Tried]) -> int:
    """Return a lower bound of a method's instructions: those of its floor or, if untried, of the floor's floor."""
    below = next((other for other in methods if other.name == method.floor), None)
    if below is None:
        return 0
    known = [one.instructions for one in tried if one.one.method == below.name]
    return max(known) if known else _floor(below, methods, tried)


def _within(
    method: Method, floor: int, offers: Offers, tried: Sequence[Tried], limit_bytes: int, *, is_shared: bool
) -> Try | None:
    """Return a method's cheapest untried offer that may be within the limit and cost less than the best fit; or None.

    floor: lower bound of the method's instructions.
    """
    best = min((one.instructions for one in tried if one.fits), default=None)
    if best is not None and best <= floor + floor // (GOOD_SHARED if is_shared else NEGLIGIBLE):
        return None
    done = {one.one.index: one for one in tried if one.one.method == method.name}
    known, in_vain = offers(method), 0
    dearer = [
        (one.instructions - floor) / known[index].added_instructions
        for index, one in done.items()
        if one.arena_bytes is not None and known[index].added_instructions
    ]
    # Offers are lower bounds. The smallest ratio of actual to offered cost so far makes the bounds of the rest tighter.
    factor = max(1.0, LEAST_REPEATED * min(dearer, default=0))
    grown = [
        one.arena_bytes / known[index].arena_bytes
        for index, one in done.items()
        if is_shared and one.arena_bytes and known[index].arena_bytes
    ]
    most_bytes = limit_bytes / max(1.0, LEAST_GROWN * grown[-1]) if grown else limit_bytes
    least_offered = min((offer.arena_bytes for offer in known), default=0)
    for index, offer in enumerate(known):
        if index not in done and max(least_offered, most_bytes) < offer.arena_bytes:
            continue
        if offer.arena_bytes > limit_bytes or (best is not None and floor + factor * offer.added_instructions >= best):
            continue
        if index not in done:
            return Try(method=method.name, index=index)
        if done[index].fits and not (method.is_estimated or is_shared):
            return None
        in_vain = in_vain + 1 if _found_nothing(done[index]) else 0
        if in_vain == MOST_IN_VAIN:
            return None
    return None


def _nearest(method: Method, offers: Offers, history: Sequence[Tried]) -> Try | None:
    """Return one of a method's smallest offers that is untried, or the next step of a bisection for the smallest.

    The pass of a very small offer may change nothing. The bisection then finds the smallest offer that does.
    """
    done = {one.one.index: one for one in history if one.one.method == method.name and not one.over_bytes}
    last = len(offers(method)) - 1
    for index in range(last, max(-1, last - method.num_least), -1):
        if index not in done:
            return Try(method=method.name, index=index)
    if last < 0:
        return None
    if not _found_nothing(done[last]):
        return None
    low = max((index for index, one in done.items() if not _found_nothing(one)), default=-1)
    high = min(index for index, one in done.items() if index > low)
    middle = (low + high) // 2
    return Try(method=method.name, index=middle) if low < middle < high else None


def _found_nothing(one: Tried) -> bool:
    return one.arena_bytes is None and one.rejected is None
