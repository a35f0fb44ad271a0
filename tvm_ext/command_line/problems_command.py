"""`tvm-ext problems`: the allocation problems of a package as CSV files, for planners of others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_ext.command_line.option_types import AsJson, Debug, Folder
from tvm_ext.command_line.packages import package_of
from tvm_ext.command_line.show import errors_shown, print_json, stdout


def problems_command(
    folder: Folder,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the CSV files, one a memory; replaced.")
    ],
    model: Annotated[str | None, typer.Option(help="Of a bundle, the model.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write allocation problems as CSV files.

    When each tensor lives and its bytes, `id,lower,upper,size`, as MiniMalloc and others read them.
    """
    with errors_shown(as_json, debug):
        from tvm_ext.allocation_problems import write_allocation_problems

        files = write_allocation_problems(package_of(folder, model).report, output)
        if as_json:
            print_json([str(file) for file in files])
        else:
            for file in files:
                stdout.print(str(file), highlight=False, markup=False, soft_wrap=True)
