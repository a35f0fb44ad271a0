"""Write .tosa flatbuffers for tests: tensors, operators with attributes, and the graph's inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import flatbuffers
import numpy as np

from tvm_ext.frontends.tosa.schema import ATTRIBUTES, CHOICES, OPERATORS, TYPES


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator by its name in the schema, with its attributes as the schema names them."""

    name: str
    inputs: Sequence[str]
    output: str
    attributes: Mapping[str, object] = field(default_factory=dict)


def tosa_file(
    tensors: Mapping[str, tuple[str, Sequence[int], np.ndarray | None]],
    operators: Sequence[Operator],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    version: tuple[int, int] = (1, 0),
    num_blocks: int = 1,
) -> bytes:
    """Return the bytes of a file.

    tensors: element type, shape and numbers by name. A tensor with numbers is a constant, with an operator CONST.
    shapes: constant shapes by name.
    """
    builder = flatbuffers.Builder(1024)
    constants = [
        Operator(name="CONST", inputs=[], output=name) for name, given in tensors.items() if given[2] is not None
    ]
    constants += [Operator(name="CONST_SHAPE", inputs=[], output=name) for name in shapes or {}]
    parts = [
        _vector(builder, [_operator(builder, operator) for operator in (*constants, *operators)]),
        _vector(builder, [_tensor(builder, name, *tensor) for name, tensor in tensors.items()]),
        _texts(builder, inputs),
        _texts(builder, outputs),
        _vector(builder, [_shape(builder, name, numbers) for name, numbers in (shapes or {}).items()]),
    ]
    name = builder.CreateString("main")
    block = _table(builder, {0: name, **{place + 1: part for place, part in enumerate(parts)}})
    regions = _vector(builder, [_table(builder, {0: name, 1: _vector(builder, [block] * num_blocks)})])
    builder.StartObject(4)
    for place, number in enumerate(version):
        builder.PrependInt32Slot(place, number, -1)
    builder.Finish(_table(builder, {0: builder.EndObject(), 1: regions}), b"TOSA")
    return bytes(builder.Output())


def stored(numbers: np.ndarray, type_name: str) -> np.ndarray:
    """Return the bytes of numbers as a file holds them."""
    if type_name == "int48":
        return np.stack([numbers.astype(np.int64) >> 8 * place & 255 for place in range(6)], -1).astype("u1")
    return numbers.astype(np.dtype(type_name).newbyteorder("<"))


def _table(builder: flatbuffers.Builder, children: Mapping[int, int]) -> int:
    builder.StartObject(9)
    for place, child in children.items():
        builder.PrependUOffsetTRelativeSlot(place, child, 0)
    return builder.EndObject()


def _vector(builder: flatbuffers.Builder, children: Sequence[int]) -> int:
    builder.StartVector(4, len(children), 4)
    for child in reversed(children):
        builder.PrependUOffsetTRelative(child)
    return builder.EndVector()


def _texts(builder: flatbuffers.Builder, texts: Sequence[str]) -> int:
    return _vector(builder, [builder.CreateString(text) for text in texts])


def _bytes(builder: flatbuffers.Builder, data: np.ndarray) -> int:
    return builder.CreateNumpyVector(np.frombuffer(data.tobytes(), "u1"))


def _tensor(
    builder: flatbuffers.Builder, name: str, type_name: str, shape: Sequence[int], data: np.ndarray | None
) -> int:
    label, extents = builder.CreateString(name), builder.CreateNumpyVector(np.array(shape, "<i4"))
    raw = None if data is None else _bytes(builder, data)
    builder.StartObject(9)
    builder.PrependUOffsetTRelativeSlot(0, label, 0)
    builder.PrependUOffsetTRelativeSlot(1, extents, 0)
    builder.PrependUint32Slot(2, TYPES.index(type_name), 0)
    builder.PrependUOffsetTRelativeSlot(3, raw or 0, 0)
    return builder.EndObject()


def _shape(builder: flatbuffers.Builder, name: str, numbers: Sequence[int]) -> int:
    label, raw = builder.CreateString(name), _bytes(builder, np.array(numbers, "<i8"))
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(0, label, 0)
    builder.PrependUint32Slot(1, len(numbers), 0)
    builder.PrependUOffsetTRelativeSlot(2, raw, 0)
    return builder.EndObject()


def _operator(builder: flatbuffers.Builder, operator: Operator) -> int:
    number, attribute = OPERATORS.index(operator.name), _attributes(builder, operator)
    inputs, outputs = _texts(builder, operator.inputs), _texts(builder, [operator.output])
    builder.StartObject(5)
    builder.PrependUint32Slot(0, number, 0)
    builder.PrependUint8Slot(1, number, 0)
    for place, child in ((2, attribute), (3, inputs), (4, outputs)):
        builder.PrependUOffsetTRelativeSlot(place, child, 0)
    return builder.EndObject()


def _attributes(builder: flatbuffers.Builder, operator: Operator) -> int:
    known = [(kind, operator.attributes.get(name)) for name, kind in ATTRIBUTES.get(operator.name, ())]
    vectors = {
        place: builder.CreateNumpyVector(np.array(value, "<i4" if kind == "ints" else "u1"))
        for place, (kind, value) in enumerate(known)
        if kind in ("ints", "bytes") and value is not None
    }
    builder.StartObject(max(len(known), 1))
    for place, (kind, value) in enumerate(known):
        if place in vectors:
            builder.PrependUOffsetTRelativeSlot(place, vectors[place], 0)
        elif value is not None and kind in ("bool", "int"):
            (builder.PrependBoolSlot if kind == "bool" else builder.PrependInt32Slot)(place, value, 0)
        elif value is not None:
            builder.PrependUint32Slot(place, (TYPES if kind == "dtype" else CHOICES[kind]).index(value), 0)
    return builder.EndObject()
