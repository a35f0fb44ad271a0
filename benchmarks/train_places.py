"""Trains the guide that proposes places in several memories, on plans of the search for random problems.

    python benchmarks/train_places.py --output tvm_ext/places.npz

Every choice of every item is a row; a row is 1 where the search's plan makes that choice, or one that serves the same
reads from the same memories and starts its transfers nearest to those of the row, else 0. Needs scikit-learn (extra:
train), and two to five processor minutes. The same seeds give the same trees.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.networks.random_updates import random_update  # noqa: E402
from benchmarks.train_guide import trained  # noqa: E402
from relay_passes.solvers.memories.assignment import Assignment, Place, WeightsCopy  # noqa: E402
from relay_passes.solvers.memories.menus import Menus  # noqa: E402
from relay_passes.solvers.memories.place_facts import LEADS, Candidate, candidates, facts_of  # noqa: E402
from relay_passes.solvers.memories.problem import AssignmentProblem  # noqa: E402
from relay_passes.solvers.memories.search import assign  # noqa: E402
from relay_passes.solvers.memories.state import Choice, Item, State  # noqa: E402

STEPS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 200)
PROBLEMS, FIRST_SEED = 160, 1000
"""Problems of these numbers of steps in turn, from a seed on that nothing else uses."""
TREES, DEPTH, RATE = 40, 5, 0.12
OTHER_MEMORY, OTHER_FETCHES = 100, 10
"""Distance of two choices: for each step that reads or makes a value in another memory, for each fetch more or less,
beside steps by which fetches start apart."""


def distance(problem: AssignmentProblem, item: Item, choice: Choice, found: Choice) -> float:
    """Distance of a choice from the one that a plan makes; below `OTHER_MEMORY` both do the same."""
    if isinstance(choice, Place) and isinstance(found, Place):
        memories = sum(
            choice.memory_at(use, problem.home) != found.memory_at(use, problem.home)
            for use in problem.uses[item.index]
        ) + (choice.born != found.born)
        apart = sum(abs(one.start - other.start) for one, other in zip(choice.stays, found.stays, strict=False))
        return OTHER_MEMORY * memories + OTHER_FETCHES * (len(choice.stays) != len(found.stays)) + apart
    if isinstance(choice, WeightsCopy) and isinstance(found, WeightsCopy) and choice.memory == found.memory:
        return abs(choice.start - found.start)
    return 0 if choice == found else float("inf")


def labels(problem: AssignmentProblem, choices: Sequence[Candidate], found: Assignment) -> np.ndarray:
    """float64[choices]: 1 for the nearest choice of each item that does what the plan does with it, else 0."""
    rows_of: dict[Item, list[int]] = {}
    for row, (item, _) in enumerate(choices):
        rows_of.setdefault(item, []).append(row)
    made = np.zeros(len(choices))
    home = State(problem).choices
    for item, rows in rows_of.items():
        plan: Choice = found.weights.get(item.index)
        if item.kind == "value":
            plan = found.places[item.index]
        elif item.kind == "scratch":
            plan = found.scratch.get(item.index, problem.home)
        apart = {row: distance(problem, item, choices[row][1], plan) for row in rows}
        nearest = min(rows, key=apart.__getitem__)
        made[nearest] = apart[nearest] < min(OTHER_MEMORY, distance(problem, item, home[item], plan))
    return made


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Facts of all choices of random problems, and whether the search's plans make them."""
    facts: list[np.ndarray] = []
    made: list[np.ndarray] = []
    for number in range(PROBLEMS):
        problem = random_update(FIRST_SEED + number, STEPS[number % len(STEPS)])
        state = State(problem)
        choices = candidates(state, Menus(state, LEADS))
        if choices:
            facts.append(facts_of(state, choices))
            made.append(labels(problem, choices, assign(problem)))
    return np.concatenate(facts), np.concatenate(made)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    if find_spec("sklearn") is None:
        parser.error("needs scikit-learn: install the extra train.")
    facts, made = rows()
    print(f"{len(facts)} choices, {made.mean():.1%} of them in plans of the search", flush=True)
    trees = trained(facts, made, trees=TREES, depth=DEPTH, rate=RATE, loss="squared_error")
    np.savez_compressed(options.output, **trees.arrays("places"))
    print(f"{options.output}: {options.output.stat().st_size} B, {len(trees.roots)} trees")
    return 0


if __name__ == "__main__":
    sys.exit(main())
