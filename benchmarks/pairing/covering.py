"""Covering arrays: few rows in which every two values of two factors meet."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

Row = tuple[int, ...]
"""One row: for each factor, in order, the index of its value."""

_TRIES = 24
"""Ways to fill the rest of a row that are compared, and that are tried before a pair counts as impossible."""


def covering_rows(sizes: Sequence[int], is_valid: Callable[[Row], bool], seed: str) -> list[Row]:
    """Return rows in which all pairs of values meet that some valid row of those tried can hold.

    sizes: number of values of each factor. is_valid: True for a row that can be built. seed: the same seed gives the
    same rows. A pair for which no valid row is found in 24 random ones is left out.
    """
    draw = random.Random(seed)
    open_pairs = {
        ((a, i), (b, j))
        for a, b in combinations(range(len(sizes)), 2)
        for i in range(sizes[a])
        for j in range(sizes[b])
    }
    if len(sizes) < 2:
        return [(index,) for index in range(sizes[0])] if sizes else [()]
    rows: list[Row] = []
    for pair in sorted(open_pairs):
        if pair not in open_pairs:
            continue
        candidates = [_filled(sizes, pair, draw) for _ in range(_TRIES)]
        valid = [row for row in candidates if is_valid(row)]
        if not valid:
            open_pairs.discard(pair)
            continue
        best = max(valid, key=lambda row: sum(met in open_pairs for met in _pairs(row)))
        open_pairs.difference_update(_pairs(best))
        rows.append(best)
    return rows


def choices(factors: Mapping[str, Sequence[object]], rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return the rows as mappings from the name of each factor to its value."""
    return [{name: values[index] for (name, values), index in zip(factors.items(), row, strict=True)} for row in rows]


def _filled(sizes: Sequence[int], pair: tuple[tuple[int, int], tuple[int, int]], draw: random.Random) -> Row:
    """Return a row that holds a pair and random values elsewhere."""
    row = [draw.randrange(size) for size in sizes]
    for factor, value in pair:
        row[factor] = value
    return tuple(row)


def _pairs(row: Row) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return list(combinations(enumerate(row), 2))
