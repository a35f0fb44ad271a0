"""The table of ways to make a model need less memory: the options each compiles with, its pass, what it offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

import tvm

from relay_passes.memory.rematerialize import Rematerialize
from relay_passes.memory.rematerialize_in_rows import RematerializeInRows
from relay_passes.memory.split_heads_in_rows import SplitHeadsInRows
from relay_passes.memory.split_patches import SplitPatches
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.searched import Searched
from relay_passes.simplify.orient_sequences import TimeAxis
from relay_passes.solvers.graph import live_bytes
from relay_passes.solvers.split.search import Split, cut, frontier
from tvm_ext.core.options import BuildOptions
from tvm_ext.fitting.next_try import Method, Offer

MemoryPass = tvm.transform.Pass | None
MakeOffers = Callable[[Searched], tuple[Offer, ...]]
MakePass = Callable[[Searched, Offer], tvm.transform.Pass]


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Parts of the bytes, and of the instructions added, that a search expects and its result has at the least."""

    least_bytes: tuple[int, int]
    least_cost: tuple[int, int]


OF_ROWS = Trust(least_bytes=(255, 256), least_cost=(7, 8))
OF_STRIPS = Trust(least_bytes=(31, 32), least_cost=(1, 2))
"""Rows of strips are cut once more, which the search for strips does not see."""
RUNG = (31, 32)
"""Next budget as a part of the one before, for a search that has to be asked budget by budget."""
NUM_LEAST = 3
"""Last offers of attention in parts: where rows of a result grow over an operand, plans may come out larger."""
LOWEST = 32
"""Least part of the bytes of the whole that such a search is asked for."""


@dataclass(frozen=True, kw_only=True)
class FitMethod(Method):
    """A row of the table.

    offers: of a scheduled model, budgets to ask for, and make: for one of these, what runs behind the order of
    operators; None where nothing does. saves_scratch: it takes slower kernels for less scratch. time_axis: axis of
    images along which sequences lie: rows can be split, and patches are strips of columns.
    """

    options: BuildOptions
    offers: MakeOffers | None = None
    make: MakePass | None = None
    saves_scratch: bool = False
    time_axis: TimeAxis = "rows"


def fit_methods(options: BuildOptions) -> tuple[FitMethod, ...]:
    """All methods for a model, in the order in which they are looked at: as float first where int8 comes last."""
    if options.quantize != "auto":
        return _methods(options)
    as_float = _methods(replace(options, quantize="none", io_type="int8", activations="int8"))
    first = 1 + max(method.group for method in as_float)
    as_int8 = [
        replace(
            method, name=f"int8, {method.name}", group=first + method.group,
            floor=f"int8, {method.floor}" if method.floor else None,
        )
        for method in _methods(replace(options, quantize="int8"))
    ]  # fmt: skip
    return (*as_float, *as_int8)


def _methods(options: BuildOptions) -> tuple[FitMethod, ...]:
    """The table for one type of numbers."""
    patches = FitMethod(
        name="patches", options=options, offers=_patches, make=_patch, is_estimated=True, time_axis="columns"
    )
    split = FitMethod(name="split", options=options, offers=_sequences, make=_split, floor="whole")
    if options.io == "stream":
        plain = [
            replace(split, name="stream", offers=_streams, floor=None),
            replace(split, name="heads", offers=_heads, make=_split_heads, floor=None, group=1, num_least=NUM_LEAST),
            replace(patches, group=1),
        ]
    else:
        plain = [
            FitMethod(name="whole", options=options),
            split,
            replace(split, name="heads", offers=_heads, make=_split_heads, num_least=NUM_LEAST),
            replace(patches, floor="whole"),
            replace(split, name="recompute", offers=_repeats, make=_repeat),
            replace(split, name="split and recompute", offers=_repeats_in_rows, make=_repeat_in_rows),
        ]
    slower = [] if options.least_scratch else [_of_least_scratch(method) for method in plain if method.name in _SLOWER]
    return (*plain, *slower)


_SLOWER = {
    "whole": "least scratch",
    "split": "split, least scratch",
    "heads": "heads, least scratch",
    "patches": "patches, least scratch",
    "stream": "stream, least scratch",
}
"""Method -> the same with kernels that need the least scratch."""


def _of_least_scratch(method: FitMethod) -> FitMethod:
    return replace(
        method, name=_SLOWER[method.name], options=replace(method.options, least_scratch=True), saves_scratch=True,
        floor=_SLOWER.get(method.floor or "", "whole" if method.name == "whole" else None),
        group=1 if method.options.io == "stream" else 0,
    )  # fmt: skip


def _split(known: Searched, offer: Offer) -> tvm.transform.Pass:
    return SplitSequences(known.backend, offer.budget_bytes, known)


def _split_heads(known: Searched, offer: Offer) -> tvm.transform.Pass:
    return SplitHeadsInRows(known.backend, offer.budget_bytes, offer.parts, known)


def _patch(known: Searched, offer: Offer) -> tvm.transform.Pass:
    return SplitPatches(known.backend, offer.budget_bytes, known)


def _repeat(known: Searched, offer: Offer) -> tvm.transform.Pass:
    return Rematerialize(known.backend, offer.budget_bytes, known)


def _repeat_in_rows(known: Searched, offer: Offer) -> tvm.transform.Pass:
    return RematerializeInRows(known.backend, offer.budget_bytes, known)


def _streams(known: Searched) -> tuple[Offer, ...]:
    return tuple(_offer(found, OF_ROWS) for found in frontier(known.by_rows))


def _sequences(known: Searched) -> tuple[Offer, ...]:
    return tuple(
        _offer(found, OF_ROWS)
        for found in frontier(known.by_rows)
        if any(part.rows_per_call for part in found.segments)
    )


def _heads(known: Searched) -> tuple[Offer, ...]:
    """Offers of attention in parts, few or many, that come to fewer bytes than every cheaper one."""
    whole = sum(known.operators.instructions)
    found: list[Offer] = []
    for parts, searched in known.in_parts.items():
        added = _share(sum(searched.operators.instructions) - whole, OF_ROWS.least_cost)
        for split in frontier(searched.by_rows):
            offer = _offer(split, OF_ROWS)
            found.append(replace(offer, parts=parts, added_instructions=offer.added_instructions + added))
    found.sort(key=lambda offer: (offer.added_instructions, offer.arena_bytes))
    least = accumulate((offer.arena_bytes for offer in found), min, initial=found[0].arena_bytes + 1 if found else 0)
    return tuple(offer for offer, before in zip(found, least, strict=False) if offer.arena_bytes < before)


def _patches(known: Searched) -> tuple[Offer, ...]:
    """Offers of strips; behind them, one whose rows are cut as small as they can be."""
    offers = tuple(
        _offer(found, OF_STRIPS) for found in frontier(known.in_patches) if any(part.strips for part in found.segments)
    )
    least = [replace(offer, budget_bytes=1, arena_bytes=offer.arena_bytes * 7 // 8) for offer in offers[-1:]]
    return (*offers, *least)


def _offer(found: Split, trust: Trust) -> Offer:
    return Offer(
        budget_bytes=found.peak_bytes, arena_bytes=_share(found.peak_bytes, trust.least_bytes),
        added_instructions=_share(found.price, trust.least_cost),
    )  # fmt: skip


def _repeats(known: Searched) -> tuple[Offer, ...]:
    """Offers down to the bytes that one operator needs alone."""
    graph = known.graph
    alone = (
        sum(graph.sizes[value] for value in {*node.reads, *node.writes}) + node.extra_bytes
        - max(node.shared_bytes.values(), default=0)
        for node in graph.nodes
    )  # fmt: skip
    return _rungs(known, max(alone, default=0))


def _repeats_in_rows(known: Searched) -> tuple[Offer, ...]:
    """Offers below what rows alone come to, where nothing need be computed again."""
    by_rows = cut(known.by_rows, None).peak_bytes
    return tuple(offer for offer in _rungs(known, 0) if offer.arena_bytes < by_rows)


def _rungs(known: Searched, least_bytes: int) -> tuple[Offer, ...]:
    """Smaller and smaller budgets, where some result waits for a later reader and could be computed again."""
    graph = known.graph
    waiting = [
        known.operators.instructions[index]
        for index, node in enumerate(graph.nodes)
        if any(set(node.writes) & set(later.reads) for later in graph.nodes[index + 2 :])
    ]
    if not waiting:
        return ()
    whole = max(live_bytes(graph, range(len(graph.nodes))))
    cheapest, least = min(waiting) // 2, max(1, least_bytes, whole // LOWEST)
    offers: list[Offer] = []
    budget = _share(whole, RUNG)
    while budget >= least:
        offers.append(Offer(budget_bytes=budget, arena_bytes=budget, added_instructions=cheapest))
        budget = _share(budget, RUNG)
    return tuple(offers)


def _share(number: int, share: tuple[int, int]) -> int:
    return number * share[0] // share[1]
