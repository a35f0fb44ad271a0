"""Whole updates for networks and platforms that the guide has not seen: its proposals beside the search.

    python benchmarks/whole_updates.py --output benchmarks/results/whole_updates.json

random: networks and platforms of `random_updates.py`, from seeds that the guide was not trained on. zoo: networks as
the pass that cuts them for several memories sees them, on the platform they are compiled for and on random ones.

Of each: predicted cycles above the search's of the guide's proposal (`gap`, below 0 where it is faster), of every cut
with a greedy start of its places, and of the search without cuts and repeats, all as parts of the search's; processor
seconds of these. `over`: plans that exceed a limit by more than the search's does. The search is that without a guide;
what all need, the ways to cut a network, is listed anew for each of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
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
from relay_passes.memory import cut_for_memories  # noqa: E402
from relay_passes.searched import Searched  # noqa: E402
from relay_passes.solvers.memories.problem import AssignmentProblem  # noqa: E402
from relay_passes.solvers.memories.search import assign  # noqa: E402
from relay_passes.solvers.memories.updates import Rates, Update, Updates  # noqa: E402
from relay_passes.solvers.recompute.in_rows import unrolled  # noqa: E402
from relay_passes.solvers.split.segments import Segments  # noqa: E402
from tvm_ext.compilation.learned_updates import WEIGHTS, learned_updates  # noqa: E402
from tvm_ext.compilation.pipeline import compile_module  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402

NETWORKS = (
    "ds_cnn_int8", "resnet8_int8", "autoencoder_int8", "mobilenet_v1_025_96_int8", "mobilenet_v2_035_144_int8",
    "mcunet_320k_int8", "unet_16_int8", "dense_block_12_int8",
)  # fmt: skip
COMPILED_FOR = "always_on"
PLATFORMS = 3
"""Random platforms for each network."""
FIRST_SEED, PLATFORM_SEED = 50_000, 60_000
WITHIN = 0.03
STEPS = (8, 12, 16, 24, 32, 48, 64, 128)
"""Numbers of layers of random networks, in turn."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network as a problem, and the ways to cut a sequence of its steps, found anew at each call."""

    name: str
    whole: AssignmentProblem
    segments: Callable[[tuple[int, ...]], Segments]

    def updates(self, rates: Rates | None = None) -> Updates:
        return Updates(self.whole, self.segments, rates)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One network. gaps, seconds: of proposal, greedy start and places alone; parts of the search's cycles.

    sequences, repeats: of the search's plan, and of the proposal's.
    """

    name: str
    gaps: tuple[float, ...]
    seconds: tuple[float, ...]
    search_seconds: float
    sequences: tuple[int, int]
    repeats: tuple[int, int]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=32, help="random ones (%(default)s)")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"weights": stamped({"bytes": (ROOT / "tvm_ext" / WEIGHTS).stat().st_size})}
    for name, networks in (("random", random_networks(options.problems)), ("zoo", zoo_networks(options.networks))):
        rows = [compared(network) for network in networks]
        found[name] = stamped(figures(rows))
        write_result(options.output, found)
    return 0


def random_networks(count: int) -> Iterator[Network]:
    for number in range(count):
        steps = STEPS[number % len(STEPS)]
        network = random_update(FIRST_SEED + number, steps)
        yield Network(
            name=f"{steps} steps, seed {FIRST_SEED + number}", whole=network.problem, segments=network.segments
        )


def zoo_networks(names: Sequence[str]) -> Iterator[Network]:
    """Each network on the platform it is compiled for, and the same steps with memories of random platforms."""
    for index, name in enumerate(names):
        whole, segments = _seen(name)
        segments(tuple(range(len(whole.steps)))).ending(len(whole.steps))  # what kernels cost by rows is known then
        yield Network(name=f"{name}, {COMPILED_FOR}", whole=whole, segments=segments)
        for number in range(PLATFORMS):
            random = np.random.default_rng(PLATFORM_SEED + 10 * index + number)
            platform = random_platform(random)
            near = tuple(memory.name for memory in platform.memories if memory.name in NEAREST)
            moved = replace(whole, time=replace(whole.time, platform=platform), near=near)
            yield Network(name=f"{name}, platform {number}", whole=within_peak(moved, random), segments=segments)


def _seen(name: str) -> tuple[AssignmentProblem, Callable[[tuple[int, ...]], Segments]]:
    """The first network that the pass sees of a model."""
    seen: list[tuple[AssignmentProblem, Searched]] = []
    made = cut_for_memories.whole_problem

    def kept(known: Searched, *others: Any) -> AssignmentProblem:
        seen.append((made(known, *others), known))
        raise RuntimeError

    with tempfile.TemporaryDirectory(prefix="whole_") as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(zoo.build(name), path)
        with mock.patch.object(cut_for_memories, "whole_problem", kept), suppress(RuntimeError):
            compile_module(tvm_ext.load(path), Platform.load(COMPILED_FOR), tvm_ext.BuildOptions(memories="all"))
    whole, known = seen[0]
    return whole, lambda sequence: Segments(unrolled(known.graph, sequence), known.facts.of(sequence))


def compared(network: Network) -> Compared:
    """Plans beside the search's. One that exceeds more bytes counts as infinitely slow."""
    rates = learned_updates()
    ways: tuple[Callable[[], Update], ...] = (
        lambda: min(network.updates().searched(), key=lambda one: one.score),
        lambda: network.updates(rates).proposal(),
        lambda: _greedy(network.updates()),
        lambda: network.updates().uncut(assign),
    )
    (search, seconds), *others = [_timed(way) for way in ways]
    gaps = [
        float("inf") if plan.score.overflow > search.score.overflow else plan.score.cycles / search.score.cycles - 1
        for plan, _ in others
    ]
    both = (search, others[0][0])
    row = Compared(
        name=network.name, gaps=tuple(gaps), seconds=tuple(took for _, took in others), search_seconds=seconds,
        sequences=tuple(sum(part.rows_per_call > 0 for part in plan.cut.segments) for plan in both),
        repeats=tuple(len(plan.sequence) - len(network.whole.steps) for plan in both),
    )  # fmt: skip
    print(row, flush=True)
    return row


def _greedy(updates: Updates) -> Update:
    return updates.ranked((), updates.cuts)[0]


def _timed(way: Callable[[], Update]) -> tuple[Update, float]:
    begin = process_time()
    found = way()
    return found, process_time() - begin


def figures(rows: Sequence[Compared]) -> dict[str, Any]:
    """Figures of all rows, and the row of each network. Gaps are in percent."""
    total = sum(row.search_seconds for row in rows)
    found: dict[str, Any] = {"problems": len(rows)}
    for place, name in enumerate(("proposal", "greedy", "places_alone")):
        gaps = [row.gaps[place] for row in rows]
        held = [100 * gap for gap in gaps if gap < float("inf")]
        found[name] = {
            "mean_gap_percent": round(float(np.mean(held)), 2), "most_gap_percent": round(max(held), 2),
            "median_gap_percent": round(median(held), 2), "over": len(gaps) - len(held),
            "within_3_percent": round(sum(gap <= WITHIN for gap in gaps) / len(gaps), 3),
            "faster_than_search": sum(gap < -1e-6 for gap in gaps),
            "share_of_seconds": round(sum(row.seconds[place] for row in rows) / total, 3),
            "median_share_of_seconds": round(median(row.seconds[place] / row.search_seconds for row in rows), 3),
            "most_share_of_seconds": round(max(row.seconds[place] / row.search_seconds for row in rows), 3),
        }  # fmt: skip
    found["seconds_of_search"] = round(total, 2)
    for place, name in enumerate(("search", "proposal")):
        found[f"plans_of_{name}_with_cuts"] = sum(row.sequences[place] > 0 for row in rows)
        found[f"plans_of_{name}_with_repeats"] = sum(row.repeats[place] > 0 for row in rows)
    found["rows"] = {
        row.name: [*(_percent(gap) for gap in row.gaps), round(row.search_seconds, 3),
                   *(round(part, 3) for part in row.seconds), *row.sequences, *row.repeats]
        for row in rows
    }  # fmt: skip
    return found


def _percent(gap: float) -> float | None:
    return None if gap == float("inf") else round(100 * gap, 2)


if __name__ == "__main__":
    sys.exit(main())
