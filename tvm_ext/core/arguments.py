"""Arguments of Python callers: checks of their types, and build options given by keyword."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from tvm_ext.core.errors import BadOptions, TvmExtError
from tvm_ext.core.option_checks import check_keywords
from tvm_ext.core.options import OPTIONS, BuildOptions


def path_of(value: object, name: str, refusal: type[TvmExtError] = BadOptions) -> Path:
    """Return the path that a string or an os.PathLike names. Raises `refusal` for other types."""
    if not isinstance(value, str | os.PathLike):
        raise refusal(f"{name} is {_told(value)}; give a path, str or os.PathLike.")
    return Path(cast("str | os.PathLike[str]", value))


def check_mapping(value: object, name: str, example: str) -> None:
    """Raise BadOptions for a value that is neither a mapping nor None.

    example: a valid value, for the message.
    """
    if value is not None and not isinstance(value, Mapping):
        raise BadOptions(f"{name} is {_told(value)}; give a dict, such as {example}.")


def check_kind(value: object, name: str, kind: type, example: str) -> None:
    """Raise BadOptions for a value that is neither of a type nor None. A bool does not count as a number."""
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise BadOptions(f"{name} is {_told(value)}; give {example}.")


def _told(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


Function = TypeVar("Function", bound=Callable[..., object])


def takes_options(function: Function) -> Function:
    """Give a function that ends in `**choices` the signature that the table of options defines, as a decorator.

    Editors, notebooks and `help` read the signature. The decorator returns the function itself, which passes its
    keywords to `chosen_options`.
    """
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(entry.name, inspect.Parameter.KEYWORD_ONLY, default=entry.default)
        for entry in OPTIONS.values()
    ]
    cast("Any", function).__signature__ = signature.replace(parameters=[*own, *keywords])
    return function


def chosen_options(
    options: BuildOptions | None, choices: Mapping[str, object], *, function: Callable[..., object]
) -> BuildOptions:
    """Return the options with the changes of keywords, starting from `options` or the defaults.

    function: the function that took the keywords. A misspelled keyword may also stand for one of its own arguments.
    Raises UnknownOption, which is also a TypeError, and BadOptions.
    """
    if not isinstance(options, BuildOptions | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadOptions(f"options is a {type(options).__name__}; give a BuildOptions.")
    check_keywords(choices, OPTIONS, f"{function.__name__}()", beside=inspect.signature(function).parameters)
    return replace(options or BuildOptions(), **cast("dict[str, Any]", choices))
