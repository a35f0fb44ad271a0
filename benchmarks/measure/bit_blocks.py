"""Block of documents on bits of weights and activations: a view of `benchmarks/results/fewer_bits.json`."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.measure.block_parts import PROCESSORS
from benchmarks.measure.tables import table

RESULTS = Path(__file__).resolve().parent.parent / "results" / "fewer_bits.json"


def fewer_bits() -> str:
    """Constants, instructions and signal to noise of networks by the bits of weights and activations."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows: list[tuple[str, ...]] = []
    for network, measured in found.items():
        for platform, by_weights in measured["processors"].items():
            whole = by_weights["int8"]["instructions"]
            for bits, one in by_weights.items():
                is_first = bits == "int8"
                named = network if is_first and platform == "cortex_m4" else ""
                rows.append(
                    (
                        named, PROCESSORS[platform] if is_first else "",
                        bits, f"{one['operators_int16']} of {one['operators']}" if one["operators_int16"] else "",
                        f"{one['weights_bytes']:,}", f"{one['arena_bytes']:,}", f"{one['instructions']:,}",
                        "" if is_first else f"{one['instructions'] / whole:.2f}",
                        f"{one['instructions'] / one['macs']:.2f}", f"{one['snr_db']:.2f}",
                        "" if one["held_out"] is None else f"{100 * one['held_out']:.2f} %",
                    )
                )  # fmt: skip
    heads = (
        "network",
        "processor",
        "weights, activations",
        "of 16 bits",
        "constants, B",
        "arena, B",
        "instructions",
        "times int8's",
    )
    return table((*heads, "per multiply-add", "output, dB", "accuracy, held out"), rows)
