"""Distance of what processors share to the bound that is proved for it, on random graphs of 10 to 30 operators.

    python benchmarks/placement_bound.py --output benchmarks/results/placement_bound.json
    python benchmarks/placement_bound.py --sizes 30 --seeds 12 --output /tmp/placement_bound.json

Graphs: values read by any operators that come soon, and branches that fork and meet again; two equal processors, and
unlike ones that cannot run everything. Some operators may be cut, values cross by transfers and signals. The makespan
and the bound are those of a placement as builds have it, with ortools (extra `exact`); what searches have without it
stands beside them. Seconds are of the processor's time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from relay_passes.solvers.processors.assign import assign_processors  # noqa: E402
from relay_passes.solvers.processors.search import on_one  # noqa: E402
from relay_passes.solvers.processors.timing import makespan_of  # noqa: E402
from tests.support.processor_problems import random_problem  # noqa: E402

SIZES = (10, 15, 20, 25, 30)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES), help="numbers of operators")
    parser.add_argument("--seeds", type=int, default=6, help="graphs of each size and kind")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    results: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {}
    for size in options.sizes:
        kinds = product((False, True), (False, True), range(options.seeds))
        problems = [graph(size, branches, equal, seed) for branches, equal, seed in kinds]
        results[str(size)] = stamped({"problems": problems})
        above = max(problem["above_bound"] for problem in problems)
        seconds = max(problem["seconds"] for problem in problems)
        print(f"{size} operators: {len(problems)} graphs, at most {above:.1%} above the bound, {seconds} s", flush=True)
        write_result(options.output, results)
    return 0


def graph(size: int, branches: bool, equal: bool, seed: int) -> dict[str, Any]:
    """A random graph: makespan of its placement, and the bound that is proved with it."""
    problem = random_problem(seed, size, equal=equal, series_parallel=branches)
    begin = process_time()
    found = assign_processors(problem, "makespan")
    taken = process_time() - begin
    searched = assign_processors(problem, "makespan", use_solver=False)
    assert found and searched, "a makespan has always an answer"
    alone = [forms for processor in range(2) if (forms := on_one(problem, processor)) is not None]
    times = [makespan_of(problem, forms, range(size))[0] for forms in alone]
    return {
        "seed": seed,
        "graph": "branches" if branches else "any",
        "processors": "equal" if equal else "unlike",
        "one_processor": min(times, default=None),
        "makespan": found.value,
        "bound": found.bound,
        "above_bound": round(found.value / found.bound - 1, 4),
        "makespan_of_search": searched.value,
        "bound_of_search": searched.bound,
        "seconds": round(taken, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
