"""Commands whose start waits for nothing: typer imports pydantic to say that `--help` was not given."""

from __future__ import annotations

from typing import Any, cast

from typer.core import TyperCommand, TyperGroup, TyperOption

from tvm_ext.core.option_table import GROUPS, flag_of


class Command(TyperCommand):
    """A command whose options are flags."""

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _never_coerced(super().get_help_option(ctx))

    def get_params(self, ctx: Any) -> list[Any]:
        return [_lazily_coerced(param) for param in super().get_params(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; an option that was renamed is refused by its present name."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # of an unknown option, whose class typer keeps to itself
            now = _present_flags().get(getattr(error, "option_name", ""))
            if now is not None:
                cast("Any", error).possibilities = [now]
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options under the headings of their groups, those without a group last."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *GROUPS, "Other options")}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                kind = "Arguments" if param.param_type_name == "argument" else "Other options"
                sections[getattr(param, "rich_help_panel", None) or kind].append(record)
        shown = {name: records for name, records in sections.items() if records}
        for name, records in shown.items():
            is_plain = name == "Other options" and not shown.keys() & {*GROUPS}
            with formatter.section("Options" if is_plain else name):
                formatter.write_dl(records)


class Commands(TyperGroup):
    """The command line's group."""

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _never_coerced(super().get_help_option(ctx))

    def get_params(self, ctx: Any) -> list[Any]:
        return [_lazily_coerced(param) for param in super().get_params(ctx)]


def _never_coerced(option: TyperOption | None) -> TyperOption | None:
    """The option with a default of its type: what is no value of its type goes through pydantic, None too."""
    if option is not None:
        option.default = False
    return option


def _lazily_coerced(param: Any) -> Any:
    """The parameter; where it is not given it is None, which needs no pydantic to be of its type."""
    if hasattr(param, "coerced"):
        return param
    param.coerced = param.process_value

    def process_value(context: Any, value: Any) -> Any:
        if value is not None or param.required:
            return param.coerced(context, value)
        return param.callback(context, param, None) if param.callback else None

    param.process_value = process_value
    return param


def _present_flags() -> dict[str, str]:
    """Options of before, as the command line spelt them, and what they are now."""
    from tvm_ext.core.options import OPTIONS  # numpy, which `--help` does not wait for

    entries = [entry for entry in OPTIONS.values() if entry.option.formerly and entry.option.help]
    return {flag_of(entry.option.formerly): entry.flag for entry in entries}
