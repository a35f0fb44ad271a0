"""Sizes in a .pt2 archive before they are read: of its directory, its JSON, and the tensors that this describes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.pytorch.program_schema import ELEMENT_BYTES

_END, _END_64 = b"PK\x05\x06", b"PK\x06\x06"
_LONGEST_END_BYTES = 22 + 65535 + 20 + 56
# An entry becomes an object of some hundred bytes, and takes 46 here.
_MOST_DIRECTORY_BYTES = 4 << 20


def check_directory(path: Path, data: memoryview, limits: Limits) -> None:
    """The archive's own size, and that of its list of entries. Raises BadModel, UnsupportedModel."""
    reason = limits.excess("weights_bytes", len(data) - limits.text_bytes)
    if reason:
        raise UnsupportedModel(f"{path}: of its {len(data)} B, {reason}.")
    tail = bytes(data[-_LONGEST_END_BYTES:])
    end, end_64 = tail.rfind(_END), tail.rfind(_END_64)
    num_bytes = int.from_bytes(tail[end + 12 : end + 16], "little") if end >= 0 else 0
    if end_64 >= 0:
        num_bytes = max(num_bytes % 0xFFFFFFFF, int.from_bytes(tail[end_64 + 40 : end_64 + 48], "little"))
    if num_bytes > _MOST_DIRECTORY_BYTES:
        raise BadModel(f"{path}: is no archive that torch.export.save wrote: {num_bytes} B list its entries.")


def check_json(path: Path, data: bytes, name: str, limits: Limits) -> None:
    """A file of the archive, by its length and the values in it. Raises UnsupportedModel."""
    values = data.count(b",") + data.count(b"{") + data.count(b"[")
    reason = limits.excess("text_bytes", len(data)) or limits.excess("fields", values)
    if reason:
        raise UnsupportedModel(f"{path}: {name} in it: {reason}.")


def check_program(path: Path, program: object, limits: Limits) -> None:
    """Nodes of the graph and the tensors they make. Raises UnsupportedModel."""
    graph = _object(_object(program, "graph_module"), "graph")
    nodes = graph.get("nodes")
    reason = limits.excess("nodes", len(nodes)) if isinstance(nodes, list) else None
    if reason:
        raise UnsupportedModel(f"{path}: its nodes: {reason}.")
    for name, meta in _object(graph, "tensor_values").items():
        _check_tensor(path, name, meta, limits)


def check_payloads(path: Path, configs: object, limits: Limits) -> None:
    """Weights and constants as their configs describe them; several may lie in one file. Raises UnsupportedModel."""
    total = 0
    for name, entry in _object(configs, "config").items():
        total += _check_tensor(path, name, _object(entry, "tensor_meta"), limits)
        reason = limits.excess("weights_bytes", total)
        if reason:
            raise UnsupportedModel(f"{path}: tensor {name!r} and those before it: {reason}.")


def _check_tensor(path: Path, name: str, meta: Any, limits: Limits) -> int:
    """Bytes of a tensor by its sizes; those that are symbols count as 1 here, and are judged when they are fixed."""
    sizes = list(_sizes(meta))
    element_bytes = ELEMENT_BYTES.get(_fields(meta).get("dtype", 0), 16)
    reason = limits.excess_of_tensor(sizes, element_bytes)
    if reason:
        raise UnsupportedModel(f"{path}: tensor {name!r} is too large: {reason}.")
    count = 1
    for size in sizes:
        count *= size
    return count * element_bytes


def _sizes(meta: Any) -> Iterator[int]:
    listed = _fields(meta).get("sizes")
    for size in listed if isinstance(listed, list) else []:
        number = size.get("as_int") if isinstance(size, dict) else None
        yield number if isinstance(number, int) and number >= 0 else 1


def _object(value: object, key: str) -> dict[str, Any]:
    """A field that should be an object, of one; an empty one where either is not, which torch then judges."""
    return _fields(_fields(value).get(key))


def _fields(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
