"""The table of methods that reduce the memory of a model: the options, the pass and the offers of each."""

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
    """Lower bounds of a compiled result, as fractions of the bytes and added instructions that a search predicted."""

    least_bytes: tuple[int, int]
    least_cost: tuple[int, int]


OF_ROWS = Trust(least_bytes=(255, 256), least_cost=(7, 8))
OF_STRIPS = Trust(least_bytes=(31, 32), least_cost=(1, 2))
"""Bounds for strips, looser than for rows: rows of strips are cut once more, which the search does not predict."""
RUNG = (31, 32)
"""Ratio of a budget to the previous one, for a search that returns a single result for each budget."""
NUM_LEAST = 3
"""Number of last offers of head-wise tiling that may be the smallest: plans may come out larger than predicted where
rows of a result overlap an operand."""
LOWEST = 32
"""The smallest budget of a search with budgets, as the divisor of the bytes of the whole model."""


@dataclass(frozen=True, kw_only=True)
class FitMethod(Method):
    """A row of the table.

    offers: returns the offers for a scheduled model, None for a method without a budget. make: returns the pass of an
    offer, which runs after operators are ordered; None without a pass. saves_scratch: True for a method with slower
    kernels that need less scratch. time_axis: axis of images along which sequences lie; rows can be split, and patches
    are strips of columns.
    """

    options: BuildOptions
    offers: MakeOffers | None = None
    make: MakePass | None = None
    saves_scratch: bool = False
    time_axis: TimeAxis = "rows"


def fit_methods(options: BuildOptions) -> tuple[FitMethod, ...]:
    """Return all methods for a model in the order of the search; with `quantize = "auto"`, float before int8."""
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
    """Return the methods for a single quantization."""
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
"""Name of a method -> name of the same method with kernels of least scratch."""


def _of_least_scratch(method: FitMethod) -> FitMethod:
    """Return the same method with kernels of least scratch."""
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
    """Return the offers of head-wise tiling, for all numbers of parts, that take fewer bytes than every cheaper one."""
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
    """Return the offers of strips, followed by an offer whose rows are cut as small as possible.

    The last offer's bytes are unknown before it is compiled; 7/8 of the offer before it is a guess.
    """
    offers = tuple(
        _offer(found, OF_STRIPS) for found in frontier(known.in_patches) if any(part.strips for part in found.segments)
    )
    least = [replace(offer, budget_bytes=1, arena_bytes=offer.arena_bytes * 7 // 8) for offer in offers[-1:]]
    return (*offers, *least)


def _offer(found: Split, trust: Trust) -> Offer:
    """Return the offer of a split that a search found."""
    return Offer(
        budget_bytes=found.peak_bytes, arena_bytes=_share(found.peak_bytes, trust.least_bytes),
        added_instructions=_share(found.price, trust.least_cost),
    )  # fmt: skip


def _repeats(known: Searched) -> tuple[Offer, ...]:
    """Return offers down to the bytes that the largest operator needs alone."""
    graph = known.graph
    alone = (
        sum(graph.sizes[value] for value in {*node.reads, *node.writes}) + node.extra_bytes
        - max(node.shared_bytes.values(), default=0)
        for node in graph.nodes
    )  # fmt: skip
    return _rungs(known, max(alone, default=0))


def _repeats_in_rows(known: Searched) -> tuple[Offer, ...]:
    """Return offers smaller than a split by rows reaches, which recomputes nothing and is cheaper."""
    by_rows = cut(known.by_rows, None).peak_bytes
    return tuple(offer for offer in _rungs(known, 0) if offer.arena_bytes < by_rows)


def _rungs(known: Searched, least_bytes: int) -> tuple[Offer, ...]:
    """Return smaller and smaller budgets if a result waits for a later reader and could be recomputed.

    The added instructions of each offer are a lower bound: half of the cheapest operator with a waiting result.
    """
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
