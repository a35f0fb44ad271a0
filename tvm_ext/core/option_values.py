"""Types of values that Python callers pass as options, and the form in which errors show such values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tvm_ext.core.errors import BadOptions
from tvm_ext.core.sizes import read_size


def maps_names_to_integers(values: object) -> bool:
    """Return True for a mapping from strings to integers. A bool is not an integer here."""
    if not isinstance(values, Mapping):
        return False
    items = cast("Mapping[object, object]", values).items()
    return all(isinstance(n, str) and isinstance(v, int) and not isinstance(v, bool) for n, v in items)


def maps_names_to_names(values: object) -> bool:
    """Return True for a mapping from strings to strings."""
    if not isinstance(values, Mapping):
        return False
    items = cast("Mapping[object, object]", values).items()
    return all(isinstance(name, str) and isinstance(value, str) for name, value in items)


def are_names(values: object) -> bool:
    """Return True for a tuple or list of strings."""
    if not isinstance(values, tuple | list):
        return False
    return all(isinstance(value, str) for value in cast("Sequence[object]", values))


def is_number(value: object) -> bool:
    """Return True for an integer or a float. A bool is not a number here."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: object) -> str:
    """Return a value as an error shows it. Very large integers are not converted, because Python refuses to."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of more than 40 digits"
    text = repr(value)
    return text if len(text) < 100 else f"{text[:100]} ..."


def with_sizes(key: str, value: object) -> object:
    """Return the value of an option with sizes as bytes instead of texts, also per memory. Raises BadOptions."""
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {name: with_sizes(f"{key} of {name}", size) for name, size in items}
    try:
        return read_size(value)
    except ValueError as error:
        raise BadOptions(f"{key} = {shown(value)} {error}") from None


def is_size(value: object) -> bool:
    """Return True for an integer. A bool is not an integer here."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_truth(value: object) -> bool:
    """Return True for values that equal True or False."""
    return value in (True, False)


def is_text(value: object) -> bool:
    """Return True for a string."""
    return isinstance(value, str)
