"""Block of documents on layers that read one tensor: a view of `benchmarks/results/shared_windows.json`."""

from __future__ import annotations

from benchmarks.measure.block_parts import PROCESSORS, grouped, result
from benchmarks.measure.tables import table

NETWORKS = {
    "gates": "WaveNet, gates of two taps",
    "wide_heads": "SSD, heads of 3 x 3 taps",
    "narrow_heads": "SSD, heads of 1 x 1",
    "inception": "inception blocks",
    "cross_stage": "cross-stage blocks of YOLO",
    "attention_16": "transformer, 16 wide",
    "attention_64": "encoder block, 64 wide",
}


def shared_windows() -> str:
    """Instructions, flash and arena of networks with joined layers, beside those with each layer in a call alone."""
    rows: list[tuple[str, ...]] = []
    for network, measured in result("shared_windows").items():
        for number, (platform, processor) in enumerate(PROCESSORS.items()):
            alone, joined = measured[platform]["alone"], measured[platform]["joined"]
            flash = [one["weights_bytes"] + one["code_bytes"] for one in (alone, joined)]
            rows.append(
                (
                    "" if number else NETWORKS[network], processor, str(alone["calls"] - joined["calls"]),
                    *(grouped(one["instructions"]) for one in (alone, joined)),
                    f"{100 * (1 - joined['instructions'] / alone['instructions']):.1f}", *map(grouped, flash),
                    *(grouped(one["arena_bytes"]) for one in (alone, joined)),
                )
            )  # fmt: skip
    heads = (
        "network, int8", "processor", "fewer calls", "instructions", "joined", "saved, %", "flash, B", "joined",
        "arena, B", "joined",
    )  # fmt: skip
    return table(heads, rows)
