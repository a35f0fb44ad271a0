"""Reading of a package's report.json, whose contents are not trusted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

from tvm_ext.core.errors import BadPackage
from tvm_ext.core.rich_display import facts_html
from tvm_ext.report.summary import summary_facts, summary_line, title

NEWEST_SCHEMA = 1
_MOST_BYTES = 1 << 28
_MOST_DEPTH = 32

Report = dict[str, Any]


class PackageReport(dict[str, Any]):
    """report.json of a package: a dict that consoles and notebooks show as a summary."""

    def __repr__(self) -> str:
        return f"<PackageReport {summary_line(self)}>"

    def _repr_html_(self) -> str:
        keys = ", ".join(self)
        return facts_html(title(self), [*summary_facts(self), ("keys", keys)])


def read_report(folder: Path) -> Report:
    """Read report.json of a package.

    Raises BadPackage if the file is missing, damaged or too large, or if its schema is newer than this version.
    """
    path = folder / "report.json"
    try:
        if path.stat().st_size > _MOST_BYTES or not path.is_file():
            raise BadPackage(f"{path}: is not a file, or is larger than {_MOST_BYTES} B. Compile the model again.")
        report: Any = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
        _check_depth(report)
    except OSError as error:
        raise BadPackage(f"{folder}: is not a package: report.json: {error.strerror}.") from None
    except ValueError as error:
        raise BadPackage(f"{path}: is damaged: {error}. Compile the model again.") from None
    except RecursionError:
        raise BadPackage(f"{path}: is damaged: nested too deeply. Compile the model again.") from None
    version = cast("Report", report).get("schema_version") if isinstance(report, dict) else None
    if not isinstance(version, int):
        raise BadPackage(f"{path}: is not a report of tvm-ext, because schema_version is missing.")
    if version > NEWEST_SCHEMA:
        raise BadPackage(
            f"{path}: has schema_version {version}, but this version of tvm-ext reads at most {NEWEST_SCHEMA}. Update "
            "tvm-ext."
        )
    return PackageReport(cast("Report", report))


def _finite(text: str) -> float:
    """Convert a JSON number. Raises ValueError for a number beyond float64, which would become infinite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is beyond the range of float64")
    return number


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _check_depth(report: Any) -> None:
    """Raise RecursionError if tables and lists are nested too deeply for recursive functions."""
    level: list[Any] = [report]
    for _ in range(_MOST_DEPTH):
        tables = [cast("Report", item).values() for item in level if isinstance(item, dict)]
        lists = [cast("list[Any]", item) for item in level if isinstance(item, list)]
        level = [item for items in (*tables, *lists) for item in items]
        if not level:
            return
    raise RecursionError
