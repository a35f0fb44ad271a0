"""Files that outlive a process, by name, in the user's cache folder: written as a whole, and read only if undamaged."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from tvm_ext.core.processes.system import NO_LINK, PLAIN_FILE_FLAGS

FOLDER = "TVM_EXT_CACHE"
"""Environment variable for the folder of the cache."""

_MOST_BYTES = 64 << 20


def default_folder() -> Path:
    """Return the cache folder: TVM_EXT_CACHE, or `tvm_ext` in the user's cache folder."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(FOLDER) or home / "tvm_ext")


def read_kept(path: Path) -> bytes | None:
    """Return the content of a kept file; None if there is none, or if it is damaged, too large or not a plain file.

    A digest in front of the content shows damage. The digest is no signature.
    """
    with suppress(OSError):
        digest, _, content = _read_plain(path).partition(b"\n")
        if digest == hashlib.sha256(content).hexdigest().encode():
            return content
    return None


def write_kept(path: Path, content: bytes) -> bool:
    """Write a file as a whole or not at all. Return False after a failure, such as a full disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
                file.flush()
                os.replace(file.name, path)
            except OSError:
                os.unlink(file.name)
                raise
    except OSError:
        return False
    return True


def _read_plain(path: Path) -> bytes:
    """Return the bytes of a file. Raises OSError for a link, for a file that is not regular or is too large."""
    with open(os.open(path, os.O_RDONLY | NO_LINK | PLAIN_FILE_FLAGS), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            raise OSError("not a kept file")
        return file.read(_MOST_BYTES)
