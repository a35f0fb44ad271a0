"""The page of the command line, from the parser of its arguments."""

from __future__ import annotations

from typing import Any

import typer.main

from documentation.markdown import page, table
from tvm_ext.command_line.main import app

PATH = "docs/reference/commands.md"


def commands_page() -> str:
    group: Any = typer.main.get_command(app)
    parts = [_command(name, command) for name, command in group.commands.items()]
    intro = (
        "Every command and every option, as `tvm-ext COMMAND --help` prints them. What they are for, with exit status "
        "and files, is in [the command line](../command_line.md)."
    )
    return page("Commands and options", intro, *parts)


def _command(name: str, command: Any) -> str:
    arguments = [entry for entry in command.params if entry.param_type_name == "argument"]
    options = [entry for entry in command.params if entry.param_type_name == "option"]
    needed = [_spelled(entry, max(entry.opts, key=len)) for entry in options if entry.required]
    usage = " ".join(["tvm-ext", name, *(_spelled(entry) for entry in arguments), *needed])
    rows = [
        (f"`{_spelled(entry, ', '.join(sorted(entry.opts, key=len)))}`", entry.help or "", _default(entry))
        for entry in options
    ]
    rows = [(f"`{_spelled(entry)}`", entry.help or "", _default(entry)) for entry in arguments] + rows
    return f"## {name}\n\n    {usage}\n\n{command.help}\n\n{table(('argument', 'meaning', 'default'), rows)}"


def _spelled(entry: Any, names: str = "") -> str:
    """Return an argument as a user types it: its names, if any, and a word for its value, unless it is a flag."""
    if names and entry.is_flag:
        return names
    return f"{names} {entry.metavar or entry.display_type(None)}".strip()


def _default(entry: Any) -> str:
    if entry.required:
        return "must be given"
    if entry.default in (None, False) or entry.multiple:
        return ""
    return f"`{entry.default}`"
