"""Temporary folders: work in progress until it is complete, and folders that live as long as a value.

A staging folder holds `lock`, which names what it is for, and is locked for as long as its maker lives: the system
lets go of the lock however that ends.
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

_HEADING = "A folder that tvm_ext works in; it may be deleted when no tvm_ext runs. For: "
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def staged(parent: Path, purpose: str = "") -> Generator[Path]:
    """A new, locked folder in `parent`, gone when the block ends; stale ones beside it go first.

    purpose: name of the file or folder in `parent` that takes its place. Raises OSError.

    `parent` is held open all the while: so a supervisor knows where to look, at any moment between two steps.
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
                _remove(folder)  # Windows removes no file that is open


@contextmanager
def _held_open(parent: Path) -> Generator[None]:
    """The folder, open where the system opens folders."""
    if not hasattr(os, "O_DIRECTORY"):
        yield
        return
    opened = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
    finally:
        os.close(opened)


def remove_stale(parent: Path) -> None:
    """Remove staging folders of makers that are gone; what they had only set aside is put back."""
    try:
        found = [Path(entry.path) for entry in os.scandir(parent) if entry.name.startswith(PREFIX)]
    except OSError:
        return  # who cannot look cannot have left anything
    for folder in found:
        with suppress(OSError):
            status = folder.lstat()
            if os.path.isdir(folder) and not folder.is_symlink() and is_own(status):
                _remove_if_stale(folder)


def exchange(new: Path, place: Path, aside: Path) -> bool:
    """Put `new` at `place`, in one step where the system can; True if something was there, now at `aside`.

    new and aside lie in one staging folder. Raises OSError; then everything is as it was.
    """
    try:
        os.rename(new, place)  # takes an empty folder's place, too
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
    """Exchange both in one step; False where the system or the file system cannot do that."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, TypeError, OSError):
        return False
    return function(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


def _locked_folder(parent: Path, purpose: str) -> tuple[Path, int]:
    """A folder that nobody else takes for a stale one: another process may look between any two of these steps."""
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
        folder.rmdir()  # its maker was ended before it wrote anything; a folder that holds something stays
        return
    try:
        if not lock(locked):
            return  # nothing here says whether its maker lives
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
    """The lock goes last, so that what is left of an interrupted removal can still be told."""
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
    """What `make` makes at a path in a new temporary folder, which is removed when nothing refers to it any more.

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
