"""Block of documents on float16 beside float32: a view of `benchmarks/results/half_floats.json`."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.measure.block_parts import PROCESSORS
from benchmarks.measure.tables import table

RESULTS = Path(__file__).resolve().parent.parent / "results" / "half_floats.json"


def half_floats() -> str:
    """Constants, arena, instructions and errors of networks by the type of their tensors."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows: list[tuple[str, ...]] = []
    for network, measured in found.items():
        for index, (platform, by_type) in enumerate(measured["processors"].items()):
            whole = by_type["float32"]["instructions"]
            for kind, one in by_type.items():
                is_first = kind == "float32"
                rows.append(
                    (
                        network if is_first and index == 0 else "", PROCESSORS[platform] if is_first else "", kind,
                        f"{one['weights_bytes']:,}", f"{one['arena_bytes']:,}", f"{one['instructions']:,}",
                        "" if is_first else f"{one['instructions'] / whole:.2f}", f"{one['max_rel_error']:.1e}",
                    )
                )  # fmt: skip
    heads = ("network", "processor", "type", "constants, B", "arena, B", "instructions", "relative to float32", "error")
    return table(heads, rows)
