"""The table of a build's options, which describes each option in an annotation of its field.

`BuildOptions` has a field for each option. The annotations define the checks of values from Python, the keys of
BUNDLE.toml and SWEEP.toml (`bundle_file.py`), the parameters of `tvm-ext compile` with their groups in `--help`
(`command_line/option_parameters.py`), and the page of commands. report.json and the names of cached results contain all
fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tvm_ext.core.option_values import (
    are_names,
    is_number,
    is_size,
    is_text,
    is_truth,
    maps_names_to_integers,
    maps_names_to_names,
)

Group = Literal["Model", "Output", "Memory", "Quantization", "Verification", "Speed", "Processors"]
GROUPS: tuple[Group, ...] = get_args(Group)
"""Headings of `--help`, in this order."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of value.

    wanted: what an error asks for.
    is_good: whether a value from Python is of the kind.
    """

    wanted: str
    is_good: Callable[[object], bool]


TRUTH = Kind(wanted="True or False", is_good=is_truth)
TEXT = Kind(wanted="a string", is_good=is_text)
NUMBER = Kind(wanted="a number", is_good=is_number)
SIZE = Kind(wanted='bytes as a number or a text like "64KiB"', is_good=is_size)
SIZES = Kind(
    wanted='bytes as a number or a text like "64KiB", or {memory: bytes}',
    is_good=lambda value: maps_names_to_integers(value) or is_size(value),
)
TENSORS = Kind(wanted="a tuple of names of tensors", is_good=are_names)
PROCESSORS = Kind(wanted="a tuple of names of processors", is_good=are_names)
TARGETS = Kind(wanted="a tuple of host and qemu", is_good=are_names)
OFFSETS = Kind(wanted="{tensor: offset in bytes}", is_good=maps_names_to_integers)
PLACES = Kind(wanted="{input or output: memory}", is_good=maps_names_to_names)
FORMS = Kind(wanted='{input: "nhwc,uint8,mean=127.5,std=127.5"}', is_good=maps_names_to_names)
LABELS = Kind(wanted="a tuple of texts", is_good=are_names)
RENAMES = Kind(wanted="{input or output: name in C}", is_good=maps_names_to_names)
FRAMES = Kind(wanted="{input: frames}", is_good=maps_names_to_integers)
AXES = Kind(wanted="{input: axis}", is_good=maps_names_to_integers)


@dataclass(frozen=True, kw_only=True)
class Option:
    """The description of an option.

    help: a sentence for `--help`; empty where the command line has no such option.
    group: its heading there.
    kind: of its values; None for an option whose words the field's type lists, and for True or False.
    flag: where it differs from the field's name.
    metavar: stands for the value in `--help`.
    in_files: whether it is a key of a model's options in BUNDLE.toml and SWEEP.toml.
    formerly: a former name, for which errors suggest the present name.
    """

    help: str = ""
    group: Group
    kind: Kind | None = None
    flag: str = ""
    metavar: str | None = None
    in_files: bool = True
    formerly: str = ""


@dataclass(frozen=True, kw_only=True)
class OptionEntry:
    """An option with the name, the default and the words of its field.

    words: the allowed words, empty for other kinds.
    """

    name: str
    option: Option
    kind: Kind
    words: tuple[str, ...]
    default: Any
    is_optional: bool

    @property
    def flag(self) -> str:
        """The option as the command line spells it."""
        return self.option.flag or flag_of(self.name)


def flag_of(name: str) -> str:
    """Return an option's name as the command line spells it."""
    return f"--{name.replace('_', '-')}"


def renamed_options(entries: Mapping[str, OptionEntry]) -> dict[str, str]:
    """Return the present names of options by their former names."""
    return {entry.option.formerly: name for name, entry in entries.items() if entry.option.formerly}


@cache
def entries_of(options: type) -> Mapping[str, OptionEntry]:
    """Return the table that the fields of a class of options define. Raises TypeError for a field without an entry."""
    hints = get_type_hints(options, include_extras=True)
    return {field.name: _entry(field.name, hints[field.name], field.default) for field in fields(options)}


def _entry(name: str, hint: Any, default: object) -> OptionEntry:
    found = [part for part in get_args(hint)[1:] if isinstance(part, Option)] if get_origin(hint) is Annotated else []
    if len(found) != 1 or default is MISSING:
        raise TypeError(f"{name}: an option has an entry and a default.")
    (option,), declared = found, get_args(hint)[0]
    is_union = get_origin(declared) in (Union, UnionType)
    parts = get_args(declared) if is_union else (declared,)
    words = get_args(declared) if get_origin(declared) is Literal else ()
    kind = option.kind or (TRUTH if declared is bool else _one_of(words))
    return OptionEntry(
        name=name, option=option, kind=kind, words=words, default=default, is_optional=NoneType in parts
    )  # fmt: skip


def _one_of(words: tuple[str, ...]) -> Kind:
    return Kind(wanted=f"one of {', '.join(words)}", is_good=lambda value: value in words)
