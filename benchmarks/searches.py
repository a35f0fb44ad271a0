"""Searches behind the memory plan, and their processor seconds: offsets below a capacity, repeats within a budget.

    python benchmarks/searches.py --problems DIR --output benchmarks/results/searches.json

allocation: each `NAME.CAPACITY.csv` of DIR, as MiniMalloc's challenging problems A to K are named (github
google/minimalloc, benchmarks/challenging; shared/allocation has A to D): bytes that offsets below the capacity come to,
the lower bound, and the same with the lower bound as the capacity where that is less. `proved`: no offsets need fewer
bytes. D and J are found by beam searches whose order was chosen on them (`BEAMS` of exact.py). No two
buffers of a solution meet in time and bytes, which is counted here.

recompute: on random layered graphs, the order given, within 0.8 of its peak: what repeats add to the duration, and what
they add at least, in percent: as known after the search, and after a longer proof (`seconds_of_proof`). A run goes on
where the last one ended.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


from benchmarks.allocation import BEAMS, MOST_NODES, read_rows, to_buffer  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.networks.layered_graph import layered_graph  # noqa: E402
from benchmarks.remat import EFFORT, to_problem  # noqa: E402
from codegen_c.arena.exact import is_available, place_below  # noqa: E402
from codegen_c.arena.problem import Buffer, height, lower_bound  # noqa: E402
from relay_passes.solvers.graph import peak_bytes  # noqa: E402
from relay_passes.solvers.recompute.bound import bound_at_places  # noqa: E402
from relay_passes.solvers.recompute.search import recompute  # noqa: E402

GRAPHS = ((250, 0), (500, 0), (1000, 0), (250, 1), (500, 1), (1000, 1))
"""(nodes, seed) of layered graphs."""
SHARE = 0.8
NODES_BELOW = 50_000
"""Partial solutions that are looked at with the lower bound as the capacity; beam searches follow."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--graphs", type=int, default=len(GRAPHS), help="how many of them (%(default)s)")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    if options.output.exists():
        found = json.loads(options.output.read_text(encoding="utf-8"))
    if not is_available():
        print("the searches need a C compiler: install gcc or clang, or name one in CC.", file=sys.stderr)
        return 1
    for path in sorted(options.problems.glob("*.*.csv")):
        if path.stem not in found.setdefault("allocation", {}):
            found["allocation"][path.stem] = stamped(allocated(path))
            print(path.stem, json.dumps(found["allocation"][path.stem]), flush=True)
            write_result(options.output, found)
    for count, seed in GRAPHS[: options.graphs]:
        key = f"{count} nodes, seed {seed}"
        if key not in found.setdefault("recompute", {}):
            found["recompute"][key] = stamped(recomputed(count, seed))
            print(key, json.dumps(found["recompute"][key]), flush=True)
            write_result(options.output, found)
    return 0


def allocated(path: Path) -> dict[str, int | float | bool | None]:
    """Figures of one problem."""
    header, rows = read_rows(path)
    buffers = [to_buffer(path.name, line, header, row) for line, row in rows]
    capacity, bound = int(path.stem.split(".")[1]), lower_bound(buffers)
    offsets, seconds = placed(buffers, capacity, MOST_NODES)
    least = None if offsets is None else height(buffers, offsets)
    figures: dict[str, int | float | bool | None] = {
        "buffers": len(buffers), "capacity": capacity, "bytes": least, "seconds": seconds, "lower_bound": bound,
    }  # fmt: skip
    if least is not None and least > bound:
        below, figures["seconds_at_bound"] = placed(buffers, bound, NODES_BELOW)
        least = figures["bytes_at_bound"] = None if below is None else height(buffers, below)
    return {**figures, "proved": least == bound}


def placed(buffers: Sequence[Buffer], capacity: int, most_nodes: int) -> tuple[tuple[int, ...] | None, float]:
    """Offsets, checked pair by pair, and processor seconds. Raises ValueError where two buffers meet."""
    begin = process_time()
    offsets = place_below(buffers, {}, capacity, most_nodes, BEAMS).offsets
    seconds = round(process_time() - begin, 2)
    placements = [] if offsets is None else list(zip(buffers, offsets, strict=True))
    for index, (one, low) in enumerate(placements):
        for other, at in placements[:index]:
            if one.begin < other.end and other.begin < one.end and low < at + other.size and at < low + one.size:
                raise ValueError(f"two buffers of one time meet: at {low} and {at}")
    return offsets, seconds


def recomputed(count: int, seed: int) -> dict[str, float | int | None]:
    """Figures of one graph."""
    problem, order = to_problem(layered_graph(count, seed), "graph"), range(count)
    budget, duration = int(peak_bytes(problem.graph, order) * SHARE), sum(problem.durations)
    begin = process_time()
    found = recompute(problem.graph, order, problem.durations, budget, keeps_order=True)
    seconds = process_time() - begin
    bounded = bound_at_places(problem.graph, order, problem.durations, budget, found, EFFORT)
    return {
        "added_percent": None if found is None else round(100 * found.cost / duration, 3),
        "repeats": None if found is None else len(found.sequence) - count,
        "seconds": round(seconds, 1),
        "at_least_percent": None if found is None else round(100 * found.at_least / duration, 3),
        "proved_percent": round(100 * (bounded.at_least or 0) / duration, 3),
        "seconds_of_proof": round(process_time() - begin - seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
