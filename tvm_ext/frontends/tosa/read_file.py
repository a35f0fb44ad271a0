"""Read a .tosa flatbuffer that is not trusted: every table, size and name is checked.

The flatbuffers library reads single fields; the schema's numbers of fields are written here, because the package with
generated readers of TOSA requires versions of numpy that this project does not support.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flatbuffers import number_types as numbers
from flatbuffers.table import Table

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.files.read_file import mapped_file
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.tosa.schema import ATTRIBUTES, BITS, CHOICES, OPERATORS, STORED, TYPES

_IDENTIFIER = b"TOSA"
_MAX_FILE_BYTES = (1 << 31) - 1  # offsets of a flatbuffer have 32 bits, and some are signed
_DAMAGE = (struct.error, ValueError, TypeError, IndexError, OverflowError, KeyError)
"""Exceptions that the flatbuffers library and numpy raise for offsets outside of the file."""

# Numbers of fields in the tables of the schema.
_GRAPH_VERSION, _GRAPH_REGIONS = 0, 1
_REGION_BLOCKS = 1
_BLOCK_OPERATORS, _BLOCK_TENSORS, _BLOCK_INPUTS, _BLOCK_OUTPUTS, _BLOCK_SHAPES = 1, 2, 3, 4, 5
_TENSOR_NAME, _TENSOR_SHAPE, _TENSOR_TYPE, _TENSOR_DATA, _TENSOR_VARIABLE, _TENSOR_UNRANKED = 0, 1, 2, 3, 4, 5
_TENSOR_OFFSET = 7
_SHAPE_NAME, _SHAPE_RANK, _SHAPE_DATA = 0, 1, 2
_OPERATOR_NUMBER, _OPERATOR_ATTRIBUTE, _OPERATOR_INPUTS, _OPERATOR_OUTPUTS = 0, 2, 3, 4


@dataclass(frozen=True, kw_only=True, eq=False)
class TosaTensor:
    """A tensor, or a shape, which is a constant vector of int64.

    type_name: an entry of `TYPES`.
    shape: None for an axis that the file leaves open.
    data: numbers of a constant, else None. Numbers of 4 bits have the type int8, those of 48 bits int64.
    """

    name: str
    type_name: str
    shape: tuple[int | None, ...]
    data: np.ndarray | None = None

    @property
    def dtype(self) -> str | None:
        """Element type in numpy, or None for a type that cannot be compiled."""
        return STORED.get(self.type_name)


@dataclass(frozen=True, kw_only=True, eq=False)
class TosaNode:
    """An operator with the names of its tensors.

    operator: its name in the schema, such as `CONV2D`.
    attributes: as the schema names them: numbers, lists of numbers, names of choices and types, or bytes.
    label: name for messages, which is that of its first result.
    """

    operator: str
    label: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, eq=False)
class TosaGraph:
    """The only block of a graph: its tensors by name, its operators in order, its inputs and outputs."""

    tensors: Mapping[str, TosaTensor]
    nodes: tuple[TosaNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sha256: str
    weights_bytes: int


def read_tosa(path: Path, limits: Limits) -> TosaGraph:
    """Read and check a file. Raises BadModel, and UnsupportedModel for other versions, control flow and large files."""
    data = mapped_file(path, kind="a .tosa file", most_bytes=_MAX_FILE_BYTES)
    if len(data) < 8 or data[4:8] != _IDENTIFIER:
        raise BadModel(f"{path}: is not a TOSA file: its bytes 4 to 8 are not 'TOSA'.")
    try:
        root = _Fields(Table(data, struct.unpack_from("<I", data)[0]))
        return _Reader(path, limits).graph(root, hashlib.sha256(data).hexdigest())
    except _DAMAGE as error:
        raise BadModel(f"{path}: is truncated or damaged: its {len(data)} B cannot be read: {error}.") from None


class _Fields:
    """Fields of one table of the file by their number, with the defaults of the flatbuffer format."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def scalar(self, number: int, kind: object, default: int = 0) -> int:
        place = self._table.Offset(4 + 2 * number)
        return int(self._table.Get(kind, self._table.Pos + place)) if place else default

    def child(self, number: int) -> _Fields | None:
        place = self._table.Offset(4 + 2 * number)
        return _Fields(Table(self._table.Bytes, self._table.Indirect(self._table.Pos + place))) if place else None

    def text(self, number: int) -> str:
        place = self._table.Offset(4 + 2 * number)
        return _text(self._table.String(self._table.Pos + place)) if place else ""

    def length(self, number: int) -> int:
        place = self._table.Offset(4 + 2 * number)
        return self._table.VectorLen(place) if place else 0

    def vector(self, number: int, dtype: str) -> np.ndarray:
        """Return a vector of numbers, which is checked to lie inside the file. A missing vector is empty."""
        place = self._table.Offset(4 + 2 * number)
        if not place:
            return np.empty(0, dtype)
        return np.frombuffer(self._table.Bytes, dtype, self._table.VectorLen(place), self._table.Vector(place))

    def children(self, number: int) -> Iterator[_Fields]:
        place = self._table.Offset(4 + 2 * number)
        for index in range(self._table.VectorLen(place) if place else 0):
            at = self._table.Vector(place) + 4 * index
            yield _Fields(Table(self._table.Bytes, self._table.Indirect(at)))

    def texts(self, number: int) -> Iterator[str]:
        place = self._table.Offset(4 + 2 * number)
        for index in range(self._table.VectorLen(place) if place else 0):
            yield _text(self._table.String(self._table.Vector(place) + 4 * index))


def _text(raw: bytes) -> str:
    return raw.decode()


class _Reader:
    """Reads one file and adds up what its limits count."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._weights_bytes, self._text_bytes = 0, 0

    def graph(self, root: _Fields, sha256: str) -> TosaGraph:
        self._check_version(root.child(_GRAPH_VERSION))
        block = self._only_block(root)
        counts = {"nodes": block.length(_BLOCK_OPERATORS), "fields": block.length(_BLOCK_TENSORS)}
        for limit, count in counts.items():
            self._check(f"its number of {'operators' if limit == 'nodes' else 'tensors'}", limit, count)
        found = [self._tensor(fields) for fields in block.children(_BLOCK_TENSORS)]
        found += [self._shape(fields) for fields in block.children(_BLOCK_SHAPES)]
        tensors = {tensor.name: tensor for tensor in found}
        if len(tensors) < len(found):
            raise BadModel(f"{self._path}: two tensors have the same name.")
        return TosaGraph(
            tensors=tensors, nodes=tuple(self._node(fields) for fields in block.children(_BLOCK_OPERATORS)),
            inputs=self._names(block, _BLOCK_INPUTS), outputs=self._names(block, _BLOCK_OUTPUTS), sha256=sha256,
            weights_bytes=self._weights_bytes,
        )  # fmt: skip

    def _check_version(self, version: _Fields | None) -> None:
        if version is None:
            raise BadModel(f"{self._path}: is not a complete TOSA graph: it has no version.")
        major, minor = (version.scalar(number, numbers.Int32Flags, -1) for number in (0, 1))
        if major != 1:
            raise UnsupportedModel(
                f"{self._path}: has version {major}.{minor} of TOSA; files of version 1 can be compiled. Write the "
                "file again with a converter of version 1."
            )

    def _only_block(self, root: _Fields) -> _Fields:
        regions = list(root.children(_GRAPH_REGIONS)) if root.length(_GRAPH_REGIONS) == 1 else []
        if len(regions) != 1 or regions[0].length(_REGION_BLOCKS) != 1:
            raise UnsupportedModel(
                f"{self._path}: has {root.length(_GRAPH_REGIONS)} regions; a graph of one region with one block can be "
                "compiled, without COND_IF and WHILE_LOOP."
            )
        return next(regions[0].children(_REGION_BLOCKS))

    def _tensor(self, fields: _Fields) -> TosaTensor:
        name, number = self._named(fields.text(_TENSOR_NAME)), fields.scalar(_TENSOR_TYPE, numbers.Uint32Flags)
        type_name = TYPES[number] if number < len(TYPES) else f"type {number}"
        extents = [int(extent) for extent in fields.vector(_TENSOR_SHAPE, "<i4")]
        if fields.scalar(_TENSOR_UNRANKED, numbers.BoolFlags):
            raise UnsupportedModel(f"{self._path}: tensor {name!r} has no rank; write the file with static shapes.")
        if fields.scalar(_TENSOR_VARIABLE, numbers.BoolFlags):
            raise UnsupportedModel(
                f"{self._path}: tensor {name!r} is a variable, which cannot be compiled; make it an input and an "
                "output of the graph."
            )
        if fields.scalar(_TENSOR_OFFSET, numbers.Uint64Flags) > 1:
            raise UnsupportedModel(f"{self._path}: tensor {name!r} lies outside of the flatbuffer; at most 2 GiB fit.")
        shape = tuple(extent if extent >= 0 else None for extent in extents)
        self._check_shape(name, [extent or 1 for extent in shape], type_name)
        raw = fields.vector(_TENSOR_DATA, "u1")
        if raw.size == 0 and 0 not in shape:
            return TosaTensor(name=name, type_name=type_name, shape=shape)
        data = None
        if type_name in STORED and 0 not in shape and None not in shape:
            self._weights_bytes += raw.size
            self._check("its weights", "weights_bytes", self._weights_bytes)
            data = numbers_of(raw, type_name, tuple(extent or 0 for extent in shape))
            if data is None:
                raise BadModel(
                    f"{self._path}: tensor {name!r} has {raw.size} B of data, which its shape does not need."
                )
        return TosaTensor(name=name, type_name=type_name, shape=shape, data=data)

    def _shape(self, fields: _Fields) -> TosaTensor:
        name, rank = self._named(fields.text(_SHAPE_NAME)), fields.scalar(_SHAPE_RANK, numbers.Uint32Flags)
        raw = fields.vector(_SHAPE_DATA, "u1")
        data = None if rank and not raw.size else numbers_of(raw, "shape", (rank,)) if rank else np.empty(0, np.int64)
        if data is None:
            raise UnsupportedModel(f"{self._path}: the shape {name!r} of {rank} numbers is not a constant.")
        return TosaTensor(name=name, type_name="shape", shape=(rank,), data=data)

    def _node(self, fields: _Fields) -> TosaNode:
        number = fields.scalar(_OPERATOR_NUMBER, numbers.Uint32Flags)
        operator = OPERATORS[number] if number < len(OPERATORS) else f"operator {number}"
        inputs, outputs = self._names(fields, _OPERATOR_INPUTS), self._names(fields, _OPERATOR_OUTPUTS)
        table = fields.child(_OPERATOR_ATTRIBUTE)
        known = ATTRIBUTES.get(operator, ())
        if known and table is None:
            raise BadModel(f"{self._path}: {operator} of {outputs[:1]} has no attributes.")
        values = {name: _attribute(table, place, kind) for place, (name, kind) in enumerate(known) if table is not None}
        label = outputs[0] if outputs else f"{operator} without results"
        return TosaNode(operator=operator, label=label, inputs=inputs, outputs=outputs, attributes=values)

    def _names(self, fields: _Fields, number: int) -> tuple[str, ...]:
        self._check("the tensors of an operator", "operands", fields.length(number))
        return tuple(self._named(name) for name in fields.texts(number))

    def _named(self, name: str) -> str:
        self._text_bytes += len(name)
        self._check("its names", "text_bytes", self._text_bytes)
        return name

    def _check_shape(self, name: str, shape: Sequence[int], type_name: str) -> None:
        reason = self._limits.excess_of_tensor(shape, np.dtype(STORED.get(type_name, "int8")).itemsize)
        if reason:
            raise UnsupportedModel(f"{self._path}: tensor {name!r} is too large: {reason}.")

    def _check(self, what: str, limit: str, value: int) -> None:
        if reason := self._limits.excess(limit, value):
            raise UnsupportedModel(f"{self._path}: {what}: {reason}.")


def _attribute(table: _Fields, number: int, kind: str) -> object:
    if kind in CHOICES:
        return CHOICES[kind][table.scalar(number, numbers.Uint32Flags)]
    if kind == "dtype":
        return TYPES[table.scalar(number, numbers.Uint32Flags)]
    if kind == "ints":
        return tuple(int(value) for value in table.vector(number, "<i4"))
    if kind == "bytes":
        return table.vector(number, "u1").tobytes()
    return bool(table.scalar(number, numbers.BoolFlags)) if kind == "bool" else table.scalar(number, numbers.Int32Flags)


def numbers_of(raw: np.ndarray, type_name: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return the numbers that bytes of a file hold, or None where the bytes are too few or too many.

    Numbers of 4 bits lie two in a byte, the lower half first. Numbers of 48 bits have six bytes each. The format pads
    data to whole multiples of eight bytes.
    """
    count = math.prod(shape)
    num_bytes = -(-count // 2) if type_name == "int4" else count * (BITS[type_name] // 8 if type_name in BITS else
        np.dtype(STORED[type_name]).itemsize)  # fmt: skip
    if not num_bytes <= raw.size < num_bytes + 8:
        return None
    used = raw[:num_bytes]
    if type_name == "int4":
        halves = np.stack([used << 4, used], -1).reshape(-1)[:count]
        return (halves.astype(np.uint8).view(np.int8) >> 4).reshape(shape)
    if type_name == "int48":
        sixes = used.reshape(count, 6)
        high = np.repeat(np.where(sixes[:, 5:] & 0x80, 0xFF, 0).astype(np.uint8), 2, 1)
        return np.ascontiguousarray(np.concatenate([sixes, high], 1)).view("<i8").reshape(shape)
    if type_name == "bool":
        return (used != 0).reshape(shape)
    return used.copy().view(np.dtype(STORED[type_name]).newbyteorder("<")).reshape(shape).astype(STORED[type_name])
