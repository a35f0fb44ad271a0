"""Blocks of documents on bits of weights and activations: views of files in `benchmarks/results`."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.measure.block_parts import PROCESSORS, grouped, network_name, result
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
        "operators with 16 bits",
        "constants, B",
        "arena, B",
        "instructions",
        "relative to int8",
    )
    return table((*heads, "per multiply-add", "output, dB", "accuracy, held out"), rows)


def grown_weights() -> str:
    """Flash and instructions of networks by weights that grow for speed, beside those by weights that do not."""
    rows: list[tuple[str, ...]] = []
    for network, measured in result("grown_weights").items():
        grown, least = measured["grown"], measured["least"]
        flash = {way: one["weights_bytes"] + one["code_bytes"] for way, one in (("grown", grown), ("least", least))}
        rows.append(
            (
                network_name(network, dtype=True), str(grown["layers"]),
                *(grouped(one["instructions"]) for one in (least, grown)),
                f"{grown['instructions'] / least['instructions']:.2f}",
                *map(grouped, (flash["least"], flash["grown"])), f"{flash['grown'] / flash['least']:.2f}",
                *(grouped(one["arena_bytes"]) for one in (least, grown)),
            )
        )  # fmt: skip
    heads = (
        "network, Cortex-M4", "expanded layers", "instructions", "expanded", "ratio", "flash, B", "expanded",
        "ratio", "arena, B", "expanded",
    )  # fmt: skip
    return table(heads, rows)
