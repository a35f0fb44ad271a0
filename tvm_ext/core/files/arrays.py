"""Read and write arrays in .npz files. Files are untrusted: only numbers are read, and sizes are checked first."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tvm_ext.core.errors import BadInput
from tvm_ext.core.files.read_file import check_file
from tvm_ext.core.files.staging import staged
from tvm_ext.core.memory_exhausted import check_memory

Array = np.ndarray[Any, Any]

MOST_BYTES = 1 << 30
"""Largest size of all arrays of a file together."""

_MOST_ARRAYS = 10_000
_ADVICE = "Write the file with numpy.savez, with arrays of numbers only: pickled objects are not read."
_REASON_CHARACTERS = 300


def read_arrays(path: Path, wanted: Collection[str] | None = None) -> dict[str, Array]:
    """Return the arrays of an .npz file by name: all of them, or those of `wanted` that exist.

    Raises BadInput for a file of another kind, for a damaged file, and for arrays that are not numbers.
    """
    try:
        check_file(path)
        with path.open("rb") as file:
            if file.read(6) == b"\x93NUMPY":
                raise BadInput(f"{path}: is a single array, not an .npz file. {_ADVICE}")
            with zipfile.ZipFile(file) as archive:
                members = _members(path, archive, wanted)
                return {name: _read(path, archive, info) for name, info in members.items()}
    except BadInput:
        raise
    except Exception as error:  # zipfile and numpy's header parser raise any exception on damaged files
        check_memory(error)
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = " ".join(text.split())[:_REASON_CHARACTERS]
        raise BadInput(f"{path}: is not an .npz file that can be read ({reason}). {_ADVICE}") from None


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays of an .npz file that `read_arrays` accepts."""
    with zipfile.ZipFile(path) as archive:
        return [info.filename.removesuffix(".npy") for info in archive.infolist()]


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file completely, or not at all. Raises OSError."""
    with staged(path.absolute().parent, path.name) as staging:
        new = staging / "new"
        # numpy.savez takes arrays as keywords, so it fails for an output named "file".
        with zipfile.ZipFile(new, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        new.replace(path)


def holds_arrays(path: Path) -> bool:
    """Return True for a file that `write_arrays` could have written."""
    try:
        check_file(path)
        with zipfile.ZipFile(path) as archive:
            return all(name.endswith(".npy") for name in archive.namelist())
    except Exception:
        return False


def _members(path: Path, archive: zipfile.ZipFile, wanted: Collection[str] | None) -> dict[str, zipfile.ZipInfo]:
    infos = archive.infolist()
    if len(infos) > _MOST_ARRAYS:
        raise BadInput(f"{path}: holds {len(infos)} arrays; the limit is {_MOST_ARRAYS}.")
    found: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if wanted is not None and name not in wanted:
            continue
        if name in found:
            raise BadInput(f"{path}: holds {name!r} twice. {_ADVICE}")
        if info.flag_bits & 1:
            raise BadInput(f"{path}: {name!r} is encrypted. {_ADVICE}")
        found[name] = info
    total = sum(info.file_size for info in found.values())
    if total > MOST_BYTES:
        raise BadInput(f"{path}: holds {total} B of arrays; the limit is {MOST_BYTES} B. Give fewer samples.")
    return found


def _read(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    name = info.filename.removesuffix(".npy")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise BadInput(
                f"{path}: {name!r} has format version {version}, for records with named fields, which is not read. "
                f"{_ADVICE}"
            )
        shape, _, dtype = read_header(member)
        if dtype.kind not in "biuf" or dtype.hasobject:
            raise BadInput(f"{path}: {name!r} is {dtype}; give numbers: integers, floats or booleans. {_ADVICE}")
        due = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or due != info.file_size - member.tell():
            raise BadInput(f"{path}: {name!r} declares {list(shape)} of {dtype}, and its bytes do not match. {_ADVICE}")
    with archive.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)
