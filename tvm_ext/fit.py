"""Makes a model fit the memory it may take: whole runs of the pipeline, from what costs least to what costs more.

1. whole: operators reordered, tensors overlapping; costs nothing.
2. split: sequences of operators run row by row through rings; a few more calls, nothing computed twice.
3. recompute: results computed again instead of kept; costs their instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import tvm

from codegen_c.arena.plan import check_capacity
from codegen_c.build import Attempt, Compiled
from relay_passes.backend import Backend
from relay_passes.rematerialize import Rematerialize
from relay_passes.split_sequences import SplitSequences
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform

MemoryPass = tvm.transform.Pass | None
MOST_TRIES = 5
"""Of one way to make a model smaller: each asks for as much less as the last plan was too large."""


def fit(
    compile_with: Callable[[MemoryPass], Compiled], platform: Platform, options: BuildOptions, backend: Backend
) -> tuple[Compiled, MemoryPass]:
    """The first result within the limits, with all attempts on it, and the pass that made it.

    compile_with: the pipeline with one more pass behind the order of operators, or none. Raises DoesNotFit naming the
    best that was reached.
    """
    limit = options.limit_bytes(platform)
    attempts: list[Attempt] = []
    best: tuple[Compiled, MemoryPass] | None = None
    for method, memory_pass in _ways(backend, limit, attempts):
        compiled = compile_with(memory_pass)
        attempts.append(
            Attempt(
                method=method, arena_bytes=compiled.plan.bytes_in(platform.activations),
                added_instructions=compiled.added_instructions,
            )
        )  # fmt: skip
        if best is None or attempts[-1].arena_bytes < best[0].plan.bytes_in(platform.activations):
            best = compiled, memory_pass
        if attempts[-1].arena_bytes <= limit:
            break
    assert best is not None, "the whole model is always tried"
    try:
        check_capacity(best[0].program, best[0].plan, platform, {platform.activations: limit})
    except DoesNotFit as error:
        reached = dict.fromkeys(f"{a.method}: {a.arena_bytes} B" for a in attempts)
        raise DoesNotFit(f"{error} Tried, best shown: {'; '.join(reached)}.") from None
    return replace(best[0], attempts=tuple(attempts)), best[1]


def _ways(backend: Backend, limit: int, attempts: list[Attempt]) -> Iterator[tuple[str, MemoryPass]]:
    """What to try next, as long as nothing fits: for each way, budgets that come down by what was too much."""
    yield "whole", None
    for method, make in (("split", SplitSequences), ("recompute", Rematerialize)):
        budget = limit
        for _ in range(MOST_TRIES):
            before = attempts[-1].arena_bytes
            yield method, make(backend, budget)
            reached = attempts[-1].arena_bytes
            if reached == before:  # asking for less changes nothing any more
                break
            budget -= max(reached - limit, 1)
            if budget <= 0:
                break
