"""A file of any size as bytes that are read from it when they are looked at, and not before."""

from __future__ import annotations

import mmap
from pathlib import Path

from tvm_ext.core.errors import BadModel


def mapped_file(path: Path, *, kind: str, most_bytes: int | None = None, way_out: str = "") -> memoryview:
    """All of a file, read-only, mapped as long as the view lives.

    kind: how the format's files are called in errors, `an ONNX file`. most_bytes: what the format can have at most.
    Raises BadModel for what is no file, cannot be read, is empty, or larger than that.
    """
    if path.is_dir():
        raise BadModel(f"{path}: is a directory; give the path of {kind}.")
    if not path.is_file():
        raise BadModel(f"{path}: is a pipe or device; give the path of {kind}.")
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if most_bytes is not None and size > most_bytes:
                raise BadModel(f"{path}: {size} B is more than the {most_bytes} B {kind} can have{way_out}.")
            if size == 0:
                raise BadModel(f"{path}: is empty (0 B).")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it became shorter while it was read"
        raise BadModel(f"{path}: cannot be read: {reason}.") from None
