"""Tables of TensorFlow Lite: files by verdict, operators by element type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.measure.tables import table

_TYPES = ("float32", "int8", "int16x8")
# From the worst on.
_VERDICTS = {"foreign": "fails", "off": "off", "refused": "refused", "tflm off": "exact, TFLM is not", "equal": "equal"}


def files_table(found: Mapping[str, Any]) -> str:
    """Files of the result of `benchmarks/tflite_files.py`, by verdict."""
    verdicts = Counter(row["verdict"] for row in found["rows"])
    rows = [
        ("equal, byte for byte, on this machine and on a Cortex-M4", f"{verdicts['equal']:,}"),
        ("refused, with the reason", f"{verdicts['refused']:,}"),
        ("others", f"{found['files'] - verdicts['equal'] - verdicts['refused']:,}"),
    ]
    return table((f"{found['files']:,} files, {found['inputs']} inputs each", "files"), rows)


def operators_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Operators of the rows of `benchmarks/tflite_operators.py`.

    Those that say the same for all types stand in one row, the largest group first.
    """
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        found.setdefault(row["operator"], {}).setdefault(row["dtype"], []).append(row)
    alike: dict[tuple[str, ...], list[str]] = {}
    for operator, by_type in found.items():
        alike.setdefault(tuple(_verdict(by_type.get(dtype, [])) for dtype in _TYPES), []).append(operator)
    lines = [
        (", ".join(f"`{name}`" for name in sorted(names)), *verdicts)
        for verdicts, names in sorted(alike.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return table(("operators", "float32", "int8", "int16, int8 weights"), lines)


def _verdict(rows: list[Mapping[str, Any]]) -> str:
    """The worst that an operator's files say; a dash where TensorFlow Lite Micro refuses all of them."""
    taken = [row for row in rows if row["verdict"] != "tflm refuses"]
    worst = next((verdict for verdict in _VERDICTS if any(row["verdict"] == verdict for row in taken)), None)
    if worst is None:
        return "-"
    return f"off by {max(row['off'] for row in taken):g}" if worst == "off" else _VERDICTS[worst]
