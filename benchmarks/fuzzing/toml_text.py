"""TOML text of plain data: scalars, lists, tables and lists of tables, as platform files have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def toml_text(content: Mapping[str, Any], prefix: str = "") -> str:
    """TOML text with scalars first, then tables; names as they are."""
    plain = {key: value for key, value in content.items() if not _is_table(value)}
    lines = [f"{_key(key)} = {_scalar(value)}" for key, value in plain.items()]
    for key, value in content.items():
        path = f"{prefix}{_key(key)}"
        if isinstance(value, Mapping):
            lines += [f"[{path}]", toml_text(value, f"{path}.")]
        elif _is_table(value):
            for item in value:
                lines += [f"[[{path}]]", toml_text(item, f"{path}.")]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
    )


def _key(key: str) -> str:
    is_bare = key != "" and key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if is_bare else json.dumps(key)


def _scalar(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_scalar(item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_scalar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return {"nan": "nan", "inf": "inf", "-inf": "-inf"}.get(repr(value), repr(value))
    return str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False)
