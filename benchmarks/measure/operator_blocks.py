"""Blocks of documents that compare operators with the least instructions they need: generic steps, and soft spots.

They show `benchmarks/results/generic_costs.json` and `soft_spots.json`.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.measure.block_parts import PROCESSORS, grouped, result
from benchmarks.measure.tables import table
from benchmarks.networks.soft_spots import M4, M55

MOST_OF_BOUND = 1.5
_GENERIC_PROCESSORS = {
    "cortex_m4": "Cortex-M4",
    "soft": "Cortex-M4 without FPU",
    "cortex_m55": "Cortex-M55",
    "cortex_m0plus": "Cortex-M0+",
}


def generic_totals() -> str:
    """Generic steps by processor: modelled against executed, and executed against the least."""
    rows: list[tuple[str, ...]] = []
    for name, one in result("generic_costs")["processors"].items():
        ratios = [row["ratio"] for row in one["rows"] if "ratio" in row]
        above = str(one["above goal"]) if ratios else ""
        shares = (f"{one['within 1.25']:.1%}", f"{one['within 2']:.1%}")
        middle, most = (f"{measure(ratios):.2f}" if ratios else "" for measure in (median, max))
        rows.append((_GENERIC_PROCESSORS[name], str(one["operators"]), *shares, middle, most, above))
    heads = ("processor", "definitions", "within 1.25", "within 2", "executed / least, median", "maximum", "above 3")
    return table(heads, rows)


def generic_steps() -> str:
    """Executed instructions of each definition beside the least, those farthest from it first."""
    processors: dict[str, Any] = result("generic_costs")["processors"]
    others = {row["operator"]: row for row in processors["cortex_m55"]["rows"]}
    rows = [
        (
            f"`{row['operator']}`", *map(grouped, (row["least"], row["executed"])), f"{row['ratio']:.2f}",
            f"{row['modelled'] / row['executed']:.2f}", grouped(others[row["operator"]]["executed"]),
            f"{others[row['operator']]['ratio']:.2f}",
        )
        for row in sorted(processors["cortex_m4"]["rows"], key=lambda row: -row["ratio"])
    ]  # fmt: skip
    heads = ("definition", "Cortex-M4: least", "executed", "executed / least", "modelled / executed")
    return table((*heads, "Cortex-M55: executed", "executed / least"), rows)


def soft_spots() -> str:
    """Return a table of each operator's instructions, cycles and bound; their ratio is bold above 1.5."""
    rows: list[tuple[str, ...]] = []
    for name, measured in result("soft_spots").items():
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
