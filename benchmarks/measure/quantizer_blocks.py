"""Block of the documents on files of other people's quantizers: a view of `benchmarks/results/quantizers.json`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure.tables import table

RESULTS = Path(__file__).resolve().parent.parent / "results" / "quantizers.json"


def quantizers() -> str:
    """Integer share, error and accuracy by every form of every tool; of the networks side by side."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows, last = [], ""
    for title, measured in found.items():
        tool, _, form = title.partition(": ")
        networks = list(measured["networks"].values())
        rows.append((tool if tool != last else "", form, *_cells(networks)))
        last = tool
    heads = ("tool", "form", "integer multiply-adds, %", "largest error, %", "accuracy, %", "accuracy of the tool, %")
    return table(heads, rows)


def _cells(networks: list[Mapping[str, Any]]) -> tuple[str, ...]:
    accuracies = _side_by_side(networks, lambda one: 100 * one["tool_accuracy"])
    if any("refused" in one for one in networks):
        return ("refused", "", "", accuracies)
    return (
        _side_by_side(networks, lambda one: 100 * one["integer_share"]),
        _side_by_side(networks, lambda one: 100 * one["largest_error"]),
        _side_by_side(networks, lambda one: 100 * one["accuracy"]),
        accuracies,
    )


def _side_by_side(networks: list[Mapping[str, Any]], figure: Callable[[Mapping[str, Any]], float]) -> str:
    """One decimal of each, nothing behind a whole number."""
    return " / ".join(f"{round(figure(one), 1):g}" for one in networks)
