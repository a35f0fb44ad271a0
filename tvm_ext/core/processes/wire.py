"""Encode values as bytes between our processes: JSON for the tree, raw bytes for large data, never pickle.

A value is None, a bool, an int, a float, text, bytes, a numpy array of numbers, a list or tuple (which arrives as a
list), or a dict with text keys. A message is a frame: the length of each part in 8 bytes, little-endian, then the
parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import IO, Any, cast

import ml_dtypes
import numpy as np

Value = Any
Array = np.ndarray[Any, Any]
_LENGTH = 8
_KINDS = "biuf"
_BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)


def write_value(stream: IO[bytes], value: Value) -> None:
    """Write a value and flush. Raises TypeError for other types, and OSError when there is no reader."""
    parts: list[bytes] = []
    tree = json.dumps(_flatten(value, parts)).encode()
    for number in (len(parts), len(tree), *map(len, parts)):
        stream.write(number.to_bytes(_LENGTH, "little"))
    for part in (tree, *parts):
        stream.write(part)
    stream.flush()


def read_value(read: Callable[[int], bytes]) -> Value:
    """Return the next value.

    read: returns exactly n bytes for `read(n)`, or raises EOFError.
    Raises ValueError for a broken frame.
    """
    count, tree_bytes = (int.from_bytes(read(_LENGTH), "little") for _ in range(2))
    lengths = [int.from_bytes(read(_LENGTH), "little") for _ in range(count)]
    tree = json.loads(read(tree_bytes))
    return _restore(tree, [read(length) for length in lengths])


def _flatten(value: Value, parts: list[bytes]) -> object:
    """Return the value as JSON. Arrays and bytes move to `parts`, and a table `{kind: ...}` takes their place."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        parts.append(bytes(cast("bytes", value)))
        return {"bytes": len(parts) - 1}
    if isinstance(value, np.generic | np.ndarray):
        array = np.asarray(cast("Array", value))
        if not _is_number(array.dtype):
            raise TypeError(f"an array of {array.dtype} cannot be sent to another process; only numbers can.")
        parts.append(array.tobytes())
        dtype = array.dtype.str if array.dtype.kind in _KINDS else array.dtype.name
        return {"array": [len(parts) - 1, dtype, list(array.shape)]}
    if isinstance(value, list | tuple):
        return {"list": [_flatten(item, parts) for item in cast("Iterable[Value]", value)]}
    if isinstance(value, dict):
        items = cast("dict[str, Value]", value).items()
        return {"table": [[str(key), _flatten(item, parts)] for key, item in items]}
    raise TypeError(f"a {type(value).__name__} cannot be sent to another process; only plain values and arrays can.")


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in _KINDS or dtype == _BFLOAT16


def _restore(tree: Value, parts: list[bytes]) -> Value:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = cast("dict[str, Value]", tree).items()
    match kind:
        case "bytes":
            return parts[cast("int", content)]
        case "array":
            index, dtype, shape = cast("tuple[int, str, list[int]]", content)
            if not _is_number(np.dtype(dtype)):
                raise ValueError(f"an array of {dtype} came from another process; only numbers are read.")
            return np.frombuffer(parts[index], dtype).reshape(shape).copy()
        case "list":
            return [_restore(item, parts) for item in content]
        case "table":
            return {key: _restore(item, parts) for key, item in content}
        case _:
            raise ValueError(f"{kind!r} is not a kind of value.")
