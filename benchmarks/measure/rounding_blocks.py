"""Blocks of documents on the roundings of .tflite files: views of `benchmarks/results/rounding.json`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from benchmarks.measure.block_parts import grouped, result
from benchmarks.measure.tables import table

Row = Mapping[str, Any]

_MODES = ("tflm", "litert", "once")
_RUNTIMES = {"tflm": "TensorFlow Lite Micro", "litert": "LiteRT"}
_PAIRS = {
    "`tflm` beside TensorFlow Lite Micro": "tflm",
    "`litert` beside LiteRT": "litert",
    "`once` beside TensorFlow Lite Micro": "once",
    "TensorFlow Lite Micro beside LiteRT": "interpreters",
}


def rounding_files() -> str:
    """Files, inputs and elements that were compared in each mode, and how many of them differ."""
    rows = [_pair_line(title, key) for title, key in _PAIRS.items()]
    heads = ("", "files", "of them differ", "inputs", "elements", "of them differ", "most steps of a file of integers")
    inputs = [count for count in map(_inputs, _files().values()) if count]
    said = f"{len(_files())} files with integers, {grouped(min(inputs))} to {grouped(max(inputs))} inputs each."
    if min(inputs) == max(inputs):
        said = f"{len(_files())} files with integers, {grouped(max(inputs))} inputs each."
    return f"{table(heads, rows)}\n{said}\n"


def _pair_line(title: str, key: str) -> tuple[str, ...]:
    compared = [row for row in _files().values() if "elements" in row.get(key, {})]
    steps = [row[key]["largest_difference"] for row in compared if "float32" not in row["types"]]
    return (
        title, str(len(compared)), str(sum(row[key]["differing_elements"] > 0 for row in compared)),
        *(grouped(sum(row[key][count] for row in compared)) for count in ("inputs", "elements", "differing_elements")),
        f"{max(steps, default=0):g}",
    )  # fmt: skip


def _inputs(row: Row) -> int:
    return max((row[key]["inputs"] for key in (*_MODES, "interpreters") if "inputs" in row.get(key, {})), default=0)


def rounding_not_compared() -> str:
    """Files whose outputs differ from those of a mode's runtime, or were not compared with them, and why."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, row in sorted(_files().items()):
        modes: dict[str, list[str]] = defaultdict(list)
        for mode in ("tflm", "litert"):
            if reason := _reason(row, mode):
                modes[reason].append(f"`{mode}`")
        for reason, found in modes.items():
            groups[", ".join(found), reason].append(_short(name))
    lines = [(modes, reason, "; ".join(names)) for (modes, reason), names in sorted(groups.items())]
    return table(("mode", "differs, or not compared", "files"), lines)


def _reason(row: Row, mode: str) -> str:
    if mode not in row:
        return row["reason"]
    found = row[mode]
    if "refused" in found:
        return _refusal(found["refused"])
    if "not_compared" in found:
        return f"{_RUNTIMES[mode]} does not run the file"
    if found["differing_elements"]:
        return f"{grouped(found['differing_elements'])} of {grouped(found['elements'])} elements differ"
    return ""


def _refusal(text: str) -> str:
    """Return the first operator of a refusal and its reason, without the nodes."""
    operator = re.search(r"because of: (\w+).*?\)?: (.*)", text)
    if operator is None:
        return text.partition(": ")[2]
    return f"refused: {operator[1]}: {operator[2].split('; choose')[0].split(' Convert the model')[0]}"


def rounding_instructions() -> str:
    """Instructions of one input on a Cortex-M4 in each mode."""
    counted = {name: row for name, row in _files().items() if any("instructions" in row.get(m, {}) for m in _MODES)}
    lines = [
        (_short(name), *(grouped(row.get(mode, {}).get("instructions")) for mode in _MODES))
        for name, row in sorted(counted.items(), key=lambda item: item[1]["macs"])
    ]
    return table(("instructions on a Cortex-M4", *(f"`{mode}`" for mode in _MODES)), lines)


def _files() -> dict[str, Row]:
    return result("rounding")["files"]


def _short(name: str) -> str:
    """Return the repository and the name of a file."""
    parts = name.split("/")
    return f"{parts[1]}: {parts[-1]}" if len(parts) > 3 else parts[-1]
