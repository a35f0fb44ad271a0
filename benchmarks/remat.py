"""Rematerialization within a memory budget, on graphs of the kind published with MOCCASIN.

    python benchmarks/remat.py FILE.json --budget 0.9 --output PLAN.json
    python benchmarks/remat.py FILE.json --budget 0.9 --order best --output PLAN.json
    python benchmarks/remat.py FILE.json --budget 0.9 --order free --output PLAN.json
    python benchmarks/remat.py FILE.json --budget 0.9 --bound --output PLAN.json

FILE is a networkx node-link graph: nodes carry `out_cost` (bytes) and `duration`, a link u -> v means v reads u,
`graph.order` is the order to keep. Alive at a step are the values still to be read, and the inputs and the output of
the running node. The budget is a share of the peak: of the given order's, or with `--order best` of the peak of the
best order found, which is then kept instead; with `--order free` it is that of the given order, which may be changed
while nodes are repeated. PLAN.json: `sequence` (nodes as they run, recomputed ones again),
`budget`, `peak`, `duration`, `proved` (the least of plans that keep the order), and the same of the order
without repeats; with `--bound`, `duration_at_least`, which no plan that keeps the order goes below. Exit status: 0, a
plan within the budget was written; 1, none was found; 2, wrong usage or a file that cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


from relay_passes.solvers.graph import (  # noqa: E402
    Graph,
    Node,
    peak_bytes,
)
from relay_passes.solvers.recompute.search import recompute  # noqa: E402
from relay_passes.solvers.schedule.search import least_schedule  # noqa: E402

EFFORT = 100.0
"""Effort of the solver for `--bound`, about seconds in its own measure."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A graph whose nodes are numbered along the order given; names: as the file calls them."""

    names: tuple[Any, ...]
    graph: Graph
    durations: tuple[int, ...]


class BadFile(Exception):
    """The file is no graph of this kind; the message says where."""


def read_problem(path: Path) -> Problem:
    """The problem in a file. Raises BadFile."""
    try:
        return to_problem(json.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, ValueError) as error:
        raise BadFile(f"{path}: is not a node-link graph with an order: {type(error).__name__}: {error}") from None


def to_problem(content: Any, name: str) -> Problem:
    """The problem of a file's content. Raises BadFile."""
    try:
        order = list(content["graph"]["order"])
        costs = {node.get("id", node.get("name")): node for node in content["nodes"]}
        links = [(link.get("source", link.get("0")), link.get("target", link.get("1"))) for link in content["links"]]
        sizes = tuple(int(costs[name]["out_cost"]) for name in order)
        durations = tuple(int(costs[name]["duration"]) for name in order)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadFile(f"{name}: is not a node-link graph with an order: {type(error).__name__}: {error}") from None
    place = {name: index for index, name in enumerate(order)}
    if len(order) != len(costs) or set(place) != set(costs):
        raise BadFile(f"{name}: graph.order does not name each of the {len(costs)} nodes once.")
    reads: list[list[int]] = [[] for _ in order]
    for begin, end in links:
        if begin not in place or end not in place:
            raise BadFile(f"{name}: the link {begin} -> {end} leads to a node that is not there.")
        if place[begin] >= place[end]:
            raise BadFile(f"{name}: graph.order runs {end} before {begin}, which it reads.")
        reads[place[end]].append(place[begin])
    nodes = tuple(Node(reads=tuple(r), writes=(index,), shared_bytes={}) for index, r in enumerate(reads))
    graph = Graph(nodes=nodes, sizes=sizes, inputs=frozenset(), outputs=frozenset())
    return Problem(names=tuple(order), graph=graph, durations=durations)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--budget", type=float, required=True, help="share of the peak, above 0 and at most 1")
    parser.add_argument("--order", choices=("given", "best", "free"), default="given")
    parser.add_argument("--bound", action="store_true", help="also what any plan costs at least (extra: exact)")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    if not 0 < options.budget <= 1:
        parser.error(f"--budget {options.budget:g}: is a share of the peak, above 0 and at most 1.")
    if options.bound and options.order == "free":
        parser.error("--bound: holds for an order that is kept; leave out --order free.")
    try:
        problem = read_problem(options.file)
    except BadFile as error:
        print(error, file=sys.stderr)
        return 2
    order: Sequence[int] = range(len(problem.names))
    if options.order == "best":
        order = least_schedule(problem.graph).order
    peak = peak_bytes(problem.graph, order)
    budget = int(peak * options.budget)
    keeps_order = options.order != "free"
    found = recompute(problem.graph, order, problem.durations, budget, keeps_order=keeps_order)
    if found is None:
        print(f"{options.file}: no plan within {budget} B found ({options.budget:g} of {peak} B).", file=sys.stderr)
        return 1
    total = sum(problem.durations)
    plan = {
        "sequence": [problem.names[node] for node in found.sequence],
        "order": options.order,
        "budget": budget,
        "peak": found.peak_bytes,
        "duration": total + found.cost,
        "proved": found.cost == found.at_least,
        "without_recompute": {"peak": peak, "duration": total},
    }
    if options.bound:
        from relay_passes.solvers.recompute.bound import bound_at_places

        bounded = bound_at_places(problem.graph, order, problem.durations, budget, found, EFFORT)
        plan["duration_at_least"] = total + (bounded.at_least or 0)
        print(f"no plan takes less than +{plan['duration_at_least'] / total - 1:.2%}")
    options.output.write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
    print(
        f"peak {found.peak_bytes} of at most {budget}, duration +{found.cost / total:.2%}"
        f"{', the least in this order' if found.cost == found.at_least else ''}; "
        f"{options.order} order without recompute: peak {peak}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
