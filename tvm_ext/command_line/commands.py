"""Commands whose start waits for nothing: typer imports pydantic to say that `--help` was not given."""

from __future__ import annotations

import typer


class Command(typer.core.TyperCommand):
    """A command whose options are flags."""

    def get_help_option(self, ctx: typer.Context) -> typer.core.TyperOption | None:
        return _never_coerced(super().get_help_option(ctx))


class Commands(typer.core.TyperGroup):
    """The command line's group."""

    def get_help_option(self, ctx: typer.Context) -> typer.core.TyperOption | None:
        return _never_coerced(super().get_help_option(ctx))


def _never_coerced(option: typer.core.TyperOption | None) -> typer.core.TyperOption | None:
    """The option with a default of its type: what is no value of its type goes through pydantic, None too."""
    if option is not None:
        option.default = False
    return option
