"""An ONNX file walked as the protobuf wire format it is, before anything is made of it.

Two bytes of a file can become a message of hundreds of bytes in memory, twice: here they are only counted. Sizes that
dimensions ask for, and external files have, are judged later.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import Descriptor

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits

_VARINT, _BYTES = 0, 2
# Bytes of a number, by wire type; a group has none, and what lies in it is walked like all else.
_NUM_BYTES = {1: 8, 3: 0, 4: 0, 5: 4}
_TENSOR = onnx.TensorProto.DESCRIPTOR.full_name
_TEXT_OF_TENSORS = ("name", "doc_string", "string_data")
# Field number -> the table of a message's own fields, or True for text.
Fields = dict[int, Any]
_LONGEST_VARINT_BITS = 70


def screen_file(path: Path, data: bytes | memoryview, limits: Limits) -> None:
    """Raises UnsupportedModel for a file of too many fields, too much text or weights, BadModel for damage.

    Takes a microsecond for each field, up to the limit of fields, and touches no weights.
    """
    try:
        reason = _excess(data, limits)
    except (IndexError, KeyError, ValueError):
        raise BadModel(f"{path}: is not an ONNX file, or it is truncated; its {len(data)} B do not parse.") from None
    if reason:
        raise UnsupportedModel(f"{path}: is too large: {reason}.")


def _excess(data: bytes | memoryview, limits: Limits) -> str | None:
    """Reason why a limit is passed, None where none is. Raises IndexError, KeyError or ValueError for damage."""
    num_fields = text_bytes = payload_bytes = position = 0
    end, known = len(data), _fields_of_model()
    outer: list[tuple[int, Fields]] = []
    while True:
        while position == end:
            reason = limits.excess("text_bytes", text_bytes) or limits.excess("weights_bytes", payload_bytes)
            if reason or not outer:
                return reason
            end, known = outer.pop()
        num_fields += 1
        if num_fields > limits.fields:
            return limits.excess("fields", num_fields)
        key, position = _varint(data, position)
        if key < 8:
            raise ValueError("no field has the number 0")
        kind = key & 7
        if kind == _VARINT:
            _, position = _varint(data, position)
        elif kind == _BYTES:
            length, position = _varint(data, position)
            inner = known.get(key >> 3, True)
            if position + length > end:
                raise ValueError("a field is longer than what it stands in")
            if isinstance(inner, dict):
                outer.append((end, known))
                end, known = position + length, inner
            else:
                text_bytes += length if inner else 0
                payload_bytes += 0 if inner else length
                position += length
        else:
            position += _NUM_BYTES[kind]
        if position > end:
            raise ValueError("a field is longer than what it stands in")


def _varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """A number, and where it ends."""
    byte = data[position]
    position += 1
    if byte < 128:
        return byte, position
    value, shift = byte & 127, 7
    while shift < _LONGEST_VARINT_BITS:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise ValueError("a number has more than ten bytes")


@cache
def _fields_of_model() -> Fields:
    return _fields(onnx.ModelProto.DESCRIPTOR, {})


def _fields(message: Descriptor, known: dict[str, Fields]) -> Fields:
    """Messages within messages, again and again: each kind has one table. False for the numbers of a tensor."""
    if message.full_name in known:
        return known[message.full_name]
    table: Fields = known.setdefault(message.full_name, {})
    for field in message.fields:
        if field.message_type is not None:
            table[field.number] = _fields(field.message_type, known)
        else:
            table[field.number] = message.full_name != _TENSOR or field.name in _TEXT_OF_TENSORS
    return table
