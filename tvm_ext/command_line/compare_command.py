"""`tvm-ext compare`: each layer of a package beside a runtime that is not ours, the first difference named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import tvm_ext
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.option_texts import parse_bindings, parse_states
from tvm_ext.command_line.option_types import AsJson, Bind, Debug, Folder, Limit, State
from tvm_ext.command_line.show import errors_shown, print_json, stdout
from tvm_ext.command_line.stages_shown import waiting
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import Target
from tvm_ext.report.cells import escape


def compare_command(
    folder: Folder,
    inputs: Annotated[Path, typer.Option(metavar="IN.npz", help="One array per input, under the model's names.")],
    on: Annotated[Target, typer.Option(help="Where the package's C runs.")] = "host",
    reference: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="The model's file. Default: looked for here, and beside the package."),
    ] = None,
    bind: Bind = None,
    state: State = None,
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare every layer with the file's own runtime. Status 1 where one differs."""
    bound, states = parse_bindings(bind or []), parse_states(state)
    with errors_shown(as_json, debug):
        from tvm_ext.comparison.comparison_table import comparison_table
        from tvm_ext.core.files.arrays import read_arrays

        package = tvm_ext.Package.load(folder)
        arrays = read_arrays(inputs)
        with waiting(f"Comparing on {on}"):
            import_tvm_for(Path(str(package.report["model"]["source"])))
            found = tvm_ext.compare(
                package, arrays, reference=reference, on=on, bind=bound, states=states,
                limits=Limits().changed(limit or []),
            )  # fmt: skip
        if as_json:
            print_json(found.to_json())
        else:
            stdout.print(comparison_table(found))
            stdout.print(escape(found.summary()), highlight=False, soft_wrap=True)
    if not found.passed:
        raise typer.Exit(1)
