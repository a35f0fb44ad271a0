"""Block of the README on transformers: a view of `benchmarks/results/transformers.json`."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.measure.block_parts import PROCESSORS
from benchmarks.measure.tables import table

RESULTS = Path(__file__).resolve().parent.parent / "results" / "transformers.json"


def transformers() -> str:
    """Arena and instructions of an encoder block, whole and by rows."""
    rows: list[tuple[str, ...]] = []
    for platform, by_type in json.loads(RESULTS.read_text(encoding="utf-8"))["processors"].items():
        for dtype, plans in by_type.items():
            whole = plans["whole"]["arena_bytes"]
            for plan, one in plans.items():
                is_first = plan == "whole"
                processor = PROCESSORS[platform] if is_first and dtype == "float32" else ""
                rows.append(
                    (
                        processor, dtype if is_first else "", plan,
                        f"{one['arena_bytes']:,}", "" if is_first else f"{whole / one['arena_bytes']:.2f}",
                        f"{one['instructions']:,}", f"{one['instructions'] / one['macs']:.2f}",
                    )
                )  # fmt: skip
    heads = ("processor", "elements", "attention", "arena, B", "times smaller", "instructions", "per multiply-add")
    return table(heads, rows)
