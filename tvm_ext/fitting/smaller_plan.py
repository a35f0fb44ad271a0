"""The choice of a smaller plan for a model that fits anyway: rows in ring buffers where they cost almost no time.

Whole layers are the fastest plan of most models, but a sequence that runs row by row often costs only a call for each
row. If a build sets no limit of RAM, the plan in sequences is taken that saves the most memory among those that are
predicted to cost almost no time. With a limit the user has said how much memory there is, and the fastest plan within
it is taken.

On several cores whole layers take more memory than on one core, and each core runs its rows of a sequence through its
own rings. There a plan may cost some time, because most of the time that the cores save remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.next_try import Offer, Tried, Try

METHOD = "split"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a smaller plan may cost and has to save, as divisors of the predicted cost and the bytes of whole layers."""

    most_cost: int
    least_saved: int


ALONE = Terms(most_cost=1024, least_saved=4)
"""On one core: up to 1/1024 more predicted instructions, and cycles, for a quarter of the memory.

The cost is low because calls for rows are modelled less exactly than whole layers: benchmarks/default_plans.py counts
up to 0.15 % more executed instructions at this bound for integer networks, and 0.56 % for the worst, in float32. Less
memory than a quarter is not worth sequences in place of whole layers.
"""
SHARED = Terms(most_cost=32, least_saved=20)
"""On several cores: up to 1/32 more for a twentieth of the memory. Two cores are then still about 1.85 times as fast as
one core."""

MOST_TRIES = 3
"""Plans that are compiled in search of one that keeps its offer's promise."""


@dataclass(frozen=True, kw_only=True)
class PlanCost:
    """Bytes in all RAMs, predicted cycles, and the number of cores that run steps, of a compiled try."""

    num_bytes: int
    cycles: float
    num_cores: int = 1

    @property
    def terms(self) -> Terms:
        """The terms on which a smaller plan takes the place of this one."""
        return ALONE if self.num_cores == 1 else SHARED


def may_shrink(options: BuildOptions, platform: Platform) -> bool:
    """Return True if a build may take a smaller plan in place of whole layers.

    It may not if the user limits the RAM, asks for speed or size, measures kernels, which are measured as whole layers,
    or says where tensors lie. Streamed models run row by row anyway. Accelerators run whole layers, and so do the
    stages of a pipeline.
    """
    return (
        options.ram is None
        and options.optimize == "balanced"
        and options.io != "stream"
        and not (options.tune or options.pin or options.keep or options.least_scratch)
        and not options.offloads_of(platform)
        and (len(options.cores_of(platform)) == 1 or options.placement_objective != "throughput")
    )


def smaller_tries(offers: Sequence[Offer], whole: Tried, terms: Terms) -> list[Try]:
    """Return the tries that promise to save the most memory for almost no time, the smallest first.

    offers: of the method. whole: the try of whole layers, which fits.
    """
    assert whole.arena_bytes is not None, "whole layers were compiled"
    most_bytes, most_added = _most_bytes(whole.arena_bytes, terms), whole.instructions // terms.most_cost
    cheap = [
        (offer.arena_bytes, index)
        for index, offer in enumerate(offers)
        if offer.added_instructions <= most_added and offer.arena_bytes <= most_bytes
    ]
    return [Try(method=METHOD, index=index, cores=whole.one.cores) for _, index in sorted(cheap)[:MOST_TRIES]]


def is_worth(cost: PlanCost, whole: PlanCost) -> bool:
    """Return True if a compiled plan is so much smaller than whole layers and costs almost no time."""
    most_cycles = whole.cycles * (1 + 1 / whole.terms.most_cost)
    return cost.num_bytes <= _most_bytes(whole.num_bytes, whole.terms) and cost.cycles <= most_cycles


def _most_bytes(num_bytes: int, terms: Terms) -> int:
    return num_bytes - num_bytes // terms.least_saved
