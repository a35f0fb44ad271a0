"""External weights of an ONNX model: only from files in its folder, and of these only the bytes that tensors name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import onnx

from tvm_ext.core.errors import BadModel
from tvm_ext.frontends.mapped_file import mapped_file
from tvm_ext.frontends.onnx.tensor_sizes import num_bytes, tensors_of

Range = tuple[int, int]


class Digest(Protocol):
    """A hash of hashlib."""

    def update(self, data: bytes | memoryview, /) -> None: ...


def load_external(path: Path, model: onnx.ModelProto, digest: Digest) -> None:
    """Move external data into the model, and what was read into the digest: files by name, bytes in order.

    Files are mapped: what no tensor names is not read. Raises BadModel.
    """
    files: dict[str, memoryview] = {}
    used: dict[str, list[Range]] = {}
    for tensor in tensors_of(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        where = f"{path}: external data of tensor {tensor.name!r}"
        location = entries.get("location", "")
        if location not in files:
            files[location] = _opened(path, location, where)
        begin, end = _range(len(files[location]), entries, num_bytes(tensor, where), where)
        tensor.raw_data = bytes(files[location][begin:end])
        used.setdefault(location, []).append((begin, end))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    for location in sorted(files):
        digest.update(location.encode() + b"\0")
        for begin, end in _merged(used[location]):
            digest.update(files[location][begin:end])


def _opened(path: Path, location: str, where: str) -> memoryview:
    folder = path.resolve().parent
    parts = Path(location.replace("\\", "/")).parts
    if not parts or Path(location).is_absolute() or ".." in parts or "\0" in location:
        raise BadModel(f"{where} has location {location!r}; only files inside the model's folder are read.")
    file = (folder / location).resolve()
    if not file.is_relative_to(folder):
        raise BadModel(f"{where} has location {location!r}, a link that leaves the model's folder.")
    if not file.is_file():
        raise BadModel(f"{where}: {location!r} is not a file beside the model.")
    return mapped_file(file, kind="a file of weights") if file.stat().st_size else memoryview(b"")


def _range(size: int, entries: dict[str, str], wanted: int, where: str) -> Range:
    """The tensor's bytes in a file of `size` bytes."""
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(wanted)))
    except ValueError:
        raise BadModel(f"{where}: offset and length must be whole numbers.") from None
    if length != wanted or offset < 0 or offset + length > size:
        raise BadModel(
            f"{where}: bytes [{offset}, {offset + length}) of a file of {size} B do not hold "
            f"the {wanted} B of the tensor; the file is truncated or belongs to another model."
        )
    return offset, offset + length


def _merged(ranges: Iterable[Range]) -> Sequence[Range]:
    """The same bytes, each once, in order."""
    merged: list[Range] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
