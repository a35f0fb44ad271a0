"""Counts of outcomes by kind of case, as a result and as a table."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fuzzing.outcome import AGREES, FAILURES, KINDS, READ, REFUSED, WARNINGS, WITHOUT_REFERENCE, Outcome

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, kw_only=True)
class Record:
    """A case and its end."""

    index: int
    kind: str
    outcome: Outcome


def summary(records: Sequence[Record], *, seed: int, commit: str, wall_s: float) -> dict[str, Any]:
    """Counts by outcome and kind, refusals by class, and every failure and warning with its figures."""
    kinds = sorted({record.kind for record in records})
    counted = {kind: Counter(record.outcome.kind for record in records if record.kind == kind) for kind in kinds}
    refusals = Counter(record.outcome.error for record in records if record.outcome.kind == REFUSED)
    return {
        "commit": commit,
        "seed": seed,
        "cases": len(records),
        "wall_s": round(wall_s, 1),
        "cpu_s": round(sum(record.outcome.cpu_s for record in records), 1),
        "most_cpu_s": max((record.outcome.cpu_s for record in records), default=0),
        "most_bytes": max((record.outcome.peak_bytes for record in records), default=0),
        "outcomes": dict(sorted(Counter(record.outcome.kind for record in records).items())),
        "by_kind": {kind: dict(sorted(counted[kind].items())) for kind in kinds},
        "refused": dict(sorted(refusals.items())),
        "failures": _listed(records, FAILURES),
        "warnings": _listed(records, WARNINGS),
    }


def _listed(records: Sequence[Record], kinds: Sequence[str]) -> list[dict[str, Any]]:
    """One entry for each signature, with the cases that share it."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record.outcome.kind in kinds:
            found.setdefault(record.outcome.signature, []).append(record)
    return [
        {"kind": kind, "error": error, "where": where, "count": len(group),
         "cases": [f"{record.index} ({record.kind})" for record in group[:12]],
         "detail": _without_paths(group[0].outcome.detail)[:700]}
        for (kind, error, where), group in sorted(found.items())
    ]  # fmt: skip


def _without_paths(text: str) -> str:
    """The text without folders of this machine: files of the project by their path in it, others by their name."""
    return re.sub(r"/[\w./-]*/", "", text.replace(f"{ROOT}/", ""))


def total(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts of several runs together, with all their failures and warnings."""
    kinds = sorted({kind for run in runs for kind in run["by_kind"]})
    counted = {kind: sum((Counter(run["by_kind"].get(kind, {})) for run in runs), Counter[str]()) for kind in kinds}
    return {
        "cases": sum(run["cases"] for run in runs),
        "wall_s": round(sum(run["wall_s"] for run in runs), 1),
        "most_cpu_s": max(run["most_cpu_s"] for run in runs),
        "most_bytes": max(run["most_bytes"] for run in runs),
        "outcomes": dict(sorted(sum(counted.values(), Counter[str]()).items())),
        "by_kind": {kind: dict(sorted(counted[kind].items())) for kind in kinds},
        "failures": [entry for run in runs for entry in run["failures"]],
        "warnings": [entry for run in runs for entry in run["warnings"]],
    }


def table(result: Mapping[str, Any]) -> str:
    """Rows of outcomes, columns of kinds of cases; then failures, one per line."""
    kinds = list(result["by_kind"])
    rows = [kind for kind in KINDS if kind in result["outcomes"]]
    lines = ["| outcome | " + " | ".join(kinds) + " | all |", "|---|" + "---:|" * (len(kinds) + 1)]
    for row in rows:
        cells = [str(result["by_kind"][kind].get(row, "")) for kind in kinds]
        lines.append(f"| {row} | " + " | ".join(cells) + f" | {result['outcomes'][row]} |")
    lines.append(
        "| cases | "
        + " | ".join(str(sum(result["by_kind"][kind].values())) for kind in kinds)
        + f" | {result['cases']} |"
    )
    for part in ("failures", "warnings"):
        lines += ["", f"{part}: {sum(entry['count'] for entry in result[part])}"]
        for entry in result[part]:
            gist = " ".join(entry["detail"].split())[:160]
            shown = ", ".join(entry["cases"][:4])
            lines.append(f"  {entry['count']:4d}  {entry['kind']}: {entry['error']} {entry['where']} [{shown}] {gist}")
    rate = result["cases"] / max(result["wall_s"], 0.1)
    lines += ["", f"{result['cases']} cases in {result['wall_s']} s, {rate:.1f} a second; "
              f"longest {result['most_cpu_s']} s, largest {result['most_bytes'] / 2**20:.0f} MiB"]  # fmt: skip
    return "\n".join(lines)


def mutants() -> str:
    """Damaged files by format: how many were tried, read, compiled and refused, and how many failed."""
    runs = json.loads((ROOT / "benchmarks" / "results" / "mutants.json").read_text(encoding="utf-8"))["runs"]
    counted: dict[str, Counter[str]] = {}
    for kind, outcomes in total(runs)["by_kind"].items():
        counted.setdefault(kind.removesuffix(" bytes").removesuffix(" fields"), Counter()).update(outcomes)
    rows = [
        (kind, sum(outcomes.values()),
         outcomes[READ] + outcomes[AGREES] + outcomes[WITHOUT_REFERENCE], outcomes[REFUSED],
         sum(outcomes[one] for one in WARNINGS), sum(outcomes[one] for one in FAILURES))
        for kind, outcomes in sorted(counted.items())
    ]  # fmt: skip
    sums = [sum(row[column] for row in rows if isinstance(row[column], int)) for column in range(1, 6)]
    lines = [
        "| damaged file | cases | accepted | refused | warnings | failures |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, *numbers in [*rows, ("all", *sums)]:
        lines.append("| " + " | ".join([str(name), *(f"{number:,}" for number in numbers)]) + " |")
    return "\n".join(lines) + "\n"
