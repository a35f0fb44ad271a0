"""Types of values that callers from Python pass as options, and how errors show such values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast


def maps_names_to_integers(values: object) -> bool:
    """True of a mapping from strings to integers; a bool is none."""
    if not isinstance(values, Mapping):
        return False
    items = cast("Mapping[object, object]", values).items()
    return all(isinstance(n, str) and isinstance(v, int) and not isinstance(v, bool) for n, v in items)


def are_names(values: object) -> bool:
    """True of a tuple or list of strings."""
    if not isinstance(values, tuple | list):
        return False
    return all(isinstance(value, str) for value in cast("Sequence[object]", values))


def is_number(value: object) -> bool:
    """True of an integer or a float; a bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A value as an error shows it: Python refuses to write thousands of digits."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of more than 40 digits"
    text = repr(value)
    return text if len(text) < 100 else f"{text[:100]} ..."
