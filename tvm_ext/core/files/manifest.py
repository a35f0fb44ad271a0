"""`manifest.json`: the files of an output folder and their SHA-256, by which it is known to be ours, and unchanged."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import cast

MANIFEST = "manifest.json"
_SCHEMA_VERSION = 1
_MOST_BYTES = 1 << 20
_PRODUCTS = (".a", ".elf")
"""Endings of files that the package's own Makefile makes anew."""


def write_manifest(folder: Path) -> None:
    """List all files below `folder`, which is complete but for this."""
    files = {name: _sha256(folder / name) for name, _ in sorted(_entries(folder)) if name != MANIFEST}
    text = json.dumps({"schema_version": _SCHEMA_VERSION, "files": files}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def in_the_way(folder: Path) -> list[str]:
    """Entries of a folder that are not as its manifest lists them, sorted, each with the reason; none: replaceable.

    Without a manifest these are all. Files that the package's Makefile builds from listed ones are no obstacle.
    """
    listed = _read(folder)
    if listed is None:
        return sorted(name for name, _ in _entries(folder))
    allowed = {"build/host_selftest"} if "Makefile" in listed else set[str]()
    for name in listed:
        if name.endswith(".c"):
            allowed |= {f"build/{name[:-2]}.{ending}" for ending in ("o", "d")}
    folders = {parent.as_posix() for name in (*listed, *allowed) for parent in Path(name).parents}
    found: list[str] = []
    for name, mode in sorted(_entries(folder)):
        if stat.S_ISDIR(mode):
            if name not in folders:
                found.append(f"{name}/")
        elif not stat.S_ISREG(mode):
            found.append(f"{name} (no plain file)")
        elif name in allowed or name == MANIFEST:
            continue
        elif name not in listed:
            found.append(name)
        elif not name.endswith(_PRODUCTS) and _sha256(folder / name) != listed[name]:
            found.append(f"{name} (changed)")
    return found


def _entries(folder: Path) -> Iterator[tuple[str, int]]:
    """Relative names and modes of files, of links, which are not followed, and of folders that hold nothing.

    A folder that holds something is told by that; one of another file system is told itself.
    """
    device = folder.lstat().st_dev
    for where, folders, files in os.walk(folder, onerror=_refuse):
        for name in (*folders, *files):
            path = Path(where) / name
            status = path.lstat()
            is_folder = stat.S_ISDIR(status.st_mode)
            if not is_folder or status.st_dev != device or not any(path.iterdir()):
                yield path.relative_to(folder).as_posix(), status.st_mode


def _refuse(error: OSError) -> None:
    raise error


def _read(folder: Path) -> dict[str, str] | None:
    """The listed files; None where there is no manifest that can be read."""
    path = folder / MANIFEST
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            return None
        record: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    files = cast("dict[str, object]", record).get("files") if isinstance(record, dict) else None
    if not isinstance(files, dict):
        return None
    return {str(name): str(digest) for name, digest in cast("dict[object, object]", files).items()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
