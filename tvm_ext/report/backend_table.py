"""Operators placed on back ends of TVM's virtual machine, as a table of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def backend_table(report: Mapping[str, Any]) -> str:
    """A row for each operator: the back end that runs it, and microseconds on each; totals behind."""
    names = [processor["name"] for processor in report["processors"]]
    rows = [["operator", "kind", "on", *(f"{name} us" for name in names)]]
    for operator in report["operators"]:
        times = [_microseconds(operator["seconds"][name]) for name in names]
        rows.append([operator["name"], operator["kind"], operator["processor"], *times])
    alone = [_microseconds(report["single_processor_seconds"][name]) for name in names]
    rows.append(["all on one", "", "", *alone])
    total, crossing = _microseconds(report["total_seconds"]), _microseconds(report["crossing_seconds"])
    return "\n".join([*_aligned(rows), f"total {total} us, {crossing} us of it between back ends; {report['note']}"])


def _microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.1f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns below each other, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = len(("operator", "kind", "on"))
    return [
        "  ".join(
            cell.ljust(width) if index < texts else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
