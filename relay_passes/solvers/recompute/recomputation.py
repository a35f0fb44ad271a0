"""A sequence of operators that recomputes some results instead of keeping them, and its cost.

A sequence lists nodes in the order in which they run. A node that appears again computes its results again. A read
takes the value that was written last, so a value is alive from each write to the last read ahead of the next write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """A sequence with recomputations.

    sequence: nodes in the order in which they run.
    cost: of all repetitions together.
    at_least: lower bound of the cost of every sequence that keeps the order of first runs; 0 where no bound is known.
    """

    sequence: tuple[int, ...]
    peak_bytes: int
    cost: int
    at_least: int = 0


def repeats_cost(sequence: Sequence[int], costs: Sequence[int]) -> int:
    """Return the cost of a sequence beyond running each node once."""
    return sum(costs[node] for node in sequence) - sum(costs[node] for node in set(sequence))
