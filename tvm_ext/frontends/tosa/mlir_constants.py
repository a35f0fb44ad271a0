"""Numbers of the constants in an MLIR text: lists, one number for all elements, and bytes in hexadecimal form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.tosa.read_file import numbers_of
from tvm_ext.frontends.tosa.schema import BITS, STORED

Where = Callable[[int], str]
"""Returns file, line and column of a position in the text."""

_NUMBER = re.compile(rb"[^][,\s]++")
_HEXADECIMAL = re.compile(rb"0x[0-9A-Fa-f]{1,16}")
_REAL = re.compile(rb"-?\d{1,60}(\.\d{0,60})?([eE][+-]?\d{1,4})?")
_LARGEST_F32 = 3.4028235e38  # float32's own, so that no number of the text overflows


@dataclass(frozen=True, kw_only=True)
class ValueType:
    """Type of a value: its element type as an entry of `TYPES`, and its shape, with None for an open axis."""

    type_name: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Literal:
    """A constant as the text has it. It is read once the resources at the end of the text are known.

    raw: the text between `dense<` and `>`, or the name of a resource.
    at: position in the text, for messages.
    """

    raw: bytes
    is_resource: bool
    type: ValueType
    at: int


def constant_numbers(literal: Literal, resources: Mapping[bytes, bytes], where: Where) -> np.ndarray:
    """Return the numbers of a constant in its shape, which has no open axis.

    resources: hexadecimal digits by name. Raises BadModel, and UnsupportedModel for 4 bits in a resource.
    """
    shape, type_name = _shape(literal), literal.type.type_name
    raw = literal.raw
    if literal.is_resource:
        if raw not in resources:
            name = raw[:60].decode(errors="replace")
            raise BadModel(f"{where(literal.at)}: the resource {name!r} is not in the text.")
        if type_name == "int4":
            raise UnsupportedModel(
                f"{where(literal.at)}: a resource of 4-bit numbers is ambiguous, because some tools write two in a "
                "byte; write the constant as dense<...>."
            )
        return _from_hexadecimal(resources[raw], literal, where)
    if raw[:1] == b'"':
        return _from_hexadecimal(raw.strip(b'"'), literal, where)
    texts = _NUMBER.findall(raw)
    if len(texts) == 1 and raw == texts[0]:
        return np.full(shape, values_of(texts, type_name, literal.at, where)[0])
    # The brackets and commas of the text must be those of its shape, in which each number is one letter.
    expected = b"n"
    if len(texts) == math.prod(shape):
        for extent in reversed(shape):
            expected = b"[" + b",".join([expected] * extent) + b"]"
    if len(texts) != math.prod(shape) or (texts and b"".join(_NUMBER.sub(b"n", raw).split()) != expected):
        raise BadModel(
            f"{where(literal.at)}: the numbers of this constant, which are {len(texts)}, are not in the lists of its "
            f"shape {list(shape)}."
        )
    return values_of(texts, type_name, literal.at, where).reshape(shape)


def values_of(texts: Sequence[bytes], type_name: str, at: int, where: Where) -> np.ndarray:
    """Return numbers of an element type. Raises BadModel for texts that are no numbers of this type."""
    if STORED.get(type_name) != "float32":
        return integers_of(texts, type_name, at, where).astype(STORED.get(type_name, "int64"))
    found = np.empty(len(texts), np.float32)
    for place, text in enumerate(texts):
        if text[:2] == b"0x" and len(text) == 10 and _HEXADECIMAL.fullmatch(text):
            found[place] = np.array(int(text, 16), np.uint32).view(np.float32)
        elif _REAL.fullmatch(text):
            found[place] = min(max(float(text), -_LARGEST_F32), _LARGEST_F32)
        else:
            raise BadModel(f"{where(at)}: {text[:40].decode(errors='replace')!r} is no number.")
    return found


def integers_of(texts: Sequence[bytes], type_name: str, at: int, where: Where) -> np.ndarray:
    """Return integers of an element type as int64.

    Types of MLIR have no sign: 255 and -1 are the same number of 8 bits.
    """
    bits = {"bool": 1, "shape": 64}.get(type_name, BITS.get(type_name, 64))
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    found = []
    for text in texts:
        number = None
        if (text[1:] if text[:1] == b"-" else text).isdigit() and len(text) < 25:
            number = int(text)
        elif _HEXADECIMAL.fullmatch(text):
            number = int(text, 16)
        elif bits == 1 and text in (b"true", b"false"):
            number = int(text == b"true")
        if number is None or not -half <= number <= mask:
            shown = text[:40].decode(errors="replace")
            raise BadModel(f"{where(at)}: {shown!r} is no number of type {type_name}.")
        found.append(number & 1 if bits == 1 else ((number + half) & mask) - half)
    return np.array(found, np.int64)


def _shape(literal: Literal) -> tuple[int, ...]:
    return tuple(extent or 0 for extent in literal.type.shape)


def _from_hexadecimal(digits: bytes, literal: Literal, where: Where) -> np.ndarray:
    """Return numbers from their bytes in the compiler's memory: a number of 4 bits and a boolean have a byte each.

    Four bytes with its alignment are ahead of a resource. The bytes of a single number in `dense` stand for all.
    """
    shape, type_name = _shape(literal), literal.type.type_name
    each = 6 if type_name == "int48" else np.dtype(STORED[type_name]).itemsize
    count = math.prod(shape)
    try:
        raw = np.frombuffer(bytes.fromhex(digits[2:].decode()), "u1") if digits[:2] == b"0x" else None
    except ValueError:
        raw = None
    if raw is not None and literal.is_resource:
        raw = raw[4:]
    elif raw is not None and raw.size == each:
        raw = np.tile(raw, count)
    if raw is None or raw.size != count * each:
        raise BadModel(
            f"{where(literal.at)}: this constant is not the {count * each} B of its shape {list(shape)} as hexadecimal "
            "digits."
        )
    if type_name == "int4":
        return ((raw << 4).view(np.int8) >> 4).reshape(shape)
    if not count:
        return np.empty(shape, STORED[type_name])
    found = numbers_of(raw, type_name, shape)
    assert found is not None  # it has just as many bytes as its shape needs
    return found
