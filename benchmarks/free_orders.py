"""Order and repeats decided together, beside repeats for the best order: what they add, and the least bytes they reach.

    python benchmarks/free_orders.py --output benchmarks/results/free_orders.json

layered: random layered graphs, within parts of the peak of the best order found: what repeats add to the duration, in
percent, and processor seconds of each search (in that order with its bound, then in any order).

reached: networks as the pipeline has them before they are made to fit. `searched_bytes`: peak of the order that the
search through prefixes finds; `order_bytes`: the same behind annealing, where that proved nothing. The least budget
that repeats come within, asked for one 32nd less each time from those peaks, and what they add to the modelled
instructions: in the first order, in the second, and in any. A run goes on where the last one ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any
from unittest import mock

import onnx
import tvm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.networks.layered_graph import layered_graph  # noqa: E402
from benchmarks.remat import to_problem  # noqa: E402
from relay_passes.backend import Backend  # noqa: E402
from relay_passes.memory import searching_pass  # noqa: E402
from relay_passes.searched import Searched  # noqa: E402
from relay_passes.solvers.graph import Graph  # noqa: E402
from relay_passes.solvers.recompute.annealing import anneal_repeats  # noqa: E402
from relay_passes.solvers.recompute.recomputation import Recomputation  # noqa: E402
from relay_passes.solvers.recompute.search import recompute  # noqa: E402
from relay_passes.solvers.schedule.search import (  # noqa: E402
    Schedule,
    annealed_schedule,
    schedule,
)
from tvm_ext.compilation.pipeline import compile_module  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402

GRAPHS = ((100, 0), (100, 1), (250, 0), (250, 1), (500, 0))
"""(nodes, seed) of layered graphs."""
SHARES = (0.9, 0.8)
NETWORKS = (
    "randwire_ws_32_4_075_int8", "dense_block_12_int8", "gated_unet_16_int8", "darts_cifar_6_36_int8",
    "nasnet_a_cifar_6_32_int8", "amoebanet_a_cifar_6_36_int8",
)  # fmt: skip
PLATFORM = "host"
RUNG = 31 / 32


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    if options.output.exists():
        found = json.loads(options.output.read_text(encoding="utf-8"))
    measures = [
        *(("layered", f"{nodes} nodes, seed {seed}", partial(layered, nodes, seed)) for nodes, seed in GRAPHS),
        *(("reached", name, partial(reached, name)) for name in options.networks),
    ]  # fmt: skip
    for part, name, measure in measures:
        if name not in found.setdefault(part, {}):
            found[part][name] = stamped(measure())
            print(name, json.dumps(found[part][name]), flush=True)
            write_result(options.output, found)
    return 0


def layered(count: int, seed: int) -> dict[str, Any]:
    """Figures of one layered graph."""
    problem = to_problem(layered_graph(count, seed), "graph")
    best, durations = schedule(problem.graph), problem.durations
    rows: dict[str, Any] = {}
    for share in SHARES:
        budget = int(best.peak_bytes * share)
        begin = process_time()
        fixed = recompute(problem.graph, best.order, durations, budget, keeps_order=True)
        middle = process_time()
        free = recompute(problem.graph, best.order, durations, budget, bound_effort=0)
        end = process_time()
        rows[str(share)] = {
            "best_order_percent": _percent(fixed, durations), "free_percent": _percent(free, durations),
            "best_order_seconds": round(middle - begin, 1), "free_seconds": round(end - middle, 1),
        }  # fmt: skip
    return rows


def reached(name: str) -> dict[str, Any]:
    """Figures of one network."""
    graph, costs, found = scheduled(name)
    begin = process_time()
    best = annealed_schedule(graph, found)
    figures: dict[str, Any] = {
        "operators": len(graph.nodes), "searched_bytes": found.peak_bytes, "order_bytes": best.peak_bytes,
        "order_seconds": round(process_time() - begin, 1), "bound_bytes": best.bound_bytes,
    }  # fmt: skip
    for key, start, search in (
        ("searched_order", found, anneal_repeats),
        ("best_order", best, anneal_repeats),
        ("free", best, _in_any_order),
    ):
        budget, least = int(start.peak_bytes * RUNG), None
        while (plan := search(graph, start.order, costs, budget)) is not None:
            least = plan
            budget = int(min(plan.peak_bytes, budget) * RUNG)
        figures[f"{key}_bytes"] = None if least is None else least.peak_bytes
        figures[f"{key}_percent"] = _percent(least, costs)
    return figures


def _in_any_order(graph: Graph, order: Sequence[int], costs: Sequence[int], budget_bytes: int) -> Recomputation | None:
    return recompute(graph, order, costs, budget_bytes, bound_effort=0)


def scheduled(name: str) -> tuple[Graph, list[int], Schedule]:
    """The graph of a network, modelled instructions of its operators, and what the search through prefixes finds."""
    seen: list[Searched] = []

    def searched(mod: tvm.IRModule, backend: Backend, _known: Searched | None) -> Searched:
        seen.append(Searched(mod=mod, backend=backend))
        raise _Reached

    with (
        tempfile.TemporaryDirectory(prefix="free_orders_") as folder,
        mock.patch.object(searching_pass, "searched", searched),
        contextlib.suppress(RuntimeError),
    ):
        path = Path(folder) / "model.onnx"
        onnx.save(zoo.build(name), path)
        compile_module(tvm_ext.load(path), Platform.load(PLATFORM), tvm_ext.BuildOptions())
    known = seen[0]
    return known.graph, known.operators.instructions, schedule(known.graph)


class _Reached(RuntimeError):
    """The pass that orders operators has begun; TVM raises it on as its base."""


def _percent(found: Recomputation | None, costs: Sequence[int]) -> float | None:
    return None if found is None else round(100 * found.cost / sum(costs), 3)


if __name__ == "__main__":
    sys.exit(main())
