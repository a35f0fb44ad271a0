"""Files that others made, read within limits: plain files only, no larger than they may be, never waiting."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def check_file(path: Path, *, most_bytes: int | None = None) -> None:
    """Raises OSError with a reason for what is no plain file that can be read, or is too large."""
    os.close(_opened(path, most_bytes))


def read_file(path: Path, *, most_bytes: int) -> bytes:
    """The whole file. Raises OSError with a reason, as `check_file` does."""
    with os.fdopen(_opened(path, most_bytes), "rb") as file:
        return file.read(most_bytes + 1)


def _opened(path: Path, most_bytes: int | None) -> int:
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    except ValueError:
        raise OSError(errno.EINVAL, "its name holds what no file name can") from None
    try:
        status = os.fstat(number)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no plain file, but a device, a pipe or a socket")
        if most_bytes is not None and status.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"has {status.st_size} B; {most_bytes} B is the most that is read")
    except OSError:
        os.close(number)
        raise
    return number
