"""Options of a custom operator in a TensorFlow Lite file: a map of flexbuffers that nobody vouched for."""

from __future__ import annotations

import struct

from flatbuffers import flexbuffers

from codegen_c.custom.contract import OptionValue
from tvm_ext.frontends.refusals import Refused

_MOST_BYTES = 1 << 16
# Exceptions of the flatbuffers library on offsets that lead nowhere.
_DAMAGE = (struct.error, ValueError, TypeError, IndexError, OverflowError, AttributeError, AssertionError, KeyError)


def custom_options(raw: bytes) -> dict[str, OptionValue]:
    """Numbers, texts and vectors of numbers by name; empty where the bytes are no map. Raises Refused for damaged ones.

    What else a map may hold (maps in it, vectors of texts) is left out; it stands in the raw bytes.
    """
    if not raw:
        return {}
    if len(raw) > _MOST_BYTES:
        raise Refused(f"its options take {len(raw)} B; at most {_MOST_BYTES} are read")
    try:
        root = flexbuffers.GetRoot(bytearray(raw))
        if not root.IsMap:
            return {}
        found, keys, values = root.AsMap, root.AsMap.Keys, root.AsMap.Values
        if len(found) > len(raw):
            raise ValueError(f"{len(found)} options in {len(raw)} B")
        named = {str(keys[index].AsKey): values[index] for index in range(len(found))}
        return {name: _value(ref, len(raw)) for name, ref in named.items() if _is_read(ref)}
    except _DAMAGE as error:
        raise Refused(f"its options cannot be read: {error}") from None


def _is_read(ref: flexbuffers.Ref) -> bool:
    kinds = (ref.IsNull, ref.IsBool, ref.IsInt, ref.IsFloat, ref.IsString, ref.IsBlob)
    return any(kinds) or _is_numbers(ref)


def _is_numbers(ref: flexbuffers.Ref) -> bool:
    """True for a vector whose elements are numbers of one type."""
    return bool(ref.IsTypedVector or ref.IsFixedTypedVector)


def _value(ref: flexbuffers.Ref, most: int) -> OptionValue:
    if ref.IsNull:
        return None
    if ref.IsBool:
        return bool(ref.AsBool)
    if ref.IsInt:
        return int(ref.AsInt)
    if ref.IsFloat:
        return float(ref.AsFloat)
    if ref.IsString:
        return str(ref.AsString)
    if ref.IsBlob:
        return bytes(ref.AsBlob)
    vector = ref.AsTypedVector if ref.IsTypedVector else ref.AsFixedTypedVector
    if len(vector) > most:
        raise ValueError(f"a vector of {len(vector)} elements in {most} B")
    return tuple(element.AsFloat if element.IsFloat else element.AsInt for element in vector)
