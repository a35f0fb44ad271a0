"""Names of operators by content: two that compute the same, of the same constants, have the same digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np

from codegen_c.operators.kinds import Operator


def operator_digest(operator: Operator) -> str | None:
    """Hash of an operator, its types and constants; None of one that holds functions, such as plain C."""
    digest = hashlib.sha256()
    try:
        for part in _parts(operator):
            digest.update(len(part).to_bytes(8, "little") + part)
    except TypeError:
        return None
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    """Bytes that tell a value from any other. Raises TypeError for a function."""
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(cast("np.ndarray[Any, Any]", value))
        yield f"{array.dtype}{array.shape}".encode()
        yield array.tobytes()
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        for field in fields(value):
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from _parts(sorted(cast("Mapping[str, Any]", value).items()))
    elif isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        yield f"{len(items)}".encode()
        for item in items:
            yield from _parts(item)
    elif value is None or isinstance(value, bool | int | float | str | bytes | np.generic):
        yield repr(cast("object", value)).encode()
    else:
        raise TypeError(type(value).__name__)
