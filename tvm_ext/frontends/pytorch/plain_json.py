"""Read strict JSON of an untrusted file, with readers that rebuild values from an allow-list.

A reader takes a value and its location in the file, and returns a new value with only what the reader names. It ignores
unknown keys, and raises Damaged for every other difference. So the content of a file reaches the code behind a reader
only in expected forms.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

Reader = Callable[[Any, str], Any]

_INT64 = 1 << 63
_SPECIAL_FLOATS = ("Infinity", "-Infinity", "NaN")  # torch writes these as strings


class Damaged(Exception):
    """Raised where a file contains a value that its format does not allow. The text says where, and which value."""


class NotTaken(Exception):
    """Raised where a file contains something that its format allows and the compiler does not take."""


def parse_json(data: bytes) -> Any:
    """Parse UTF-8 text as JSON without the extensions of Python's parser. Raises Damaged.

    Python's json module guesses encodings, takes NaN and Infinity, and keeps the last of several equal keys; another
    parser may read such text differently.
    """
    try:
        return json.loads(data.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise Damaged(f"it is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise Damaged("it is nested too deeply") from None
    except ValueError as error:  # malformed text, a byte-order mark, or an integer of thousands of digits
        raise Damaged(str(error)) from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Damaged(f"it has the key {twice[:80]!r} twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise Damaged(f"it holds {name}, which is no JSON")


def shown(value: Any) -> str:
    """Return the first characters of a file's value, for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def whole(low: int = -_INT64, high: int = _INT64 - 1) -> Reader:
    """Return a reader of an integer from low to high."""

    def read(value: Any, where: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise Damaged(f"{where}: {shown(value)} is no whole number from {low} to {high}")
        return value

    return read


def flag(value: Any, where: str) -> bool:
    """Read true or false."""
    if type(value) is not bool:
        raise Damaged(f"{where}: {shown(value)} is neither true nor false")
    return value


def number(value: Any, where: str) -> float | str:
    """Read a finite number, or the name of one that is not finite."""
    if isinstance(value, str) and value in _SPECIAL_FLOATS:
        return value
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise Damaged(f"{where}: {shown(value)} is no number")
    return float(value)


def text(pattern: str, *, meaning: str, most: int = 1000) -> Reader:
    """Return a reader of a string that matches a pattern completely.

    meaning: what the string should be, for the message.
    """
    wanted = re.compile(pattern)

    def read(value: Any, where: str) -> str:
        if not isinstance(value, str) or len(value) > most or not wanted.fullmatch(value):
            raise Damaged(f"{where}: {shown(value)} is no {meaning}")
        return value

    return read


def one_of(values: Collection[Any]) -> Reader:
    """Return a reader of one of several numbers or strings."""

    def read(value: Any, where: str) -> Any:
        if type(value) not in (int, str) or value not in values:
            raise Damaged(f"{where}: {shown(value)} is not one of {', '.join(map(str, values))}")
        return value

    return read


def always(value: Any) -> Reader:
    """Return a reader that returns a fixed value, whatever the file has."""
    return lambda _value, _where: value


def not_taken(reason: str) -> Reader:
    """Return a reader that raises NotTaken."""

    def read(_value: Any, where: str) -> NoReturn:
        raise NotTaken(f"{where}: {reason}")

    return read


def or_null(reader: Reader) -> Reader:
    """Return a reader that also takes null."""
    return lambda value, where: None if value is None else reader(value, where)


def many(reader: Reader) -> Reader:
    """Return a reader of a list."""

    def read(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise Damaged(f"{where}: {shown(value)} is no list")
        return [reader(item, f"{where}[{index}]") for index, item in enumerate(value)]

    return read


def table(key_reader: Reader, reader: Reader) -> Reader:
    """Return a reader of an object whose keys are names."""

    def read(value: Any, where: str) -> dict[str, Any]:
        return {key_reader(key, where): reader(item, f"{where}.{key}") for key, item in an_object(value, where).items()}

    return read


def record(fields: Mapping[str, Reader], defaults: Mapping[str, Any] | None = None) -> Reader:
    """Return a reader of an object with these fields. Fields with a default may be absent."""
    given = defaults or {}

    def read(value: Any, where: str) -> dict[str, Any]:
        found = an_object(value, where)
        missing = [name for name in fields if name not in found and name not in given]
        if missing:
            raise Damaged(f"{where}: it lacks {missing[0]!r}")
        return {
            name: reader(found[name], f"{where}.{name}") if name in found else given[name]
            for name, reader in fields.items()
        }

    return read


def union(members: Mapping[str, Reader]) -> Reader:
    """Return a reader of an object with exactly one of these fields."""

    def read(value: Any, where: str) -> dict[str, Any]:
        found = an_object(value, where)
        if len(found) != 1 or next(iter(found)) not in members:
            raise Damaged(f"{where}: {shown(value)} is none of {', '.join(members)}")
        ((name, item),) = found.items()
        return {name: members[name](item, f"{where}.{name}")}

    return read


def an_object(value: Any, where: str) -> dict[str, Any]:
    """Return the value, which must be an object. Raises Damaged."""
    if not isinstance(value, dict):
        raise Damaged(f"{where}: {shown(value)} is no object")
    return value
