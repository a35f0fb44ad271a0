"""Allocation problems of a package as CSV: what was planned, in the form that MiniMalloc reads.

One file for each memory with an arena: a header `id,lower,upper,size`, and a line for each buffer, which is alive in
steps [lower, upper) and takes `size` bytes. Sizes are rounded up to 16, of which offsets in an arena are multiples.
Tensors inside of another one are no lines of their own, and bytes that a kernel's input and output may share count
twice: the plan of the package may be lower than any solution of the file.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.errors import BadPackage
from tvm_ext.core.files.output_folder import replaced_folder

COLUMNS = ("id", "lower", "upper", "size")


def allocation_problems(report: Mapping[str, Any]) -> dict[str, str]:
    """Text of the CSV file of each memory, by its name. Raises BadPackage for a report without placed tensors."""
    try:
        found: dict[str, list[tuple[str, int, int, int]]] = {}
        for one in report["tensors"]:
            if not one.get("part_of"):
                size = -(-int(one["num_bytes"]) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
                row = (_name(one["c_name"]), int(one["begin"]), int(one["end"]), size)
                found.setdefault(_name(one["memory"]), []).append(row)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadPackage(f"report.json: is damaged at {error}. Compile the model again.") from None
    return {memory: _csv(rows) for memory, rows in found.items()}


def write_allocation_problems(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write `<memory>.csv` for each memory into a folder, which is replaced; the files. Raises BadPackage."""
    texts = allocation_problems(report)
    with replaced_folder(folder) as new:
        for memory, text in texts.items():
            (new / f"{memory}.csv").write_text(text, encoding="utf-8")
    return [folder / f"{memory}.csv" for memory in texts]


def _name(value: object) -> str:
    """A name of C or of a memory, which may be a part of a file's name and of a line. Raises ValueError."""
    if not isinstance(value, str) or not re.fullmatch(r"\w{1,128}", value, re.ASCII):
        raise ValueError(f"the name {value!r}")
    return value


def _csv(rows: list[tuple[str, int, int, int]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([COLUMNS, *rows])
    return text.getvalue()
