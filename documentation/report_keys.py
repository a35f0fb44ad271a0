"""The page of the keys of report.json, from `report_keys.toml`; tests compare it with reports."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documentation.markdown import page, table

PATH = "docs/reference/report_keys.md"
FILE = Path(__file__).with_suffix(".toml")
_SAME = {"outputs[]": "inputs[]", "verify.qemu": "verify.host"}
_OPEN = frozenset(
    {"selftest_coverage.missed", "selftest_coverage.missed_shared", "options", "placement", "tuning", "image"}
)
"""Tables whose keys are names, or described on a page of their own."""
_INTRO = """\
`report.json` of a package is the one record of its build; tables of `tvm-ext report`, the memory map and
`Package.report` are views of it. Keys are stable within a `schema_version`; a null says that it was not measured.
`[]` is each entry of a list. A bundle's report has one of these under `models` for each of its models
([bundles](../bundles.md)); what several processors add is explained in [processors](../processors.md#in-reportjson)."""


def described() -> dict[str, str]:
    """Return the meaning of each key."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))["keys"]


def report_keys_page() -> str:
    meanings = described()
    tops = [key for key in meanings if "." not in key]
    nested = {top: [key for key in meanings if key.startswith((f"{top}.", f"{top}[]"))] for top in tops}
    flat = table(("key", "meaning"), [(f"`{top}`", meanings[top]) for top in tops])
    parts = [
        f"## {top}\n\n{table(('key', 'meaning'), [(f'`{key}`', meanings[key]) for key in keys])}"
        for top, keys in nested.items()
        if keys
    ]
    return page("Keys of report.json", _INTRO, flat, *parts)


def undescribed(report: dict[str, Any]) -> set[str]:
    """Return the keys of a report that are missing on the page."""
    meanings = described()
    return {key for key in map(_known_as, _keys(report, "")) if key not in meanings}


def _known_as(key: str) -> str:
    for own, same in _SAME.items():
        if key.startswith(f"{own}.") and key not in described():
            return same + key.removeprefix(own)
    return key


def _keys(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _keys(item, f"{path}[]")
    elif isinstance(value, dict):
        for name, inner in value.items():
            key = f"{path}.{name}" if path else name
            yield key
            if key not in _OPEN:
                yield from _keys(inner, key)
