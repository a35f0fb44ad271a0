"""Replace output folders as a whole or not at all, and only where `manifest.json` proves all files to be ours."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from tvm_ext.core.errors import BadPackage
from tvm_ext.core.files.staging import OLD, exchange, staged

_MOST_NAMED = 3
_MOST_LOOKS = 100
_STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)


@contextmanager
def replaced_folder(folder: Path) -> Generator[Path]:
    """Yield a new folder to fill, which replaces `folder` when the block succeeds, and is removed when it fails.

    Raises BadPackage if the folder cannot be written, or contains anything that is not ours.
    """
    check_output(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with staged(folder.parent, folder.name) as staging:
            new = staging / "new"
            new.mkdir()
            new.chmod(0o755)
            yield new
            write_manifest(new)
            _put_in_place(new, folder, staging / OLD)
    except OSError as error:
        if error.errno not in _STORAGE_ERRORS and not _is_near(error, folder):
            raise
        raise _cannot_be_written(folder, error) from None


def check_output(folder: Path) -> None:
    """Raise BadPackage where an output folder cannot be written, or contains foreign files.

    The check leaves no trace.
    """
    try:
        name = os.fsencode(folder)
        if not folder.name or folder.name == ".." or b"\0" in name or b"\n" in name:
            raise BadPackage(f"{str(folder)!r}: this folder cannot be replaced; choose another output folder.")
        _check_replaceable(folder)
        parent = next(parent for parent in folder.absolute().parents if os.path.lexists(parent))
        if os.path.lexists(folder):
            parent = folder.absolute().parent
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        longest = os.pathconf(parent, "PC_NAME_MAX")
        if any(len(os.fsencode(part)) > longest for part in folder.parts):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        with staged(parent):
            pass
    except UnicodeEncodeError:
        raise BadPackage(f"{str(folder)!r}: not a valid name for a folder; choose another output folder.") from None
    except OSError as error:
        raise _cannot_be_written(folder, error) from None


def _check_replaceable(folder: Path) -> None:
    """Raise BadPackage with the names of the entries that would be lost."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise BadPackage(f"{folder}: is not a folder; choose another output folder.")
    place = folder.resolve()
    for what, other in (("the working folder", Path.cwd()), ("the home folder", _home())):
        if other and (place == other or place in other.parents):
            raise BadPackage(f"{folder}: is or holds {what}; choose another output folder.")
    if os.path.ismount(folder):
        raise BadPackage(f"{folder}: is the mount point of a file system; choose a folder inside it.")
    obstacles = _obstacles(folder)
    if obstacles:
        raise BadPackage(_refusal(folder, obstacles))


def _obstacles(folder: Path) -> list[str]:
    """Return `in_the_way` of a folder that another build may replace meanwhile.

    The check is repeated until the folder stays the same.
    """
    for _ in range(_MOST_LOOKS):
        before = _identity(folder)
        with suppress(FileNotFoundError):
            found = in_the_way(folder)
            if _identity(folder) == before:
                return found
    raise BadPackage(f"{folder}: other programs keep changing this folder; choose another output folder.")


def _identity(folder: Path) -> tuple[int, int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _refusal(folder: Path, obstacles: list[str]) -> str:
    more = f" and {len(obstacles) - _MOST_NAMED} more" if len(obstacles) > _MOST_NAMED else ""
    listed = ", ".join(obstacles[:_MOST_NAMED]) + more
    if not os.path.lexists(folder / MANIFEST):
        return (
            f"{folder}: has no {MANIFEST} that says it is ours, and holds {listed}, which would be lost. Choose a new "
            "or an empty folder, or delete this one."
        )
    return (
        f"{folder}: holds what its {MANIFEST} does not list so, and what would be lost: {listed}. Move it elsewhere, "
        "or choose another output folder."
    )


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except (RuntimeError, OSError):
        return None


def _put_in_place(new: Path, folder: Path, old: Path) -> None:
    """Exchange first and check the old folder afterwards, because it may change meanwhile; undo if it is foreign."""
    if not exchange(new, folder, old):
        return
    obstacles = in_the_way(old) if old.is_dir() and not old.is_symlink() else ["something that is not a folder"]
    if obstacles:
        exchange(old, folder, new)
        raise BadPackage(_refusal(folder, obstacles))


def _is_near(error: OSError, folder: Path) -> bool:
    """Return True for an error about the output folder or its neighbours."""
    return isinstance(error.filename, str) and Path(error.filename).is_relative_to(folder.parent)


def _cannot_be_written(folder: Path, error: OSError) -> BadPackage:
    return BadPackage(f"{folder}: cannot be written: {error.strerror or error}; choose another output folder.")


MANIFEST = "manifest.json"
_SCHEMA_VERSION = 1
_MOST_BYTES = 1 << 20
_PRODUCTS = (".a", ".elf")
"""Suffixes of files that the package's own Makefile rebuilds."""


def write_manifest(folder: Path) -> None:
    """List all files below `folder`, which is complete except for the manifest."""
    files = {name: _sha256(folder / name) for name, _ in sorted(_entries(folder)) if name != MANIFEST}
    text = json.dumps({"schema_version": _SCHEMA_VERSION, "files": files}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def in_the_way(folder: Path) -> list[str]:
    """Return the entries of a folder that differ from its manifest, sorted, with reasons; empty if replaceable.

    Without a manifest these are all entries. Files that the package's Makefile builds from listed files are no
    obstacle.
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
    """Yield relative names and modes of files, of links, which are not followed, and of empty folders.

    A folder with entries is represented by these. A folder of another file system is listed itself.
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
    """Return the listed files, or None where there is no readable manifest."""
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
