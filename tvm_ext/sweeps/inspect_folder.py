"""A table of all model files in a folder: operators, whether they compile or why not, RAM, flash and kernels.

Each file is read and compiled without a C compiler in a child process of its own, which has a time limit and no rights.
A file that fails, ends its process or takes too long gives a row with the reason, and the other files follow.
"""

from __future__ import annotations

import csv
import io
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tvm_ext.core.errors import BadOptions, TvmExtError
from tvm_ext.core.limits import Limits
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.child import Child, ChildLimits
from tvm_ext.report.cells import FoldingTable, escape, number

SUFFIXES = (".mlir", ".onnx", ".pt2", ".tflite", ".tosa")
COLUMNS = (
    "file", "format", "compiles", "reason", "error", "ram_bytes", "flash_bytes", "macs", "kernel_macs_share", "seconds",
    "operators",
)  # fmt: skip
"""Columns of the table. `operators` maps the model's operators to their numbers."""

_GENERIC = "generic"
"""Name of the kernel for operators that TVM lowers to plain C."""

Row = Mapping[str, Any]


def model_files(folder: Path) -> list[Path]:
    """Return the model files below a folder, sorted by path. Raises BadOptions if there are none."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not found:
        raise BadOptions(f"{folder}: has no model files below it; {', '.join(SUFFIXES)} are read.")
    return found


def inspect_file(folder: Path, path: Path, platform: Platform, *, limits: Limits, seconds: float) -> Row:
    """Return the row of a model file, with the keys `COLUMNS`.

    limits: as in `load`. seconds: wall time for the file. The model is compiled with the default options, to the memory
    plan of the platform.
    """
    begin = time.monotonic()
    row = _row(path, platform, limits, seconds)
    name = path.relative_to(folder).as_posix()
    blank = dict.fromkeys(COLUMNS) | {"file": name, "format": path.suffix.lower()[1:], "compiles": False}
    return {**blank, **row, "seconds": round(time.monotonic() - begin, 2)}


def _row(path: Path, platform: Platform, limits: Limits, seconds: float) -> Row:
    """Return the results of a file, or its error, with the folder removed from the message."""
    try:
        with Child(__name__, limits=ChildLimits(seconds=seconds)) as child:
            return child.call("inspected", str(path.resolve()), platform.to_json(), limits.to_json())
    except TvmExtError as error:
        reason = str(error).replace(f"{path.resolve().parent}/", "").removeprefix(f"{__name__}.inspected ")
        return {"error": type(error).__name__, "reason": " ".join(reason.split())}


def prepare() -> None:
    """Import all that `inspected` needs."""
    import tvm_ext.estimates.estimate  # noqa: F401


def inspected(path: str, platform: str, limits: str) -> dict[str, Any]:
    """Return the results of a file, in the child process. Operators are known also for a model that does not fit."""
    from tvm_ext.compilation.pipeline import compile_module
    from tvm_ext.core.decisions.models import ModelOrigin
    from tvm_ext.core.options import BuildOptions
    from tvm_ext.estimates.estimate import estimate_of
    from tvm_ext.frontends.load import load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = load(path, limits=Limits.from_json(limits))
        operators = dict(Counter(node.operator for node in ModelOrigin.read(mod).nodes))
        try:
            compiled = compile_module(mod, Platform.from_json(platform), BuildOptions())
        except TvmExtError as error:
            return {"operators": operators, "error": type(error).__name__, "reason": str(error)}
    estimated = estimate_of(compiled)
    return {
        "compiles": True, "operators": operators, "ram_bytes": estimated.ram_bytes,
        "flash_bytes": estimated.flash_bytes, "macs": estimated.macs,
        "kernel_macs_share": _share(
            (call.implementation.macs, call.implementation.kernel) for call in compiled.program.kernel_calls()
        ),
    }  # fmt: skip


def _share(calls: Iterable[tuple[int, str]]) -> float | None:
    """Return the share of multiply-accumulates that kernels compute, not loops that TVM lowered; None without any."""
    counted = [(macs, kernel != _GENERIC) for macs, kernel in calls]
    total = sum(macs for macs, _ in counted)
    return round(sum(macs for macs, is_kernel in counted if is_kernel) / total, 4) if total else None


def as_csv(rows: Sequence[Row]) -> str:
    """Return the table as CSV. Operators are a text such as `CONV_2D 3; RESHAPE 1`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "operators": operators_text(row)} for row in rows)
    return text.getvalue()


def operators_text(row: Row) -> str:
    """Return the operators of a row with their numbers, the most frequent first."""
    return "; ".join(f"{name} {count}" for name, count in Counter(row["operators"] or {}).most_common())


def table(rows: Sequence[Row], platform: Platform) -> FoldingTable:
    """Return the table for a terminal."""
    compiled = sum(bool(row["compiles"]) for row in rows)
    shown = FoldingTable(
        "file", title=f"{compiled} of {len(rows)} files compile for {platform.name}", title_justify="left"
    )
    for heading in ("RAM", "flash", "MACs", "in kernels", "s"):
        shown.add_column(heading, justify="right")
    shown.add_column("operators, or the reason")
    for row in rows:
        share = row["kernel_macs_share"]
        sizes = [number(row[key], " B") if row["compiles"] else "" for key in ("ram_bytes", "flash_bytes")]
        macs = number(row["macs"]) if row["compiles"] else ""
        said = operators_text(row) if row["compiles"] else f"{row['error']}: {row['reason']}"
        percent = "" if share is None else f"{share:.0%}"
        shown.add_row(escape(row["file"]), *sizes, macs, percent, f"{row['seconds']:.1f}", escape(said))
    return shown
