"""Blocks of documents on generic steps: a view of `benchmarks/results/generic_costs.json`."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.measure.block_parts import grouped, result
from benchmarks.measure.tables import table

_PROCESSORS = {
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
        rows.append((_PROCESSORS[name], str(one["operators"]), *shares, middle, most, above))
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
