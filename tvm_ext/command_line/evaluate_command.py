"""`tvm-ext evaluate`: a package's accuracy, or its errors, on data of the user's, beside the model's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.option_types import AsJson, Debug, Folder, RunnerCommand
from tvm_ext.command_line.packages import package_of
from tvm_ext.command_line.show import errors_shown, print_json, stderr, stdout
from tvm_ext.core.errors import BadInput
from tvm_ext.core.options import Target

if TYPE_CHECKING:
    import numpy as np

    from tvm_ext.package import Package


def evaluate_command(
    folder: Folder,
    data: Annotated[
        Path, typer.Option(metavar="DATA.npz", help="Arrays x, or one per input, and y: classes, or numbers.")
    ],
    on: Annotated[Target | None, typer.Option(help="Where to run. Default: host, or where --runner does.")] = None,
    output: Annotated[str | None, typer.Option(metavar="NAME", help="Output to judge. Default: the first.")] = None,
    task: Annotated[
        Literal["classification", "regression"] | None,
        typer.Option(help="What y says. Default: classes where it holds one integer per sample."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="The model's file. Default: looked for here, and beside the package."),
    ] = None,
    runner: RunnerCommand = None,
    model: Annotated[str | None, typer.Option(help="Of a bundle, the model to evaluate.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show accuracy, or errors, on data of yours.

    Accuracy, confusion, precision and recall of classes, or errors of a regression; the model's file beside them.
    """
    with errors_shown(as_json, debug):
        package = package_of(folder, model)
        x, y = _data(package, data)
        with stderr.status(f"Evaluating {package.interface.model}"):
            import_tvm_for(Path(str(package.report["model"]["source"])))
            found = package.evaluate(x, y, on, runner=runner, output=output, task=task, reference=reference)
        if as_json:
            print_json(found.to_json())
        else:
            stdout.print(str(found), highlight=False, markup=False, soft_wrap=True)


def _data(package: Package, file: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Arrays by input and the targets. Raises BadInput where an array is missing."""
    from tvm_ext.core.files.arrays import read_arrays

    arrays = read_arrays(file)
    if "y" not in arrays:
        raise BadInput(f"{file}: has no array y, the classes or numbers that are true; it holds {', '.join(arrays)}.")
    inputs = {name: array for name, array in arrays.items() if name != "y"}
    names = [*package.inputs]
    if len(names) == 1 and names[0] not in inputs and "x" in inputs:
        inputs[names[0]] = inputs.pop("x")
    return inputs, arrays["y"]
