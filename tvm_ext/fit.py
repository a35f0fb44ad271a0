"""Makes a model fit the memory it may take: whole runs of the pipeline, from what costs least to what costs more.

1. whole: operators reordered, tensors overlapping; costs nothing.
2. split: sequences of operators run row by row through rings; a few more calls, nothing computed twice.
3. what computes twice; of these, the one that costs least:
   patches: strips of columns one after the other, each row by row, with halos that are computed twice;
   recompute: results computed again instead of kept;
   split and recompute: results computed again row by row, where they are read.
4. least scratch: split, or patches, with kernels that need no buffers of their own; they are slower.

With streamed inputs every way is a split: the cheapest in which only rows of the inputs are kept. Where
`quantize = "auto"` allows it, all of it is tried again with the model in int8, last of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import tvm

from codegen_c.arena.plan import check_capacity
from codegen_c.backend.build import Attempt, Compiled
from relay_passes.backend import Backend
from relay_passes.memory.rematerialize import Rematerialize
from relay_passes.memory.rematerialize_in_rows import RematerializeInRows
from relay_passes.memory.split_patches import SplitPatches
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.solvers.recompute.search import Rank
from tvm_ext.core.errors import DoesNotFit, UnsupportedModel
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
    """A result within the limits, with all attempts on it, the one taken last, and how it was compiled.

    rank: of a guide, for what could be computed again.

    Raises DoesNotFit naming the best that was reached, and what else could help.
    """
    memory, limit = platform.activations, options.limit_bytes(platform)
    attempts: list[Attempt] = []
    best: tuple[Compiled, Way] | None = None
    taken: Attempt | None = None
    least = (True, 0)
    first, refused = 0, ""
    for way in _ways(options, backend, limit, attempts, rank):
        if best is not None and not least[0] and way.options.quantize != best[1].options.quantize:
            break  # what fits stays float
        try:
            compiled = compile_by(way)
        except UnsupportedModel as unsupported:
            if best is None or way.options.quantize == best[1].options.quantize:
                raise
            refused = f" int8 is not possible: {unsupported}"
            break
        reached = compiled.plan.bytes_in(memory)
        first = compiled.modelled_instructions if best is None else first
        added = compiled.modelled_instructions - first
        attempts.append(Attempt(method=way.method, arena_bytes=reached, added_instructions=added))
        fits = _excess(compiled, limit) is None
        cost = (not fits, compiled.modelled_instructions if fits else reached)
        if best is None or cost < least:
            best, taken, least = (compiled, way), attempts[-1], cost
    assert best is not None and taken is not None, "the whole model is always tried"
    error = _excess(best[0], limit)
    if error is not None:
        tried = dict.fromkeys(f"{a.method}: {a.arena_bytes} B" for a in attempts)
        raise DoesNotFit(
            f"{error} {_what_helps(best[0], options)}{refused} Tried, best shown: {'; '.join(tried)}.".replace(
                "  ", " "
            )
        )
    others = [attempt for attempt in attempts if attempt is not taken]
    return replace(best[0], attempts=(*others, taken)), best[1]


def _excess(compiled: Compiled, limit: int) -> DoesNotFit | None:
    """Why a result does not fit, with its arena of the default memory within a limit; None if it does."""
    platform = compiled.platform
    try:
        check_capacity(compiled.program, compiled.plan, platform, {platform.activations: limit})
    except DoesNotFit as error:
        return error
    return None


def _what_helps(compiled: Compiled, options: BuildOptions) -> str:
    """Options that were not given and would take less memory."""
    helps: list[str] = []
    if options.quantize == "none" and not compiled.is_quantized:
        helps.append("--quantize auto, with calibration data, makes the model int8 where float does not fit.")
    inputs = [compiled.program.tensors[name] for name in compiled.program.inputs]
    if options.io == "arena" and any(len(tensor.shape) == 4 and tensor.shape[0] == 1 for tensor in inputs):
        helps.append("--io stream holds only rows of the input.")
    return " ".join(helps)


def _ways(
    options: BuildOptions,
    backend: Callable[[BuildOptions], Backend],
    limit: int,
    attempts: list[Attempt],
    rank: Rank | None,
) -> Iterator[Way]:
    """What to try next, as long as nothing fits: as float, and where that may be decided here, as int8 last."""
    if options.quantize != "auto":
        yield from _memory_ways(options, backend, limit, attempts, rank)
        return
    yield from _memory_ways(replace(options, quantize="none", io_type="int8"), backend, limit, attempts, rank)
    for way in _memory_ways(replace(options, quantize="int8"), backend, limit, attempts, rank):
        yield replace(way, method=f"int8, {way.method}")


def _memory_ways(
    options: BuildOptions,
    backend: Callable[[BuildOptions], Backend],
    limit: int,
    attempts: list[Attempt],
    rank: Rank | None,
) -> Iterator[Way]:
    """Methods until some fit, those that stand together all of them. Ends where only weights are too large."""
    lean = replace(options, least_scratch=True)
    if options.io == "stream":
        methods = [[("stream", SplitSequences, options)], [("stream, least scratch", SplitSequences, lean)]]
    else:
        yield Way(method="whole", options=options)
        if attempts[-1].arena_bytes <= limit:
            return
        methods = [
            [("split", SplitSequences, options)],
            [
                ("patches", SplitPatches, options),
                ("recompute", partial(Rematerialize, rank=rank), options),
                ("split and recompute", RematerializeInRows, options),
            ],
            [("split, least scratch", SplitSequences, lean)],
            [("patches, least scratch", SplitPatches, lean)],
        ]
    for together in methods:
        fits = False
        for method, make, chosen in together:
            yield from _tries(Way(method=method, options=chosen), partial(make, backend(chosen)), limit, attempts)
            fits |= attempts[-1].arena_bytes <= limit
        if fits:
            return


def _tries(way: Way, make: Callable[[int], tvm.transform.Pass], limit: int, attempts: list[Attempt]) -> Iterator[Way]:
    """A way with budgets that come down by what was too much, until asking for less changes nothing any more."""
    budget = limit
    for _ in range(MOST_TRIES):
        known = {attempt.arena_bytes for attempt in attempts}
        yield replace(way, memory_pass=make(budget))
        reached = attempts[-1].arena_bytes
        budget -= reached - limit
        if reached <= limit or reached in known or budget <= 0:
            return
