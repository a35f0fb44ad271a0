"""Read untrusted files: only regular files, within limits, or mapped where they may be large."""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
from pathlib import Path

from tvm_ext.core.errors import BadModel
from tvm_ext.core.processes.system import PLAIN_FILE_FLAGS


def check_file(path: Path, *, most_bytes: int | None = None) -> None:
    """Raise OSError with a reason for anything that is not a readable regular file, or is too large."""
    os.close(_opened(path, most_bytes))


def read_file(path: Path, *, most_bytes: int) -> bytes:
    """Return the whole file. Raises OSError with a reason, like `check_file`."""
    with os.fdopen(_opened(path, most_bytes), "rb") as file:
        return file.read(most_bytes + 1)


def address_of(path: Path) -> str | None:
    """Return the network address that a path was made from, such as `https://host/model.onnx`, or None.

    Path drops one of the address's two slashes, which this function restores.
    """
    found = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", str(path), re.DOTALL)
    return f"{found[1]}://{found[2]}" if found else None


def _opened(path: Path, most_bytes: int | None) -> int:
    try:
        number = os.open(path, os.O_RDONLY | PLAIN_FILE_FLAGS)
    except ValueError:
        raise OSError(errno.EINVAL, "the name is not valid for a file") from None
    try:
        status = os.fstat(number)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file, but a device, a pipe or a socket")
        if most_bytes is not None and status.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"has {status.st_size} B; the limit is {most_bytes} B")
    except OSError:
        os.close(number)
        raise
    return number


def mapped_file(path: Path, *, kind: str, most_bytes: int | None = None, way_out: str = "") -> memoryview:
    """Return a read-only mapping of a file, which lives as long as the view.

    kind: the name of the format's files in errors, such as `an ONNX file`.
    most_bytes: the largest size that the format allows.
    Raises BadModel for a missing, unreadable, empty or larger file.
    """
    if path.is_dir():
        raise BadModel(f"{path}: is a folder; give the path of {kind}.")
    if not path.is_file():
        raise BadModel(f"{path}: is a pipe or device; give the path of {kind}.")
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if most_bytes is not None and size > most_bytes:
                raise BadModel(f"{path}: {size} B is more than the {most_bytes} B {kind} can have{way_out}.")
            if size == 0:
                raise BadModel(f"{path}: is empty (0 B); write the file again.")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it became shorter while it was read"
        raise BadModel(f"{path}: cannot be read: {reason}.") from None
