"""Memory allocation problems of a package as CSV, in the format of MiniMalloc.

Each memory with an arena has a file: a header `id,lower,upper,size`, and a line for each buffer, which is alive in
steps [lower, upper) and takes `size` bytes. Sizes are rounded up to multiples of 16, the alignment of offsets. Tensors
inside another tensor have no line. Bytes that a kernel's input and output may share count twice, so the plan of the
package may be smaller than any solution of the file.
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
    """Return the text of the CSV file of each memory, by its name. Raises BadPackage for a damaged report."""
    try:
        found: dict[str, list[tuple[str, int, int, int]]] = {}
        for one in report["tensors"]:
            if not one.get("part_of"):
                size = -(-int(one["num_bytes"]) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
                row = (_name(one["c_name"]), int(one["begin"]), int(one["end"]), size)
                found.setdefault(_name(one["memory"]), []).append(row)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadPackage(f"report.json is damaged at {error}. Compile the model again.") from None
    return {memory: _csv(rows) for memory, rows in found.items()}


def write_allocation_problems(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write `<memory>.csv` for each memory into a folder, which is replaced. Return the files. Raises BadPackage."""
    texts = allocation_problems(report)
    with replaced_folder(folder) as new:
        for memory, text in texts.items():
            (new / f"{memory}.csv").write_text(text, encoding="utf-8")
    return [folder / f"{memory}.csv" for memory in texts]


def _name(value: object) -> str:
    """Return a name of a C tensor or a memory if it is safe as a part of a file name and a line. Raises ValueError."""
    if not isinstance(value, str) or not re.fullmatch(r"\w{1,128}", value, re.ASCII):
        raise ValueError(f"the name {value!r}")
    return value


def _csv(rows: list[tuple[str, int, int, int]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([COLUMNS, *rows])
    return text.getvalue()
