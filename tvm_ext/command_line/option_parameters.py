"""Command-line parameters for the build options, made from the option table (`tvm_ext/core/option_table.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import Annotated, Any, Literal

import typer

from tvm_ext.command_line.options import (
    parse_bytes,
    parse_hop,
    parse_inputs,
    parse_pins,
    parse_places,
    parse_ram,
    parse_renames,
    parse_verify,
    read_labels,
)
from tvm_ext.core import option_table as kinds
from tvm_ext.core.option_table import OptionEntry
from tvm_ext.core.options import BuildOptions


@dataclass(frozen=True, kw_only=True)
class _Spoken:
    """A kind of option value. declared: its type for typer. read: converts the parsed text to the option's value."""

    declared: Any
    read: Callable[[Any], Any]


def _split(text: str | None) -> tuple[str, ...] | None:
    return tuple(text.split(",")) if text else None


def _spoken(entry: OptionEntry) -> _Spoken:
    """Return how typer declares an option and how its value is read."""
    texts, text = list[str] | None, str | None
    if entry.words:
        return _Spoken(declared=Literal[entry.words], read=lambda word: word)
    return {
        kinds.TRUTH.wanted: _Spoken(declared=bool, read=bool),
        kinds.NUMBER.wanted: _Spoken(declared=float, read=float),
        kinds.TEXT.wanted: _Spoken(declared=text, read=lambda value: value),
        kinds.SIZE.wanted: _Spoken(declared=text, read=partial(parse_bytes, option=entry.flag)),
        kinds.SIZES.wanted: _Spoken(declared=texts, read=lambda values: parse_ram(values or [])),
        kinds.TENSORS.wanted: _Spoken(declared=texts, read=lambda values: tuple(values or ())),
        kinds.PROCESSORS.wanted: _Spoken(declared=text, read=_split),
        kinds.TARGETS.wanted: _Spoken(declared=text, read=parse_verify),
        kinds.OFFSETS.wanted: _Spoken(declared=texts, read=lambda values: parse_pins(values or [])),
        kinds.PLACES.wanted: _Spoken(declared=texts, read=lambda values: parse_places(values or [])),
        kinds.FORMS.wanted: _Spoken(declared=texts, read=lambda values: parse_inputs(values or []) or None),
        kinds.LABELS.wanted: _Spoken(declared=text, read=read_labels),
        kinds.RENAMES.wanted: _Spoken(declared=texts, read=lambda values: parse_renames(values or []) or None),
        kinds.FRAMES.wanted: _Spoken(declared=text, read=parse_hop),
    }[entry.kind.wanted]


def with_options(entries: Iterable[OptionEntry]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a parameter for each option; the command receives all values as `options`, by name.

    The values are those of `BuildOptions`, with two exceptions: `ram` maps memory names to limits, with "" for the
    default memory, and `new_frames` is a pair of frames and axes. `build_options` resolves both.
    """
    spoken = {entry.name: (entry, _spoken(entry)) for entry in entries if entry.option.help}

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]
        parameters = [*own, *(_parameter(*one) for one in spoken.values())]
        required = [parameter for parameter in parameters if parameter.default is parameter.empty]
        optional = [parameter for parameter in parameters if parameter.default is not parameter.empty]

        @wraps(command)
        def run(**given: Any) -> None:
            options: Mapping[str, Any] = {name: kind.read(given.pop(name)) for name, (_, kind) in spoken.items()}
            command(**given, options=options)

        ordered = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*required, *optional)]
        run.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
        return run

    return decorated


def _parameter(entry: OptionEntry, kind: _Spoken) -> inspect.Parameter:
    """Return the keyword-only parameter that makes typer read this option."""
    option = entry.option
    declared = typer.Option(entry.flag, metavar=option.metavar, help=option.help, rich_help_panel=option.group)
    if kind.declared is bool:
        declared = typer.Option(f"{entry.flag}/--no-{entry.flag[2:]}", help=option.help, rich_help_panel=option.group)
    default = entry.default if entry.words or kind.declared in (bool, float) else None
    return inspect.Parameter(
        entry.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind.declared, declared]
    )


def typed_options(context: typer.Context, options: Iterable[str]) -> set[str]:
    """Return the names of the options that the user typed, as opposed to options at their defaults."""
    sources = {name: context.get_parameter_source(name) for name in options}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def build_options(options: Mapping[str, Any], default_memory: str) -> BuildOptions:
    """Return the build options. default_memory: the memory of a `--ram` limit without a name. Raises BadOptions."""
    frames, axes = options["new_frames"]
    ram = {name or default_memory: size for name, size in options["ram"].items()}
    values: dict[str, Any] = {**options, "ram": ram or None, "new_frames": frames, "time_axis": axes}
    return BuildOptions(**values)
