"""Temporary folders that live as long as the value that was made in them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

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
