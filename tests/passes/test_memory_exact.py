"""The search for memories beside the constraint program that knows the best: `benchmarks/memory_exact.py`."""

from __future__ import annotations

import pytest

pytest.importorskip("ortools")

from benchmarks.memory_exact import fastest
from relay_passes.solvers.memories.search import assign
from tests.support.memory_problems import in_sequences, random_problem

SECONDS = 60.0
"""Far more than these take: they are proved in one or two."""


@pytest.mark.parametrize("split", [False, True], ids=["whole", "in sequences"])
@pytest.mark.parametrize("seed", range(6))
def test_within_a_tenth_of_the_best(seed: int, split: bool) -> None:
    problem = random_problem(seed, 8)
    problem = in_sequences(problem) if split else problem
    exact = fastest(problem, SECONDS)
    found = problem.predicted_cycles(assign(problem))
    assert exact.proved
    assert exact.bound * (1 - 1e-4) <= found <= 1.1 * exact.bound
