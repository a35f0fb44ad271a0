"""The choice of a smaller plan for a model that fits anyway: rows in ring buffers where they cost almost no time.

Whole layers are the fastest plan of most models, but a sequence that runs row by row often costs only a call for each
row. If a build sets no limit of RAM, the plan in sequences is taken that saves the most memory among those that are
predicted to cost almost no time. With a limit the user has said how much memory there is, and the fastest plan within
it is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.next_try import Offer, Tried, Try

METHOD = "split"
MOST_COST = 1024
"""A plan may cost up to 1/1024 more predicted instructions, and cycles, than whole layers.

The bound is low because calls for rows are modelled less exactly than whole layers: benchmarks/default_plans.py counts
less than 1 % more executed instructions at this bound for most networks, and 2.6 % for the worst.
"""
LEAST_SAVED = 4
"""A plan has to save a quarter of the memory. Less is not worth sequences in place of whole layers."""
MOST_TRIES = 3
"""Plans that are compiled in search of one that keeps its offer's promise."""


@dataclass(frozen=True, kw_only=True)
class PlanCost:
    """Bytes in all RAMs, and predicted cycles, of a compiled try."""

    num_bytes: int
    cycles: float


def may_shrink(options: BuildOptions, platform: Platform) -> bool:
    """Return True if a build may take a smaller plan in place of whole layers.

    It may not if the user limits the RAM, asks for speed or size, measures kernels, which are measured as whole layers,
    or says where tensors lie. Streamed models run row by row anyway, and several processors divide whole layers.
    """
    return (
        options.ram is None
        and options.optimize == "balanced"
        and options.io != "stream"
        and not (options.tune or options.pin or options.keep or options.least_scratch)
        and len(options.processors_of(platform)) == 1
    )


def smaller_tries(offers: Sequence[Offer], whole: Tried) -> list[Try]:
    """Return the tries that promise to save the most memory for almost no time, the smallest first.

    offers: of the method. whole: the try of whole layers, which fits.
    """
    assert whole.arena_bytes is not None, "whole layers were compiled"
    most_bytes, most_added = _least_saving(whole.arena_bytes), whole.instructions // MOST_COST
    cheap = [
        (offer.arena_bytes, index)
        for index, offer in enumerate(offers)
        if offer.added_instructions <= most_added and offer.arena_bytes <= most_bytes
    ]
    return [Try(method=METHOD, index=index) for _, index in sorted(cheap)[:MOST_TRIES]]


def is_worth(cost: PlanCost, whole: PlanCost) -> bool:
    """Return True if a compiled plan is so much smaller than whole layers and costs almost no time."""
    return cost.num_bytes <= _least_saving(whole.num_bytes) and cost.cycles <= whole.cycles * (1 + 1 / MOST_COST)


def _least_saving(num_bytes: int) -> int:
    return num_bytes - num_bytes // LEAST_SAVED
