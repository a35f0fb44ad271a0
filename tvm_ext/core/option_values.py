"""Types of values that callers from Python pass as options, and how errors show such values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from tvm_ext.core.errors import BadOptions
from tvm_ext.core.sizes import read_size


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


def check_types(options: Mapping[str, object]) -> None:
    """Raises BadOptions for a value of another type than its option's: who calls from Python may pass anything."""
    for key, (is_good, wanted) in _TYPES.items():
        if not is_good(options[key]):
            raise BadOptions(f"{key} = {shown(options[key])}: {wanted} is needed.")


def with_sizes(key: str, value: object) -> object:
    """The value of an option, with texts of sizes as bytes, also those of each memory. Raises BadOptions."""
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {name: with_sizes(f"{key} of {name}", size) for name, size in items}
    try:
        return read_size(value)
    except ValueError as error:
        raise BadOptions(f"{key} = {shown(value)} {error}") from None


def _or_none(is_good: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_good(value)


def _is_size(value: object) -> bool:
    return maps_names_to_integers({"": value})


def _is_truth(value: object) -> bool:
    return value in (True, False)


_TYPES: dict[str, tuple[Callable[[object], bool], str]] = {
    "ram": (
        _or_none(lambda value: maps_names_to_integers(value) or _is_size(value)),
        'bytes as a number or a text like "64KiB", or {memory: bytes}',
    ),
    "flash": (_or_none(_is_size), 'bytes as a number or a text like "64KiB"'),
    "pin": (_or_none(maps_names_to_integers), "{tensor: offset in bytes}"),
    "keep": (are_names, "a tuple of names of tensors"),
    "processors": (_or_none(are_names), "a tuple of names of processors"),
    "hop": (_or_none(maps_names_to_integers), "{input: frames}"),
    "hop_axis": (_or_none(maps_names_to_integers), "{input: axis}"),
    "verify": (_or_none(are_names), "a tuple of host and qemu"),
    "name": (_or_none(lambda value: isinstance(value, str)), "a string"),
    "min_snr_db": (is_number, "a number"),
    "reread": (_is_truth, "True or False"),
    "least_scratch": (_is_truth, "True or False"),
    "least_flash": (_is_truth, "True or False"),
    "hooks": (_is_truth, "True or False"),
    "image": (_is_truth, "True or False"),
    "tune": (_is_truth, "True or False"),
}
