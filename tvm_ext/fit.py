"""Makes a model fit the memory it may take: whole runs of the pipeline, from what costs least to what costs more.

1. whole: operators reordered, tensors overlapping; costs nothing.
2. split: sequences of operators run row by row through rings; a few more calls, nothing computed twice.
3. recompute: results computed again instead of kept; costs their instructions.
4. split and recompute: results computed again row by row, where they are read; costs both.
5. split, least scratch: also kernels that need no buffers of their own, where there are such; they are slower.

With streamed inputs every way is a split: the cheapest in which only rows of the inputs are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import tvm

from codegen_c.arena.plan import check_capacity
from codegen_c.build import Attempt, Compiled
from relay_passes.analysis.recompute_search import Rank
from relay_passes.backend import Backend
from relay_passes.rematerialize import Rematerialize
from relay_passes.rematerialize_in_rows import RematerializeInRows
from relay_passes.split_sequences import SplitSequences
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform

MemoryPass = tvm.transform.Pass | None
MOST_TRIES = 5
"""Of one way to make a model smaller: each asks for as much less as the last plan was too large."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a model is compiled to take less memory. memory_pass: what runs behind the order of operators."""

    method: str
    options: BuildOptions
    memory_pass: MemoryPass = None


def fit(
    compile_by: Callable[[Way], Compiled],
    platform: Platform,
    options: BuildOptions,
    backend: Callable[[BuildOptions], Backend],
    rank: Rank | None = None,
) -> tuple[Compiled, Way]:
    """The first result within the limits, with all attempts on it, and how it was compiled.

    rank: of a guide, for what could be computed again.

    Raises DoesNotFit naming the best that was reached.
    """
    memory, limit = platform.activations, options.limit_bytes(platform)
    attempts: list[Attempt] = []
    best: tuple[Compiled, Way] | None = None
    first = 0
    for way in _ways(options, backend, limit, attempts, rank):
        compiled = compile_by(way)
        reached = compiled.plan.bytes_in(memory)
        first = compiled.modelled_instructions if best is None else first
        added = compiled.modelled_instructions - first
        attempts.append(Attempt(method=way.method, arena_bytes=reached, added_instructions=added))
        if best is None or reached < best[0].plan.bytes_in(memory):
            best = compiled, way
        if reached <= limit:
            break
    assert best is not None, "the whole model is always tried"
    try:
        check_capacity(best[0].program, best[0].plan, platform, {memory: limit})
    except DoesNotFit as error:
        tried = dict.fromkeys(f"{a.method}: {a.arena_bytes} B" for a in attempts)
        raise DoesNotFit(f"{error} Tried, best shown: {'; '.join(tried)}.") from None
    return replace(best[0], attempts=tuple(attempts)), best[1]


def _ways(
    options: BuildOptions,
    backend: Callable[[BuildOptions], Backend],
    limit: int,
    attempts: list[Attempt],
    rank: Rank | None,
) -> Iterator[Way]:
    """What to try next, as long as nothing fits: for each method, budgets that come down by what was too much."""
    lean = replace(options, least_scratch=True)
    if options.io == "stream":
        methods = (("stream", SplitSequences, options), ("stream, least scratch", SplitSequences, lean))
    else:
        yield Way(method="whole", options=options)
        methods = (
            ("split", SplitSequences, options),
            ("recompute", partial(Rematerialize, rank=rank), options),
            ("split and recompute", RematerializeInRows, options),
            ("split, least scratch", SplitSequences, lean),
        )
    for method, make, chosen in methods:
        budget = limit
        for _ in range(MOST_TRIES):
            before = attempts[-1].arena_bytes if attempts else None
            yield Way(method=method, options=chosen, memory_pass=make(backend(chosen), budget))
            reached = attempts[-1].arena_bytes
            if reached == before:  # asking for less changes nothing any more
                break
            budget -= max(reached - limit, 1)
            if budget <= 0:
                break
