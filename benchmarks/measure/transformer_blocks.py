"""Block of documents on transformers: a view of `benchmarks/results/transformers.json`."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.measure.block_parts import PROCESSORS
from benchmarks.measure.tables import table

RESULTS = Path(__file__).resolve().parent.parent / "results" / "transformers.json"


PLACES = {"arena": "in the arena", "caller": "in the application"}


def transformers() -> str:
    """Arena and instructions of an encoder block, whole and in less memory, by where input and output lie."""
    rows: list[tuple[str, ...]] = []
    for platform, by_type in json.loads(RESULTS.read_text(encoding="utf-8"))["processors"].items():
        for number, (dtype, by_ports) in enumerate(by_type.items()):
            for place, (io, plans) in enumerate(by_ports.items()):
                whole = plans["whole"]
                for plan, one in plans.items():
                    is_first = plan == "whole"
                    rows.append(
                        (
                            PROCESSORS[platform] if is_first and not number and not place else "",
                            dtype if is_first and not place else "", PLACES[io] if is_first else "", plan,
                            f"{one['arena_bytes']:,}",
                            "" if is_first else f"{whole['arena_bytes'] / one['arena_bytes']:.2f}",
                            f"{one['instructions']:,}", f"{one['instructions'] / one['macs']:.2f}",
                        )
                    )  # fmt: skip
    heads = (
        "processor", "elements", "input, output", "attention", "arena, B", "times smaller", "instructions",
        "per multiply-add",
    )  # fmt: skip
    return table(heads, rows)
