"""`tvm-ext platforms`: the cores and boards that come with tvm-ext; with a name, one of them, or its file."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from tvm_ext.command_line.option_types import AsJson, Debug
from tvm_ext.command_line.show import errors_shown, print_json, stdout


def platforms_command(
    name: Annotated[
        str | None, typer.Argument(help="A platform's name, a chip's or board's, or the path of a .toml file.")
    ] = None,
    as_toml: Annotated[
        bool,
        typer.Option(
            "--toml", help="With NAME: the text of its file, to edit; also where the output goes to a file or a pipe."
        ),
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the platforms that ship, or show one of them.

    With NAME: its processors and memories, and where each figure is from.
    """
    with errors_shown(as_json, debug):
        if name is None:
            _list(as_json)
        else:
            _show(name, as_json=as_json, as_toml=as_toml or not sys.stdout.isatty())


def _list(as_json: bool) -> None:
    if as_json:
        import tvm_ext

        names = [*tvm_ext.Platform.shipped(), *tvm_ext.Platform.boards()]
        print_json([json.loads(tvm_ext.Platform.load(name).to_json()) for name in names])
        return
    from tvm_ext.core.shipped import board_tables, core_tables
    from tvm_ext.report.listings import board_table, platform_table

    stdout.print(platform_table(core_tables()))
    stdout.print(board_table(board_tables()))
    stdout.print(
        "tvm-ext platforms NAME shows one of them, tvm-ext platforms NAME > my.toml gives its file to edit. Names of "
        "chips and boards find it, too: stm32h743zi, nucleo-h743zi2, pico.",
        highlight=False,
    )


def _show(name: str, *, as_json: bool, as_toml: bool) -> None:
    from tvm_ext.core.shipped import platform_path, read_platform_table, shipped_names

    path = platform_path(name)
    is_checked = path.stem in shipped_names() and not name.endswith(".toml")
    if is_checked and not as_json:
        table = read_platform_table(path)
    else:
        import tvm_ext

        table = json.loads(tvm_ext.Platform.load(path).to_json())
    if as_json:
        print_json(table)
    elif as_toml:
        sys.stdout.write(path.read_text(encoding="utf-8-sig"))
    else:
        from tvm_ext.report.listings import platform_details

        for part in platform_details(table):
            stdout.print(part, highlight=False)
