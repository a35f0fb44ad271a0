"""Platforms that come with tvm_ext, as their files have them: for lists, which do not wait for what checks them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvm_ext.core.errors import BadPlatform
from tvm_ext.core.files.user_tables import read_table

_FOLDER = Path(__file__).parent.parent / "platforms"


def shipped_tables() -> list[dict[str, Any]]:
    """Tables of the shipped files, sorted by name; tests load each with all checks. Raises BadPlatform."""
    return [read_table(_FOLDER / f"{name}.toml", "platform", BadPlatform) for name in shipped_names()]


def shipped_names() -> list[str]:
    """Names of the shipped platforms, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))
