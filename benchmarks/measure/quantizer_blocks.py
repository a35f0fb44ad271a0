"""Blocks of the documents on quantization: files of other people's quantizers, and forms of operators in int8."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure.tables import table
from benchmarks.networks.forms import forms

FOLDER = Path(__file__).resolve().parent.parent / "results"
RESULTS = FOLDER / "quantizers.json"
MOST_OF_SIBLING = 1.5


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


def int8_forms() -> str:
    """Instructions of forms of operators in int8, before and now, in float, and beside their plain siblings.

    A ratio above 1.5 is bold.
    """
    found: dict[str, Any] = json.loads((FOLDER / "int8_forms.json").read_text(encoding="utf-8"))
    rows = [
        (name, form.unit, form.sibling, *_form_cells(found[name], "cortex_m4"), *_form_cells(found[name], "cortex_m55"))
        for name, form in forms().items()
        if name in found
    ]
    heads = ("before", "int8", "float", "of sibling")
    each = [f"{core}, {head}" for core in ("M4", "M55") for head in heads]
    return table(("form", "counted", "sibling", *each), rows)


def _form_cells(row: Mapping[str, Any], platform: str) -> tuple[str, ...]:
    """The costs of a form, and how often its sibling's; nothing for a form that the simplifier removes."""
    costs = row[platform]
    before = row.get("before", {}).get(platform)
    ratio = f"{costs['ratio']:.2f}" if costs["sibling"] > 0 else ""
    return (
        f"{before['int8']['cost']:.2f}" if before else "", f"{abs(costs['int8']['cost']):.2f}",
        f"{abs(costs['float32']['cost']):.2f}",
        f"**{ratio}**" if ratio and costs["ratio"] > MOST_OF_SIBLING else ratio.removeprefix("-"),
    )  # fmt: skip


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
