"""Block of documents on operators beside bounds by hand: a view of `benchmarks/results/soft_spots.json`."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.measure.block_parts import PROCESSORS
from benchmarks.measure.tables import table
from benchmarks.networks.soft_spots import M4, M55

RESULTS = Path(__file__).resolve().parent.parent / "results" / "soft_spots.json"
MOST_OF_BOUND = 1.5


def soft_spots() -> str:
    """Instructions and cycles of each operator, its bound and their ratio, which is bold above 1.5."""
    rows: list[tuple[str, ...]] = []
    for name, measured in json.loads(RESULTS.read_text(encoding="utf-8")).items():
        cells: list[str] = []
        for platform in (M4, M55):
            one = measured[platform]
            ratio = f"{one['ratio']:.2f}"
            cells += [f"{one[key]:.2f}" for key in ("instructions", "cycles", "bound")]
            cells.append(f"**{ratio}**" if one["ratio"] > MOST_OF_BOUND else ratio)
        operator, _, dtype = name.rpartition(", ")
        rows.append((operator, dtype, *cells))
    heads = ("instructions", "cycles, estimated", "bound", "of bound")
    each = [f"{PROCESSORS[platform]}, {head}" for platform in (M4, M55) for head in heads]
    return table(("operator", "elements", *each), rows)
