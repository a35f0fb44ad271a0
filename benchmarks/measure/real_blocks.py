"""Blocks of documents on model files of public repositories: views of `real_files.json` and `given_files.json`."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from benchmarks.measure.block_parts import grouped, result
from benchmarks.measure.tables import table

Row = Mapping[str, Any]

_GENERIC_SHARE = 0.1
_COMPILE_S = 20
FLOAT_ERROR = 1e-4
"""As in `real_file`, which imports more."""
_REASONS = (
    (r"Flex\w+", "TensorFlow operators carried along (select TF)"),
    (r"external data", "the file of its weights is missing"),
    (r"ai\.onnx\.ml\.", "decision trees of ONNX-ML"),
    (r"ONNX opset [1-5];", "older than opset 6"),
    (r"its flash|flash is|flash of|sram of", "larger than the 4 MiB of flash or of RAM of the board"),
    (r"element type STRING|no rank", "an input of strings"),
    (r"CustomOperator", "another tool's own operator, which no definition comes with"),
)
"""Parts of a reason, and the words for it in the table."""


def real_files() -> str:
    """Files by format and type: how many are built, with whose results, and what they take."""
    kinds: dict[str, list[Row]] = defaultdict(list)
    for name, row in _files().items():
        if "error" not in row:
            kinds[f"`.{name.rpartition('.')[2]}`, {row['dtype']}"].append(row)
    lines = [_kind_line(kind, kinds[kind]) for kind in sorted(kinds, key=lambda kind: (-len(kinds[kind]), kind))]
    built = [row for rows in kinds.values() for row in rows]
    heads = (
        "built", "files", "right", "not compared", "arena / TFLM's, median", "maximum",
        "generic instructions, median", "maximum", "s of CPU, median", "maximum",
    )  # fmt: skip
    count, refused = len(_files()), len(_files()) - len(built)
    said = f"{count} files of {_num_repositories()} repositories: {len(built)} are built, {refused} are refused."
    larger = [row for row in built if "memory_bytes" in row]
    if larger:
        said += (
            f" {len(larger)} of those that are built do not fit into the 4 MiB of flash and of RAM of the board, and"
            f" are built for memories of {larger[0]['memory_bytes'] >> 20} MiB."
        )
    return f"{table(heads, [*lines, _kind_line('all', built)])}\n{textwrap.fill(said, 120)}\n"


def given_files() -> str:
    """Files of a folder one by one: with whose results, and what they take."""
    heads = ("file", "type", "compared with", "right", "arena / TFLM's", "generic instructions", "s of CPU")
    rows = []
    for name, row in sorted(result("given_files")["files"].items()):
        if "error" in row:
            rows.append((f"`{name}`", "", row["reason"][:120], "refused", "", "", ""))
            continue
        arena = row.get("tflm_arena")
        rows.append((
            f"`{name}`", row["dtype"], row["compared_with"] or "-", "yes" if _is_right(row) else "no",
            f"{row['ram_bytes'] / arena['total']:.2f}" if arena else "", f"{row['generic_share']:.0%}",
            f"{row['cpu_s']:.1f}",
        ))  # fmt: skip
    return table(heads, rows)


def _kind_line(kind: str, rows: list[Row]) -> tuple[str, ...]:
    ratios = [row["ram_bytes"] / row["tflm_arena"]["total"] for row in rows if row.get("tflm_arena")]
    shares, seconds = [row["generic_share"] for row in rows], [row["cpu_s"] for row in rows]
    compared = [row for row in rows if row["compared_with"]]
    return (
        kind, str(len(rows)), str(sum(_is_right(row) for row in compared)), str(len(rows) - len(compared)),
        *(f"{measure(ratios):.2f}" if ratios else "" for measure in (median, max)),
        *(f"{measure(shares):.0%}" for measure in (median, max)),
        *(f"{measure(seconds):.1f}" for measure in (median, max)),
    )  # fmt: skip


def _is_right(row: Row) -> bool:
    """Return True for a file whose integers are equal and whose floats are within the tolerance."""
    return not row["differing"] and (row["float_error"] <= FLOAT_ERROR or bool(row.get("verified")))


def real_files_refused() -> str:
    """Reasons of refusals, with the repositories of the files."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, row in _files().items():
        if "error" in row:
            groups[_reason(row)].append(_repository(name))
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return table(
        ("refused because of", "files", "in"),
        [(reason, str(len(names)), ", ".join(sorted(set(names)))) for reason, names in ordered],
    )


def _reason(row: Row) -> str:
    for part, words in _REASONS:
        if re.search(part, row["reason"]):
            return words
    return re.sub(r"^\S+: (cannot be compiled because of: )?", "", row["reason"])[:120]


def real_files_short() -> str:
    """Files that are built and fall short: of other results, of a larger arena, of generic steps or of time."""
    rows = [
        (_short(name), row["dtype"], "; ".join(found))
        for name, row in sorted(_files().items())
        if "error" not in row and (found := list(_shortcomings(row)))
    ]
    return table(("file", "type", "falls short"), rows)


def _shortcomings(row: Row) -> Iterator[str]:
    if row["compared_with"] and not _is_right(row):
        differing = f"{row['differing']} of {row['elements']} integers differ by up to {row['most_steps']}"
        yield differing if row["differing"] else f"floats differ by {row['float_error']:g} of the largest"
    arena = row.get("tflm_arena")
    if arena and row["ram_bytes"] > arena["total"]:
        yield f"arena {grouped(row['ram_bytes'])} B, TensorFlow Lite Micro {grouped(arena['total'])} B"
    if row["generic_share"] > _GENERIC_SHARE:
        yield f"{row['generic_share']:.0%} of the instructions in generic steps"
    if row["cpu_s"] > _COMPILE_S:
        yield f"{row['cpu_s']:.0f} s of CPU"


def _files() -> dict[str, Row]:
    return result("real_files")["files"]


def _num_repositories() -> int:
    return len({_repository(name) for name in _files()})


def _repository(name: str) -> str:
    return "/".join(name.split("/")[:2])


def _short(name: str) -> str:
    """Return owner and repository, and the last two parts of the path."""
    return f"{_repository(name)}: {'/'.join(name.split('/')[2:][-2:])}"
