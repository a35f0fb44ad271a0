"""The learned guide on networks it has never seen: instructions of steps against measurements, and plans with it.

    python benchmarks/guide.py --output benchmarks/results/guide.json

measured, costs: for each processor and type, over the steps of the held-out networks together and of each: rank
correlation (Spearman) with executed instructions, and the mean of |log2(predicted / executed)|, of the kernels' own
estimates and of the guide. A run goes on where the last one ended; what was measured is kept in the file.

plans: on random layered graphs that the guide was not trained on, order fixed, within shares of the peak: what the
search for recomputation alone finds without a guide, with it, and the cheaper of both, which is what is taken; added
duration over the problems that each of them solves, sequences evaluated, processor seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any
from unittest import mock

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import zoo  # noqa: E402
from benchmarks.guide_corpus import PLATFORMS, features_of, measured  # noqa: E402
from benchmarks.measure.commit import stamped  # noqa: E402
from benchmarks.networks.layered_graph import layered_graph  # noqa: E402
from benchmarks.remat import Problem, to_problem  # noqa: E402
from relay_passes.solvers import graph as liveness  # noqa: E402
from relay_passes.solvers.recompute import search as recompute_search  # noqa: E402
from relay_passes.solvers.recompute.search import Rank  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402
from tvm_ext.guide import learned_cost, learned_rank  # noqa: E402

NETWORKS = ("ds_cnn", "resnet8", "autoencoder", "mobilenet_v1_025_96", "mcunet_5fps_vww")
"""Networks of MLPerf Tiny, of which kws and resnet are trained forms, and one that was searched."""
DTYPES = ("int8", "fp32")
GRAPHS = {40: range(50, 65), 80: range(50, 60), 160: range(50, 54)}
"""Nodes of layered graphs -> seeds."""
SHARES = (0.9, 0.8, 0.7)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {"measured": {}}
    for network in options.networks:
        for dtype in DTYPES:
            for platform in PLATFORMS:
                key = f"{platform} {dtype} {network}"
                if key not in found["measured"]:
                    steps = _steps(zoo.build(f"{network}_{dtype}"), platform)
                    found["measured"][key] = stamped({"steps": steps})
                    _write(options.output, found)
                    print(key, len(steps), flush=True)
    found["costs"] = stamped(costs({key: measured["steps"] for key, measured in found["measured"].items()}))
    found["plans"] = stamped(plans())
    _write(options.output, found)
    for key, figures in found["costs"].items():
        print(f"{key:40} {json.dumps(figures)}")
    for key, figures in found["plans"].items():
        print(f"{key:40} {json.dumps(figures)}")
    return 0


def _steps(model: onnx.ModelProto, platform: str) -> list[list[Any]]:
    """[kernel, executed instructions, numbers of the guide ...] of each different step."""
    steps = measured(model, Platform.load(platform))
    return [[call.implementation.kernel, count, *features_of(compiled, call)] for compiled, call, count in steps]


def costs(steps_of: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, dict[str, float]]:
    """Figures of the kernels' estimates and of the guide, by processor and type, and by network."""
    guide = learned_cost()
    groups: dict[str, list[tuple[str, Sequence[Any]]]] = {}
    for key, steps in steps_of.items():
        platform, dtype, network = key.split()
        simd = Platform.load(platform).processor.simd
        for group in (f"{platform} {dtype}", f"{platform} {dtype} {network}"):
            groups.setdefault(group, []).extend((simd, step) for step in steps)
    found: dict[str, dict[str, float]] = {}
    for group in sorted(groups, key=lambda name: (len(name.split()), name)):
        executed = np.array([step[1] for _, step in groups[group]], float)
        modelled = np.array([step[2] for _, step in groups[group]], float)
        learned = guide.corrected([(simd, step[0], tuple(step[2:])) for simd, step in groups[group]])
        found[group] = {"steps": len(executed)}
        for name, predicted in (("modelled", modelled), ("learned", learned)):
            found[group][f"{name}_spearman"] = round(spearman(predicted, executed), 4)
            found[group][f"{name}_error_bits"] = round(float(np.abs(np.log2(predicted / executed)).mean()), 4)
    return found


@dataclass(frozen=True, kw_only=True)
class _Search:
    """Result of one search. added: share of the duration that repeats add, None for no plan."""

    added: float | None
    evaluated: int
    seconds: float


def plans() -> dict[str, dict[str, float]]:
    """Figures of the search for recomputation without the guide, with it, and of both."""
    found: dict[str, list[_Search]] = {"without": [], "with": [], "both": []}
    for count, seeds in GRAPHS.items():
        for seed in seeds:
            problem = to_problem(layered_graph(count, seed), "graph")
            for share in SHARES:
                without, guided = _searched(problem, share, None), _searched(problem, share, learned_rank())
                found["without"].append(without)
                found["with"].append(guided)
                known = [result.added for result in (without, guided) if result.added is not None]
                found["both"].append(
                    _Search(
                        added=min(known, default=None), evaluated=without.evaluated + guided.evaluated,
                        seconds=without.seconds + guided.seconds,
                    )
                )  # fmt: skip
    solved = [all(row.added is not None for row in rows) for rows in zip(*found.values(), strict=True)]
    figures: dict[str, dict[str, float]] = {}
    for name, rows in found.items():
        added = [row.added for row, known in zip(rows, solved, strict=True) if known and row.added is not None]
        figures[name] = {
            "problems": len(rows), "solved": sum(row.added is not None for row in rows),
            "added_percent": round(100 * sum(added) / len(added), 3),
            "evaluated": sum(row.evaluated for row in rows), "seconds": round(sum(row.seconds for row in rows), 2),
        }  # fmt: skip
    return figures


def _searched(problem: Problem, share: float, rank: Rank | None) -> _Search:
    evaluated = 0
    live_bytes = liveness.live_bytes

    def counted(*arguments: Any) -> list[int]:
        nonlocal evaluated
        evaluated += 1
        return live_bytes(*arguments)

    order = range(len(problem.durations))
    budget = int(liveness.peak_bytes(problem.graph, order) * share)
    with (
        mock.patch.object(recompute_search, "live_bytes", counted),
        mock.patch.object(liveness, "live_bytes", counted),
    ):
        begin = process_time()
        result = recompute_search.recompute(problem.graph, order, problem.durations, budget, rank=rank)
        seconds = process_time() - begin
    return _Search(added=result.cost / sum(problem.durations) if result else None, evaluated=evaluated, seconds=seconds)


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Correlation of ranks; equal values have the mean of their ranks."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def _write(path: Path, found: Mapping[str, Any]) -> None:
    """JSON with one step per line."""
    measured_steps = ",\n".join(
        f'{json.dumps(key)}: {{"commit": {json.dumps(one["commit"])}, "steps": [\n{_lines(one["steps"])}]}}'
        for key, one in found["measured"].items()
    )
    rest = {key: value for key, value in found.items() if key != "measured"}
    head = "".join(f"{json.dumps(key)}: {json.dumps(value, indent=1)},\n" for key, value in rest.items())
    path.write_text(f'{{{head}"measured": {{\n{measured_steps}}}}}\n', encoding="utf-8")


def _lines(steps: Sequence[Sequence[Any]]) -> str:
    return ",\n".join(json.dumps(step, separators=(",", ":")) for step in steps)


if __name__ == "__main__":
    sys.exit(main())
