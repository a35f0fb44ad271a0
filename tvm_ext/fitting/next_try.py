"""The next try where a model needs more memory than it may take: a pure function of the tries before.

A method offers budgets to ask its pass for, from the cheapest to the one of fewest bytes. They depend on the model
alone, and of those that come within the limit the cheapest is taken: so a larger limit never costs more.

1. Of each method, the offers that may come within the limit, the cheapest first, until one does; left out is what
   cannot cost less than a result that fits already.
2. Where nothing fits, the next group of methods, and last of all the least that each method comes to, for the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

MOST_TRIES = 64
"""Limit for one model within one memory limit, all methods together."""
NEGLIGIBLE = 64
"""Part of the instructions of a floor, up to which a result above it is not worth the search for a better one."""
LEAST_REPEATED = 0.75
"""Part of a method's least factor so far, of cost over promised cost, that its next offers are taken to have."""
MOST_IN_VAIN = 2
"""Offers of a method, one after the other, in which its pass finds nothing: smaller ones are left."""
MOST_SPILLS = 5
"""Tries with less and less of other memories, before one offer has to do with the default memory alone."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to need less memory, one of a table.

    group: what fits in one is taken before anything of a later one. floor: the method of which no result of this one
    takes fewer instructions. is_estimated: a later offer may cost less than an earlier one. num_least: last offers,
    any of which may come to the fewest bytes.
    """

    name: str
    group: int = 0
    floor: str | None = None
    is_estimated: bool = False
    num_least: int = 1


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A budget to ask a method for; None where it takes none.

    arena_bytes, added_instructions: the fewest that it may come to, the latter beyond those of the method's floor.
    parts: in which attention runs.
    """

    budget_bytes: int | None = None
    parts: int = 1
    arena_bytes: int = 0
    added_instructions: int = 0


@dataclass(frozen=True, kw_only=True)
class Try:
    """An offer of a method, by its index. less_bytes: memory beside the default one -> bytes less that it may give.

    is_alone: the default memory is the only one for tensors.
    """

    method: str
    index: int = 0
    less_bytes: tuple[tuple[str, int], ...] = ()
    is_alone: bool = False


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Outcome of a try; arena_bytes: in the default memory, None where its pass found nothing or it was rejected.

    fits: all memories hold it. over_bytes: memory beside the default one -> bytes beyond what it may give.
    """

    one: Try
    arena_bytes: int | None = None
    instructions: int = 0
    fits: bool = False
    over_bytes: tuple[tuple[str, int], ...] = ()
    rejected: str | None = None


Offers = Callable[[Method], Sequence[Offer]]
"""Offers of a method, the cheapest first; no more are asked for than are needed."""


def next_try(methods: Sequence[Method], offers: Offers, history: Sequence[Tried], limit_bytes: int) -> Try | None:
    """The next try; None where the best of the history is the answer."""
    if len(history) >= MOST_TRIES:
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
            found = _within(method, _floor(method, own, tried), offers, tried, limit_bytes)
            if found is not None:
                return found
        if any(one.fits for one in tried):
            return None
        hopeful += own
    nearest = (_nearest(method, offers, history) for method in hopeful)
    return next((found for found in nearest if found is not None), None)


def likely_tries(
    methods: Sequence[Method], offers: Offers, history: Sequence[Tried], limit_bytes: int, known: Offers
) -> Iterator[Try]:
    """The next try, and those that follow where none comes within the limit: they may begin before it has ended.

    known: offers without any work, none for methods that are not in the history and were not asked for theirs.
    """
    ahead, source = [*history], offers
    while one := next_try(methods, source, ahead, limit_bytes):
        yield one
        source = known
        method = next(method for method in methods if method.name == one.method)
        promised = offers(method)[one.index].arena_bytes
        ahead.append(Tried(one=one, arena_bytes=max(promised, limit_bytes + 1)))


def _with_less(history: Sequence[Tried]) -> Try:
    """The last try again, with less of the memories that it took too much of, at last without them."""
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
    """True where weights are too large, which no method of a group makes smaller: an arena is within the limit."""
    within = [one for one in tried if one.arena_bytes is not None and one.arena_bytes <= limit_bytes]
    return bool(within) and not any(one.fits for one in within)


def _floor(method: Method, methods: Sequence[Method], tried: Sequence[Tried]) -> int:
    """Instructions below which a method cannot come: those of its floor, or where that was left out, of its floor's."""
    below = next((other for other in methods if other.name == method.floor), None)
    if below is None:
        return 0
    known = [one.instructions for one in tried if one.one.method == below.name]
    return max(known) if known else _floor(below, methods, tried)


def _within(method: Method, floor: int, offers: Offers, tried: Sequence[Tried], limit_bytes: int) -> Try | None:
    """A method's cheapest offer that is not tried and may come within a limit for less than what fits already.

    floor: instructions below which the method cannot come.
    """
    best = min((one.instructions for one in tried if one.fits), default=None)
    if best is not None and best <= floor + floor // NEGLIGIBLE:
        return None
    done = {one.one.index: one for one in tried if one.one.method == method.name}
    known, in_vain = offers(method), 0
    dearer = [
        (one.instructions - floor) / known[index].added_instructions
        for index, one in done.items()
        if one.arena_bytes is not None and known[index].added_instructions
    ]
    factor = max(1.0, LEAST_REPEATED * min(dearer, default=0))
    for index, offer in enumerate(known):
        if offer.arena_bytes > limit_bytes or (best is not None and floor + factor * offer.added_instructions >= best):
            continue
        if index not in done:
            return Try(method=method.name, index=index)
        if done[index].fits and not method.is_estimated:
            return None
        in_vain = in_vain + 1 if _found_nothing(done[index]) else 0
        if in_vain == MOST_IN_VAIN:
            return None
    return None


def _nearest(method: Method, offers: Offers, history: Sequence[Tried]) -> Try | None:
    """A method's last offers, or where these come to nothing, what leads to the last one that comes to something."""
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
