"""Trains the guide that proposes whole updates for several memories, on plans of the search for random networks.

    python benchmarks/train_updates.py --output tvm_ext/updates.npz

Three sets of trees. places: every choice of every item of a plan is a row; it is 1 where the search's plan makes that
choice, or one that serves the same reads from the same memories and starts its transfers nearest to those of the row,
else 0. outside: every segment of a cut is a row; where between all near and all at home its time lies in the plan of
the search. repeats: every repeat that may pay is a row, which is 1 where the best cut is faster with it.

Needs scikit-learn (extra: train), and some ten processor minutes. The same seeds give the same trees.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


from benchmarks.networks.random_updates import RandomUpdate, random_update  # noqa: E402
from relay_passes.solvers.memories import cut_facts, repeats  # noqa: E402
from relay_passes.solvers.memories.assignment import Assignment, Place, WeightsCopy  # noqa: E402
from relay_passes.solvers.memories.cuts import SegmentTimes  # noqa: E402
from relay_passes.solvers.memories.problem import AssignmentProblem  # noqa: E402
from relay_passes.solvers.memories.propose import (  # noqa: E402
    LEADS,
    Candidate,
    Menus,
    candidates,
    facts_of,
)
from relay_passes.solvers.memories.repeated import repeated_problem  # noqa: E402
from relay_passes.solvers.memories.repeats import promising  # noqa: E402
from relay_passes.solvers.memories.state import Choice, Item, State  # noqa: E402
from relay_passes.solvers.memories.updates import Update, Updates  # noqa: E402
from relay_passes.solvers.split.segment import Ending  # noqa: E402
from tvm_ext.core.trees import Trees  # noqa: E402

SEED = 0

STEPS = (8, 12, 16, 24, 32, 48, 64, 96)
NETWORKS, FIRST_SEED = 80, 1000
"""Networks of these numbers of steps in turn, from a seed on that nothing else uses."""
SIZES, RATE = {"places": (40, 5), "outside": (30, 5), "repeats": (12, 3)}, 0.12
"""Trees, and their depth."""
MOST_LEARNED = 8
"""Repeats of a network that are learned from."""
LEAST_WAIT = 0.01
"""Part of a segment's cycles, from which on what its operands wait is learned from."""
OTHER_MEMORY, OTHER_FETCHES = 100, 10
"""Distance of two choices: for each step that reads or makes a value in another memory, for each fetch more or less,
beside steps by which fetches start apart."""


def trained(rows: np.ndarray, targets: np.ndarray, *, trees: int, depth: int, rate: float, loss: str) -> Trees:
    """Gradient boosting of regression trees (Friedman 2001), each on a random part of the rows."""
    from sklearn.ensemble import GradientBoostingRegressor

    boosted = GradientBoostingRegressor(
        n_estimators=trees, max_depth=depth, learning_rate=rate, subsample=0.7, min_samples_leaf=3,
        loss=loss, random_state=SEED,
    )  # fmt: skip
    boosted.fit(rows, targets)
    parts = [estimator.tree_ for estimator in boosted.estimators_[:, 0]]
    starts = np.cumsum([0, *(part.node_count for part in parts)])
    leaf = np.concatenate([part.children_left for part in parts]) < 0

    def children(name: str) -> np.ndarray:
        moved = [getattr(p, name) + start for p, start in zip(parts, starts[:-1], strict=True)]
        return np.where(leaf, 0, np.concatenate(moved)).astype(np.int16)

    return Trees(
        features=np.where(leaf, -1, np.concatenate([p.feature for p in parts])).astype(np.int16),
        thresholds=np.where(leaf, 0, np.concatenate([p.threshold for p in parts])).astype(np.float32),
        left=children("children_left"), right=children("children_right"),
        values=np.where(leaf, rate * np.concatenate([p.value[:, 0, 0] for p in parts]), 0).astype(np.float32),
        roots=starts[:-1].astype(np.int16), base=float(np.ravel(boosted.init_.constant_)[0]),
    )  # fmt: skip


def distance(problem: AssignmentProblem, item: Item, choice: Choice, found: Choice) -> float:
    """Distance of a choice from the one that a plan makes; below `OTHER_MEMORY` both do the same."""
    if isinstance(choice, Place) and isinstance(found, Place):
        memories = sum(
            choice.memory_at(use, problem.default_memory) != found.memory_at(use, problem.default_memory)
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
            plan = found.scratch.get(item.index, problem.default_memory)
        apart = {row: distance(problem, item, choices[row][1], plan) for row in rows}
        nearest = min(rows, key=apart.__getitem__)
        made[nearest] = apart[nearest] < min(OTHER_MEMORY, distance(problem, item, home[item], plan))
    return made


Rows = tuple[np.ndarray, np.ndarray]
"""Facts, and what is to be learned of each."""


def rows_of_places(updates: Sequence[Update]) -> Iterator[Rows]:
    """Facts of all choices of places, and whether the search's plans make them."""
    for update in updates:
        state = State(update.problem)
        choices = candidates(state, Menus(state, LEADS))
        if choices:
            yield facts_of(state, choices), labels(update.problem, choices, update.assignment)


def rows_of_cuts(network: RandomUpdate, updates: Sequence[Update]) -> Iterator[Rows]:
    """Facts of the segments of plans, and where between all near and all at home their time lies."""
    for update in updates:
        times = SegmentTimes(repeated_problem(network.problem, update.sequence))
        state = State(update.problem)
        state.take(update.assignment)
        begins = state.begins()
        for segment in update.cut.segments:
            ending = Ending.of(segment.end, [segment])
            cycles = sum(step.cycles for step in update.problem.steps[segment.begin : segment.end])
            near, home = (float(times.between(waits, ending)[0]) for waits in (times.near, times.home))
            if home - near > LEAST_WAIT * cycles:
                taken = begins[segment.end] - begins[segment.begin] - cycles
                yield cut_facts.facts_of(times, ending), np.clip([(taken - near) / (home - near)], 0, 1)


def rows_of_repeats(network: RandomUpdate) -> Iterator[Rows]:
    """Facts of repeats that may pay, and whether each alone makes the best cut faster."""
    problem = network.problem
    found = promising(problem)[:MOST_LEARNED]
    if found:
        updates = Updates(problem, network.segments)
        before = updates.ranked((), updates.cuts)[0].score
        faster = [updates.ranked((repeat,), updates.cuts)[0].score < before for repeat in found]
        yield repeats.facts_of(problem, found), np.array(faster, float)


def rows(networks: int) -> dict[str, Rows]:
    """All rows of random networks, by the name of the trees that learn them."""
    found: dict[str, list[Rows]] = {"places": [], "outside": [], "repeats": []}
    for number in range(networks):
        network = random_update(FIRST_SEED + number, STEPS[number % len(STEPS)])
        updates = Updates(network.problem, network.segments).searched()
        found["places"] += rows_of_places([updates[0], updates[-1]][: len(updates)])
        found["outside"] += rows_of_cuts(network, updates)
        found["repeats"] += rows_of_repeats(network)
    return {
        name: (np.concatenate([facts for facts, _ in parts]), np.concatenate([targets for _, targets in parts]))
        for name, parts in found.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=NETWORKS, help="random ones (%(default)s)")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    if find_spec("sklearn") is None:
        parser.error("needs scikit-learn: install the extra train.")
    arrays: dict[str, np.ndarray] = {}
    for name, (facts, targets) in rows(options.networks).items():
        print(f"{name}: {len(facts)} rows, {targets.mean():.3f} in the mean", flush=True)
        trees, depth = SIZES[name]
        learned = trained(facts, targets, trees=trees, depth=depth, rate=RATE, loss="squared_error")
        arrays |= learned.arrays(name)
    np.savez_compressed(options.output, **arrays)
    print(f"{options.output}: {options.output.stat().st_size} B")
    return 0


if __name__ == "__main__":
    sys.exit(main())
