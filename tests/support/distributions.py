"""Distributions of others, as an installer leaves them: a module beside its metadata, in a folder of Python's path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, name: str, source: str, points: Mapping[str, str]) -> None:
    """A distribution `name` 1.0 of one module. points: group -> a line of it, `name = module:object`."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("".join(f"[{group}]\n{line}\n" for group, line in points.items()))
    (folder / f"{name}.py").write_text(source)
