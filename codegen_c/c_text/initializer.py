"""Values of C structures, member by member: `{.rows = 3, .columns = 3}`."""

from __future__ import annotations

from collections.abc import Mapping

from codegen_c.c_text.text import filled

Value = int | bool | str | Mapping[str, "Value"]
"""A number, a truth value, C text, or the members of an inner structure."""

_MOST_COLUMNS = 108


def structure(ctype: str, name: str, members: Mapping[str, Value]) -> list[str]:
    """Lines that define a constant of a structure type, one or more for each member."""
    return [f"const {ctype} {name} = {{", *(line for key in members for line in _member(key, members[key])), "};"]


def _member(name: str, value: Value) -> list[str]:
    """Lines of one member: one, or more with as many members of an inner structure each as there is room for."""
    line = f"    .{name} = {_text(value)},"
    if len(line) <= _MOST_COLUMNS or not isinstance(value, Mapping):
        return [line]
    words = [f".{key} = {_text(inner)}" for key, inner in value.items()]
    return [f"    .{name} = {{", *(f"        {part}" for part in filled(words, _MOST_COLUMNS - 8)), "    },"]


def _text(value: Value) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'.{name} = {_text(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
