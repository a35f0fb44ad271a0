"""Blocks of documents on orders and repeats decided together: views of `benchmarks/results/free_orders.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.measure.tables import table

RESULTS = Path(__file__).resolve().parent.parent / "results" / "free_orders.json"


def free_orders() -> str:
    """Duration that repeats add, for the best order and for any, by graph and part of its peak."""
    rows = [
        (name, share, _percent(one["best_order_percent"]), _percent(one["free_percent"]),
         f"{one['best_order_seconds']:.1f}", f"{one['free_seconds']:.1f}")
        for name, by_share in _found()["layered"].items()
        for share, one in by_share.items() if share != "commit"
    ]  # fmt: skip
    heads = ("graph", "part of the peak", "added, best order", "added, any order", "seconds", "additional seconds")
    return table(heads, rows)


def reached_orders() -> str:
    """The least bytes of networks by order alone and with repeats."""
    rows = [
        (
            f"`{name}`", f"{one['operators']}", f"{one['searched_bytes']:,}", f"{one['order_bytes']:,}",
            *(_reached(one, key) for key in ("searched_order", "best_order", "free")),
        )
        for name, one in _found()["reached"].items()
    ]  # fmt: skip
    heads = (
        "network", "operators", "peak, search", "peak, annealing", "smallest with recomputation, order of the search",
        "annealed order", "any order",
    )  # fmt: skip
    return table(heads, rows)


def _found() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def _percent(number: float | None) -> str:
    return "none found" if number is None else f"{number:.2f} %"


def _reached(one: dict[str, Any], key: str) -> str:
    if one[f"{key}_bytes"] is None:
        return "none below the peak"
    return f"{one[f'{key}_bytes']:,}, {one[f'{key}_percent']:.2f} % added"
