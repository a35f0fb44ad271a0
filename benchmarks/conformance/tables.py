"""Totals as JSON and, for readers, a table of what is refused and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.conformance.cases import MODES
from benchmarks.measure.commit import write_result
from benchmarks.measure.tables import table

VERDICTS = ("pass", "refused", "wrong", "crash", "rejected")
Records = Mapping[str, Mapping[str, Any]]


def totals(records: Records) -> dict[str, Any]:
    """Cases by mode and verdict; `either`: passed as they are or baked.

    commit: that of most cases; run_again: those that others ran, cases that were mended since.
    """
    by_mode: dict[str, Any] = {}
    passed: dict[str, set[str]] = {}
    for mode in MODES:
        mine = {key.split("/", 1)[1]: record for key, record in records.items() if key.startswith(f"{mode}/")}
        counted = Counter(record["verdict"] for record in mine.values())
        kinds: dict[str, Counter[str]] = defaultdict(Counter)
        for name, record in mine.items():
            kinds[name.split("/")[0]][record["verdict"]] += 1
        by_mode[mode] = {
            "cases": len(mine),
            **{verdict: counted[verdict] for verdict in VERDICTS},
            "by_kind": {kind: {v: kinds[kind][v] for v in VERDICTS} for kind in sorted(kinds)},
        }
        passed[mode] = {name for name, record in mine.items() if record["verdict"] == "pass"}
    (most, _), *others = Counter(str(record["commit"]) for record in records.values()).most_common()
    return {
        "commit": most,
        "run_again": [{"commit": commit, "cases": count} for commit, count in others],
        "modes": by_mode,
        "passed_either_way": len(set().union(*passed.values())),
    }


def suite_table(summary: Mapping[str, Any]) -> str:
    """Cases by mode, and how they end."""
    titles = {"as-is": "unchanged", "baked": "all inputs except the first are constants"}
    rows = []
    for mode, counted in summary["modes"].items():
        wrong = sum(counted[verdict] for verdict in VERDICTS[2:])
        rows.append((titles[mode], *(f"{count:,}" for count in (counted["pass"], counted["refused"], wrong))))
    total = summary["modes"][MODES[0]]["cases"]
    return table((f"{total:,} cases", "pass", "refused, with the reason", "others"), rows)


def write_tables(summary: dict[str, Any], records: Records, folder: Path) -> None:
    """`totals.json` and `RESULTS.md`."""
    write_result(folder / "totals.json", summary)
    (folder / "RESULTS.md").write_text(_markdown(summary, records), encoding="utf-8")


def _markdown(summary: dict[str, Any], records: Records) -> str:
    lines = [
        "# ONNX backend suite, through the public build()",
        "",
        "Written by `python benchmarks/onnx_conformance.py --way build --tables`: each package is verified as by",
        "default, then its library runs the suite's data. A case passes, or is refused by name before anything is",
        "built; `baked`: inputs other than the first are initializers. `rejected`: verification refuses a package that",
        "is right.",
        "",
        _made_by(summary),
        "",
        "| mode | cases | pass | refused | wrong | crash | rejected |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for mode, counted in summary["modes"].items():
        lines.append(f"| {mode} | {counted['cases']} | " + " | ".join(str(counted[v]) for v in VERDICTS) + " |")
    lines += ["", f"{summary['passed_either_way']} cases pass as they are or baked.", ""]
    for mode in MODES:
        lines += [f"## Refused, {mode}", "", "| cases | reason | operators |", "|---:|---|---|"]
        lines += [f"| {count} | {reason} | {operators} |" for count, reason, operators in _reasons(records, mode)]
        lines.append("")
    return "\n".join(lines)


def _made_by(summary: dict[str, Any]) -> str:
    later = "".join(f"; {again['cases']} again at {again['commit']}" for again in summary["run_again"])
    return f"Run at commit {summary['commit']}{later}."


def _reasons(records: Records, mode: str) -> list[tuple[int, str, str]]:
    """Count, reason, operators; the most frequent first."""
    grouped: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for key, record in records.items():
        if key.startswith(f"{mode}/") and record["verdict"] != "pass":
            grouped[record["reason"].replace("|", "/")].append(record)
    rows = []
    for reason, group in grouped.items():
        operators = sorted({operator for record in group for operator in record["operators"]})
        short = [operator.removeprefix("ai.onnx.") for operator in operators]
        rows.append((len(group), reason, ", ".join(short)))
    return sorted(rows, key=lambda row: (-row[0], row[1]))
