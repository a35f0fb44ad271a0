"""Features of repeats that could be part of a plan, for a guide: plain numbers, none of which depends on units."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relay_passes.solvers.recompute.repeats import Repeat

NUM_FACTS = 12


def facts_of(
    repeats: Sequence[Repeat], costs: Sequence[int], live: np.ndarray, position: int, budget_bytes: int
) -> np.ndarray:
    """float32[repeats, NUM_FACTS] of the repeats that help at a position, the most promising first."""
    mean = sum(costs) / len(costs) + 1
    over = max(int(live[position]) - budget_bytes, 1)
    prices = [repeat.removed / (repeat.cost(costs) + 1) for repeat in repeats]
    best = max((abs(price) for price in prices), default=0.0) + 1e-9
    rows = [
        (
            place, place / len(repeats), price / best,
            repeat.cost(costs) / mean, len(repeat.nodes),
            repeat.size / budget_bytes, repeat.size / over, over / budget_bytes,
            repeat.cost(costs) / mean * budget_bytes / (repeat.size + 1),
            repeat.missing_bytes / (repeat.size + 1), (repeat.before - repeat.last) / len(live),
            float(np.mean(live[repeat.last + 1 : repeat.before] > budget_bytes)),
        )
        for place, (repeat, price) in enumerate(zip(repeats, prices, strict=True))
    ]  # fmt: skip
    return np.array(rows, np.float32).reshape(len(rows), NUM_FACTS)
