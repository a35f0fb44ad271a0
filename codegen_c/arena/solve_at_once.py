"""Offsets for buffers that several processors use: which of them are alive at once, signals say, not spans of time.

First fit takes such pairs as they are. The searches that prove and repair know spans of time alone; they are given
longer ones, by which at least those pairs meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from codegen_c.arena.at_once import AtOnce, earlier_begins, later_ends
from codegen_c.arena.first_fit import first_fit, improve
from codegen_c.arena.problem import Buffer, Choice, height
from codegen_c.arena.solve import Solution, optimise


def optimise_at_once(
    names: Sequence[str], buffers: Sequence[Buffer], choices: Sequence[Choice], bound: int, uses: AtOnce
) -> Solution:
    """The lowest offsets found, by pairs or by longer spans.

    buffers: with the spans of one processor; that only some of their bytes are in use at some steps does not count.
    bound: bytes in use at one step of one processor. Raises PlanRejected if buffers with given offsets overlap.
    """
    whole = [replace(buffer, gaps=()) for buffer in buffers]
    least = max([bound, *(buffer.offset + buffer.size for buffer in whole if buffer.offset is not None)])
    found = [fit_pairs(whole, uses.pairs(names), choices, least)]
    spans = {name: (buffer.begin, buffer.end) for name, buffer in zip(names, whole, strict=True)}
    for longer in (later_ends, earlier_begins):
        if min(height(whole, offsets) for offsets in found) <= least:
            break
        found.append(optimise(_with_spans(whole, longer(uses, spans)), choices, least).offsets)
    offsets = min(found, key=lambda offsets: height(whole, offsets))
    return Solution(offsets=offsets, num_bytes=height(whole, offsets), lower_bound_bytes=least)


def fit_pairs(buffers: Sequence[Buffer], pairs: np.ndarray, choices: Sequence[Choice], least: int) -> list[int]:
    """Offsets by first fit, improved, for buffers without gaps. pairs: bool[n, n], those that are alive at once."""
    near = [
        {other: buffer.size for other in np.flatnonzero(row).tolist() if buffer.size and buffers[other].size}
        for buffer, row in zip(buffers, pairs, strict=True)
    ]
    best = first_fit(buffers, near, choices, least)
    return (best if best.num_bytes <= least else improve(buffers, near, choices, least, best)).offsets


def _with_spans(buffers: Sequence[Buffer], spans: Sequence[tuple[int, int]]) -> list[Buffer]:
    return [replace(buffer, begin=begin, end=end) for buffer, (begin, end) in zip(buffers, spans, strict=True)]
