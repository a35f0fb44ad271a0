"""Trains the learned guide on what was measured, and on exact plans of random layered graphs.

    python benchmarks/train_guide.py --corpus benchmarks/results/guide_corpus.json --output tvm_ext/guide.npz
    python benchmarks/train_guide.py --corpus benchmarks/results/guide_corpus.json --output tvm_ext/guide.npz --costs

Exact plans take most of the time; `--costs` keeps what was learned from them, and learns costs alone. Needs
scikit-learn (extra: train). The same corpus gives the same trees.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.networks.layered_graph import layered_graph  # noqa: E402
from benchmarks.remat import to_problem  # noqa: E402
from codegen_c.costs.learned_cost import MOST_BITS, LearnedCost, vector  # noqa: E402
from relay_passes.solvers.graph import live_bytes, peak_bytes, spans_of  # noqa: E402
from relay_passes.solvers.recompute.exact import recompute_exactly  # noqa: E402
from relay_passes.solvers.recompute.facts import facts_of  # noqa: E402
from relay_passes.solvers.recompute.repeats import Repeat, promising, repeats_at  # noqa: E402
from relay_passes.solvers.recompute.search import positions_above, recompute  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402
from tvm_ext.core.trees import Trees  # noqa: E402

SEED = 0
COST_TREES, COST_DEPTH, COST_RATE = 200, 4, 0.08
RANK_TREES, RANK_DEPTH, RANK_RATE = 100, 4, 0.08
GRAPHS, FIRST_SEED, SHARES, EFFORT = 60, 1000, (0.9, 0.8), 3.0
"""Graphs of 24 to 56 nodes, from a seed on that nothing else uses; shares of their peak; effort of the exact plans."""


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


def learned_cost(corpus: dict[str, Any]) -> LearnedCost:
    """Cost model learned from the rows of `guide_corpus.py`."""
    simd = {name: Platform.load(name).processor.simd for name in dict.fromkeys(row[0] for row in corpus["steps"])}
    steps = [(simd[row[0]], row[1], tuple(row[3:])) for row in corpus["steps"] if row[2] > 0]
    counts = np.array([row[2] for row in corpus["steps"] if row[2] > 0], np.float64)
    kernels, simds = tuple(sorted({step[1] for step in steps})), tuple(sorted(set(simd.values())))
    rows = np.array([vector(*step, kernels=kernels, simds=simds) for step in steps], np.float32)
    modelled = np.array([step[2][0] for step in steps], np.float64)
    bits = np.clip(np.log2(counts / np.maximum(modelled, 1)), -MOST_BITS, MOST_BITS)
    trees = trained(rows, bits, trees=COST_TREES, depth=COST_DEPTH, rate=COST_RATE, loss="huber")
    return LearnedCost(trees=trees, kernels=kernels, simds=simds)


def plan_rows() -> tuple[np.ndarray, np.ndarray]:
    """Facts of repeats at the peaks of random layered graphs, and whether the exact plan makes each of them."""
    rows: list[np.ndarray] = []
    made: list[float] = []
    for seed in range(GRAPHS):
        count = 24 + seed % 5 * 8
        problem = to_problem(layered_graph(count, seed + FIRST_SEED), f"graph {seed}")
        graph, costs, order = problem.graph, problem.durations, range(count)
        for share in SHARES:
            budget = int(peak_bytes(graph, order) * share)
            exact = recompute_exactly(
                graph, order, costs, budget, hint=recompute(graph, order, costs, budget), effort=EFFORT
            )
            if exact is None or not exact.proved:
                continue
            live = np.array(live_bytes(graph, order))
            for position in positions_above(live, budget):
                repeats = promising(list(repeats_at(graph, spans_of(graph, order), live, position, budget)), costs)
                rows.append(facts_of(repeats, costs, live, position, budget))
                made += [float(_makes(exact.sequence, repeat, position)) for repeat in repeats]
    return np.concatenate(rows), np.array(made)


def _makes(sequence: Sequence[int], repeat: Repeat, position: int) -> bool:
    """True where a plan runs a repeat's nodes again between the node of a position and the reader they serve.

    The order is 0, 1, 2 ..., so that positions in it are nodes.
    """
    begin, end = sequence.index(position), sequence.index(repeat.before)
    return set(repeat.nodes) <= set(sequence[begin + 1 : end]) - set(range(position, repeat.before))


def learned_rank() -> Trees:
    rows, made = plan_rows()
    print(f"{len(rows)} repeats, {made.mean():.1%} of them in exact plans", flush=True)
    return trained(rows, made, trees=RANK_TREES, depth=RANK_DEPTH, rate=RANK_RATE, loss="squared_error")


def kept_rank(path: Path) -> dict[str, np.ndarray]:
    """Arrays of the ranks that a file holds."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: array for name, array in arrays.items() if name.startswith("rank.")}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--costs", action="store_true", help="learn costs, keep the ranks that are in the output")
    options = parser.parse_args(arguments)
    cost = learned_cost(json.loads(options.corpus.read_text(encoding="utf-8")))
    arrays = cost.trees.arrays("cost") | {"cost.kernels": np.array(cost.kernels), "cost.simds": np.array(cost.simds)}
    arrays |= kept_rank(options.output) if options.costs else learned_rank().arrays("rank")
    np.savez_compressed(options.output, **arrays)
    trees = [len(arrays[f"{name}.roots"]) for name in ("cost", "rank")]
    print(f"{options.output}: {options.output.stat().st_size} B, {trees[0]} and {trees[1]} trees")
    return 0


if __name__ == "__main__":
    sys.exit(main())
