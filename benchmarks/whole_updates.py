"""The search for a network's update for several memories beside a much wider search, and beside parts of itself.

    python benchmarks/whole_updates.py --output benchmarks/results/whole_updates.json

random: networks and platforms of `random_updates.py`. zoo: networks as the pass that cuts them for several memories
sees them, on the platform they are compiled for.

The wider search takes segments of any length with any number of rows per call, and searches the assignments of eight
updates in place of one. Of each network: predicted cycles above those of the wider search (`gap`, below 0 where it is
slower) of the search, and of its best quick assignment; processor seconds of these, as parts of the wider search's.
`over`: plans that exceed a limit by more than the wider search's plan does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from benchmarks.networks.random_updates import random_update  # noqa: E402
from relay_passes.memory import cut_for_memories  # noqa: E402
from relay_passes.searched import Searched  # noqa: E402
from relay_passes.solvers.memories.problem import AssignmentProblem  # noqa: E402
from relay_passes.solvers.memories.updates import Update, Updates  # noqa: E402
from relay_passes.solvers.recompute.in_rows import unrolled  # noqa: E402
from relay_passes.solvers.split.segments import Segments  # noqa: E402
from tvm_ext.compilation.pipeline import compile_module  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402

NETWORKS = (
    "ds_cnn_int8", "resnet8_int8", "autoencoder_int8", "mobilenet_v1_025_96_int8", "mobilenet_v2_035_144_int8",
    "mcunet_320k_int8", "unet_16_int8", "dense_block_12_int8",
)  # fmt: skip
COMPILED_FOR = "always_on"
FIRST_SEED = 50_000
MOST_SEARCHED = 8
"""Updates whose assignments the wider search searches."""
WITHIN = 0.03
STEPS = (8, 12, 16, 24, 32, 48)
"""Numbers of layers of random networks, in turn."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network as a problem, and the ways to cut a sequence of its steps, found anew at each call."""

    name: str
    whole: AssignmentProblem
    segments: Callable[[tuple[int, ...]], Segments]

    def updates(self) -> Updates:
        return Updates(self.whole, lambda sequence: self.segments(sequence).few())

    def wider(self) -> Updates:
        return Updates(self.whole, self.segments, most_searched=MOST_SEARCHED)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The search on one network, compared with the wider search.

    gaps: how many more cycles are predicted for the plan of the search, and for its best quick assignment, as fractions
    of the cycles of the wider search. seconds: CPU time of both. wider_seconds: CPU time of the wider search.
    sequences, repeats: numbers of sequences and of recomputed operators in the plan of the search.
    """

    name: str
    gaps: tuple[float, ...]
    seconds: tuple[float, ...]
    wider_seconds: float
    sequences: int
    repeats: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=18, help="random ones (%(default)s)")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {}
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
    """Each network on the platform it is compiled for."""
    for name in names:
        whole, segments = _seen(name)
        segments(tuple(range(len(whole.steps)))).ending(len(whole.steps))  # what kernels cost by rows is known then
        yield Network(name=f"{name}, {COMPILED_FOR}", whole=whole, segments=segments)


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
    """Plans beside the wider search's. One that exceeds more bytes counts as infinitely slow."""
    wider, wider_seconds = _timed(lambda: network.wider().fastest()[0])
    search, *_ = others = [
        _timed(lambda: network.updates().fastest()[0]), _timed(lambda: network.updates().ranked()[0])
    ]  # fmt: skip
    gaps = [
        float("inf") if plan.score.overflow > wider.score.overflow else plan.score.cycles / wider.score.cycles - 1
        for plan, _ in others
    ]
    row = Compared(
        name=network.name, gaps=tuple(gaps), seconds=tuple(took for _, took in others), wider_seconds=wider_seconds,
        sequences=sum(part.rows_per_call > 0 for part in search[0].cut.segments),
        repeats=len(search[0].sequence) - len(network.whole.steps),
    )  # fmt: skip
    print(row, flush=True)
    return row


def _timed(way: Callable[[], Update]) -> tuple[Update, float]:
    begin = process_time()
    found = way()
    return found, process_time() - begin


def figures(rows: Sequence[Compared]) -> dict[str, Any]:
    """Figures of all rows, and the row of each network. Gaps are in percent."""
    total = sum(row.wider_seconds for row in rows)
    found: dict[str, Any] = {"problems": len(rows)}
    for place, name in enumerate(("search", "quick")):
        gaps = [row.gaps[place] for row in rows]
        held = [100 * gap for gap in gaps if gap < float("inf")]
        found[name] = {
            "mean_gap_percent": round(float(np.mean(held)), 2), "most_gap_percent": round(max(held), 2),
            "median_gap_percent": round(median(held), 2), "over": len(gaps) - len(held),
            "within_3_percent": round(sum(gap <= WITHIN for gap in gaps) / len(gaps), 3),
            "faster_than_wider": sum(gap < -1e-6 for gap in gaps),
            "share_of_seconds": round(sum(row.seconds[place] for row in rows) / total, 3),
            "median_share_of_seconds": round(median(row.seconds[place] / row.wider_seconds for row in rows), 3),
            "most_share_of_seconds": round(max(row.seconds[place] / row.wider_seconds for row in rows), 3),
        }  # fmt: skip
    found["seconds_of_wider"] = round(total, 2)
    found["plans_with_cuts"] = sum(row.sequences > 0 for row in rows)
    found["plans_with_repeats"] = sum(row.repeats > 0 for row in rows)
    found["rows"] = {
        row.name: [*(_percent(gap) for gap in row.gaps), round(row.wider_seconds, 3),
                   *(round(part, 3) for part in row.seconds), row.sequences, row.repeats]
        for row in rows
    }  # fmt: skip
    return found


def _percent(gap: float) -> float | None:
    return None if gap == float("inf") else round(100 * gap, 2)


if __name__ == "__main__":
    sys.exit(main())
