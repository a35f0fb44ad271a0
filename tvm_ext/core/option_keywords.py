"""Options of a build given by keyword: `build(..., quantize="int8", ram="64KiB")`, checked against the one table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from tvm_ext.core.errors import BadOptions
from tvm_ext.core.option_checks import check_keywords
from tvm_ext.core.options import OPTIONS, BuildOptions

Function = TypeVar("Function", bound=Callable[..., object])


def takes_options(function: Function) -> Function:
    """Decorator: give a function that ends in `**choices` the signature that the table of options makes of it.

    Editors, notebooks and `help` read it. The function itself is returned, and hands its keywords to `chosen_options`.
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
    """The options that keywords change, beginning with `options` or the defaults.

    function: that took the keywords; an unknown one may also be meant for an argument of its own. Raises UnknownOption,
    which is a TypeError, too, and BadOptions.
    """
    if not isinstance(options, BuildOptions | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadOptions(f"options is a {type(options).__name__}; a BuildOptions is needed.")
    check_keywords(choices, OPTIONS, f"{function.__name__}()", beside=inspect.signature(function).parameters)
    return replace(options or BuildOptions(), **cast("dict[str, Any]", choices))
