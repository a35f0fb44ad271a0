"""Block of documents on searches behind the memory plan: a view of `benchmarks/results/searches.json`."""

from __future__ import annotations

from benchmarks.measure.block_parts import result
from benchmarks.measure.tables import table


def recomputation() -> str:
    """Duration that repeats add to layered graphs, and the least that any add."""
    rows = [
        (
            name, f"{found['added_percent']:.2f} %", str(found["repeats"]), f"{found['seconds']:.0f}",
            f"{found['at_least_percent']:.2f} %",
            f"{found['proved_percent']:.2f} %", f"{found['seconds_of_proof']:.0f}",
        )
        for name, found in result("searches")["recompute"].items()
    ]  # fmt: skip
    heads = ("graph", "added time", "repeats", "CPU, s", "bound of the search", "bound, proved", "CPU of the proof, s")
    return table(heads, rows)
