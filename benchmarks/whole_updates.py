"""Proposals of places in several memories for networks and platforms that the guide has not seen, beside the search.

    python benchmarks/whole_updates.py --output benchmarks/results/whole_updates.json

random: networks and platforms of `random_updates.py`, from seeds that the guide was not trained on. zoo: networks as
the pass that places values sees them, on the platform they are compiled for and on random ones.

Of each: the proposal's predicted cycles above the search's (`gap`, which is below 0 where the proposal is faster), the
greedy start's, both as parts of the search's; processor seconds of proposal and greedy start, as parts of the search's.
`over`: plans that exceed a limit by more than the search's does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any
from unittest import mock

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.networks.random_updates import NEAREST, random_platform, random_update, within_peak  # noqa: E402
from benchmarks.train_places import STEPS  # noqa: E402
from relay_passes.memory import assign_memories  # noqa: E402
from relay_passes.solvers.memories import search as memory_search  # noqa: E402
from relay_passes.solvers.memories.assignment import Assignment  # noqa: E402
from relay_passes.solvers.memories.problem import AssignmentProblem  # noqa: E402
from relay_passes.solvers.memories.search import assign  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402
from tvm_ext.guide import PLACES, learned_places  # noqa: E402
from tvm_ext.pipeline import compile_module  # noqa: E402

NETWORKS = (
    "ds_cnn_int8", "resnet8_int8", "autoencoder_int8", "mobilenet_v1_025_96_int8", "mobilenet_v2_035_144_int8",
    "mcunet_320k_int8", "unet_16_int8", "dense_block_12_int8", "darts_cifar_6_36_int8", "randwire_ws_32_4_075_int8",
)  # fmt: skip
COMPILED_FOR = "always_on"
PLATFORMS = 3
"""Random platforms for each network."""
FIRST_SEED, PLATFORM_SEED = 50_000, 60_000
WITHIN = 0.03


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One problem. gap, greedy_gap: parts of the search's cycles; seconds: of search, proposal and greedy start."""

    name: str
    gap: float
    greedy_gap: float
    seconds: tuple[float, float, float]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=40, help="random ones (%(default)s)")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"weights": stamped({"bytes": (ROOT / "tvm_ext" / PLACES).stat().st_size})}
    for name, problems in (("random", random_problems(options.problems)), ("zoo", zoo_problems(options.networks))):
        rows = [compared(*problem) for problem in problems]
        found[name] = stamped(figures(rows))
        write_result(options.output, found)
    return 0


def random_problems(count: int) -> Iterator[tuple[str, AssignmentProblem]]:
    for number in range(count):
        steps = STEPS[number % len(STEPS)]
        yield f"{steps} steps, seed {FIRST_SEED + number}", random_update(FIRST_SEED + number, steps)


def zoo_problems(networks: Sequence[str]) -> Iterator[tuple[str, AssignmentProblem]]:
    """Each network on the platform it is compiled for, and the same steps with memories of random platforms."""
    for index, name in enumerate(networks):
        problem = _problem_of(name)
        yield f"{name}, {COMPILED_FOR}", problem
        for number in range(PLATFORMS):
            random = np.random.default_rng(PLATFORM_SEED + 10 * index + number)
            platform = random_platform(random)
            near = tuple(memory.name for memory in platform.memories if memory.name in NEAREST)
            moved = replace(problem, time=replace(problem.time, platform=platform), near=near)
            yield f"{name}, platform {number}", within_peak(moved, random)


def _problem_of(name: str) -> AssignmentProblem:
    """The first problem that the pass has for a network."""
    seen: list[AssignmentProblem] = []

    def kept(problem: AssignmentProblem, _rate: object) -> Assignment:
        seen.append(problem)
        return problem.at_home()

    with tempfile.TemporaryDirectory(prefix="whole_") as folder, mock.patch.object(assign_memories, "assign", kept):
        path = Path(folder) / "model.onnx"
        onnx.save(zoo.build(name), path)
        compile_module(tvm_ext.load(path), Platform.load(COMPILED_FOR), tvm_ext.BuildOptions(memories="all"))
    return seen[0]


def compared(name: str, problem: AssignmentProblem) -> Compared:
    """A proposal beside the search and its greedy start. A plan that exceeds more bytes counts as infinitely slow."""
    rate = learned_places()
    (search, seconds), *others = (
        _timed(problem, run) for run in (assign, lambda one: assign(one, rate, most_trials=0), _greedy)
    )
    cycles, over = problem.predicted_cycles(search), problem.overflow(search)
    gaps = [
        float("inf") if problem.overflow(plan) > over else problem.predicted_cycles(plan) / cycles - 1
        for plan, _ in others
    ]
    row = Compared(name=name, gap=gaps[0], greedy_gap=gaps[1], seconds=(seconds, others[0][1], others[1][1]))
    print(row, flush=True)
    return row


def _greedy(problem: AssignmentProblem) -> Assignment:
    """The search's greedy start alone."""
    search = memory_search._Search(problem)
    search.greedy()
    return search.state.assignment()


def _timed(problem: AssignmentProblem, run: Callable[[AssignmentProblem], Assignment]) -> tuple[Assignment, float]:
    begin = process_time()
    plan = run(replace(problem))
    return plan, process_time() - begin


def figures(rows: Sequence[Compared]) -> dict[str, Any]:
    """Figures of all rows, and the row of each problem. Gaps are in percent."""
    total = [sum(row.seconds[place] for row in rows) for place in range(3)]
    found: dict[str, Any] = {"problems": len(rows)}
    for place, (name, gaps) in enumerate(
        (("proposal", [row.gap for row in rows]), ("greedy", [row.greedy_gap for row in rows])), 1
    ):
        held = [100 * gap for gap in gaps if gap < float("inf")]
        found[name] = {
            "mean_gap_percent": round(float(np.mean(held)), 2), "most_gap_percent": round(max(held), 2),
            "median_gap_percent": round(median(held), 2), "over": len(gaps) - len(held),
            "within_3_percent": round(sum(gap <= WITHIN for gap in gaps) / len(gaps), 3),
            "faster_than_search": sum(gap < -1e-6 for gap in gaps),
            "share_of_seconds": round(total[place] / total[0], 3),
            "median_share_of_seconds": round(median(row.seconds[place] / row.seconds[0] for row in rows), 3),
        }  # fmt: skip
    found["seconds_of_search"] = round(total[0], 2)
    found["rows"] = {
        row.name: [_percent(row.gap), _percent(row.greedy_gap), *(round(part, 3) for part in row.seconds)]
        for row in rows
    }
    return found


def _percent(gap: float) -> float | None:
    return None if gap == float("inf") else round(100 * gap, 2)


if __name__ == "__main__":
    sys.exit(main())
