"""Commands whose start waits for nothing: typer imports pydantic to say that `--help` was not given."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption


class Command(TyperCommand):
    """A command whose options are flags."""

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _never_coerced(super().get_help_option(ctx))


class Commands(TyperGroup):
    """The command line's group."""

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _never_coerced(super().get_help_option(ctx))


def _never_coerced(option: TyperOption | None) -> TyperOption | None:
    """The option with a default of its type: what is no value of its type goes through pydantic, None too."""
    if option is not None:
        option.default = False
    return option
