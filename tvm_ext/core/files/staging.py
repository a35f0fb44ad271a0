"""Temporary folders for unfinished work, and folders that live as long as a value.

A staging folder contains `lock`, which names its purpose, and which stays locked as long as its creator lives. The
system releases the lock however the process ends.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from tvm_ext.core.processes.system import NO_LINK, PLAIN_FILE_FLAGS, is_own, lock

PREFIX = ".tvm_ext."
LOCK = "lock"
OLD = "old"

_HEADING = "Temporary folder of tvm_ext; it may be deleted when no tvm_ext runs. For: "
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def staged(parent: Path, purpose: str = "") -> Generator[Path]:
    """Yield a new, locked folder in `parent`, which is removed at the end of the block. Stale folders are removed
    first.

    purpose: name of the file or folder in `parent` that the new content replaces.
    `parent` stays open meanwhile, so that a supervisor can find it at any moment. Raises OSError.
    """
    remove_stale(parent)
    with _held_open(parent):
        folder, locked = _locked_folder(parent, purpose)
        try:
            yield folder
        finally:
            _remove(folder)
            os.close(locked)
            if folder.exists():
                _remove(folder)  # Windows does not remove open files


@contextmanager
def _held_open(parent: Path) -> Generator[None]:
    """Keep the folder open, on systems that can open folders."""
    if not hasattr(os, "O_DIRECTORY"):
        yield
        return
    opened = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
    finally:
        os.close(opened)


def remove_stale(parent: Path) -> None:
    """Remove staging folders whose creators have ended, and restore what they had only set aside."""
    try:
        found = [Path(entry.path) for entry in os.scandir(parent) if entry.name.startswith(PREFIX)]
    except OSError:
        return  # a folder that we cannot list cannot contain our leftovers
    for folder in found:
        with suppress(OSError):
            status = folder.lstat()
            if os.path.isdir(folder) and not folder.is_symlink() and is_own(status):
                _remove_if_stale(folder)


def exchange(new: Path, place: Path, aside: Path) -> bool:
    """Move `new` to `place`, atomically where the system can. Return True if `place` existed and is now at `aside`.

    `new` and `aside` lie in the same staging folder. Raises OSError, and then nothing has changed.
    """
    try:
        os.rename(new, place)  # also replaces an empty folder
        return False
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR, errno.ENOTDIR):
            raise
    if _exchanged(new, place):
        os.rename(new, aside)
        return True
    os.rename(place, aside)
    try:
        os.rename(new, place)
    except OSError:
        os.rename(aside, place)
        raise
    return True


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange both atomically, or return False where the system or the file system cannot."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, TypeError, OSError):
        return False
    return function(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


def _locked_folder(parent: Path, purpose: str) -> tuple[Path, int]:
    """Create a folder that no other process considers stale, even if it looks between two of these steps."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            locked = os.open(folder / LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR | PLAIN_FILE_FLAGS, 0o644)
        except FileNotFoundError:
            continue
        except OSError:
            _remove(folder)
            raise
        try:
            lock(locked)
            if os.path.samestat(os.fstat(locked), os.stat(folder / LOCK)):
                os.write(locked, os.fsencode(f"{_HEADING}{purpose}\n"))
                return folder, locked
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError:
            _remove(folder)
            os.close(locked)
            raise
        os.close(locked)


def _remove_if_stale(folder: Path) -> None:
    try:
        locked = os.open(folder / LOCK, os.O_RDONLY | NO_LINK | PLAIN_FILE_FLAGS)
    except FileNotFoundError:
        folder.rmdir()  # its creator ended before it wrote anything; a folder with entries stays
        return
    try:
        if not lock(locked):
            return  # without locks nothing tells whether its creator lives
        text = os.fsdecode(os.read(locked, 4096))
        if not text.startswith(_HEADING) and (text or os.listdir(folder) != [LOCK]):
            return
        purpose = text.removeprefix(_HEADING).removesuffix("\n")
        place, old = folder.parent / purpose, folder / OLD
        if purpose and "/" not in purpose and os.path.lexists(old) and not os.path.lexists(place):
            os.rename(old, place)
        _remove(folder)
    finally:
        os.close(locked)


def _remove(folder: Path) -> None:
    """Remove a staging folder. The lock goes last, so that the rest of an interrupted removal can be recognized."""
    for entry in list(os.scandir(folder)) if folder.is_dir() else []:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name != LOCK:
            with suppress(OSError):
                os.unlink(entry.path)
    with suppress(OSError):
        os.unlink(folder / LOCK)
    with suppress(OSError):
        folder.rmdir()


Made = TypeVar("Made")


def made_in_temporary_folder(make: Callable[[Path], Made]) -> Made:
    """Return what `make` creates at a path in a new temporary folder, which lives as long as the result.

    The folder is removed at the end of the process at the latest, and at once where `make` raises.
    """
    folder = TemporaryDirectory(prefix="tvm_ext_")
    try:
        made = make(Path(folder.name) / "package")
    except BaseException:
        folder.cleanup()
        raise
    weakref.finalize(made, folder.cleanup)
    return made
