"""Commands that take a package: `report`, `profile`, `compare`, `evaluate` and `problems`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import tvm_ext
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.options import (
    AsJson,
    Bind,
    Debug,
    Folder,
    Limit,
    RunnerCommand,
    State,
    parse_bindings,
    parse_states,
)
from tvm_ext.command_line.show import errors_shown, print_json, show_report, stderr, stdout, waiting
from tvm_ext.core.errors import BadInput, BadOptions, BadPackage
from tvm_ext.core.files.output_folder import check_output, replaced_folder
from tvm_ext.core.files.staging import staged
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import Target
from tvm_ext.core.printable import json_text
from tvm_ext.report.cells import escape

if TYPE_CHECKING:
    import numpy as np

    from tvm_ext.core.files.arrays import Array
    from tvm_ext.packages.package import Package


_BEGIN = b"<!DOCTYPE html>"


def report_command(
    folder: Folder,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE.html]", help="With --html: the page. Default: <package>-report.html."),
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Write one page with pictures, which needs no network.")] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", help="Write the timeline of a run, predicted, as a trace that Perfetto opens; new."
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show a package: memories, layers, verification."""
    with errors_shown(as_json, debug):
        from tvm_ext.report.read_report import read_report

        if file and not html:
            raise BadOptions(f"{file}: only --html writes a file; add it, or give the package alone.")
        report = read_report(folder)
        if trace:
            _write_trace(trace, folder, report)
        if not html:
            show_report(report, as_json)
            return
        from tvm_ext.report.page.page import report_page

        place = file or folder.absolute().with_name(f"{folder.absolute().name}-report.html")
        _write_page(place, report_page(report))
        if as_json:
            print_json({"file": str(place)})
        else:
            stdout.print(f"written to {place}", highlight=False, markup=False, soft_wrap=True)


def _write_trace(path: Path, folder: Path, report: dict[str, Any]) -> None:
    """Writes the timeline of a model's run. Raises BadInput where it cannot be, or where a file would be lost."""
    from tvm_ext.core.platform import Platform
    from tvm_ext.report.timeline import timeline_of, trace_of

    if "steps" not in report:
        raise BadInput(f"{folder}: is a bundle, whose models run in turn; --trace takes a package of one model.")
    platform = Platform.from_json((folder / "platform.json").read_text(encoding="utf-8"))
    found = trace_of(report["model"]["name"], timeline_of(report), platform.processor.clock_hz)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json_text(found) + "\n")
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}.") from None


def _write_page(path: Path, text: str) -> None:
    """Writes a page, whole or not at all. Raises BadInput where it cannot be, or where something else would be lost."""
    try:
        if os.path.lexists(path) and not _is_page(path):
            raise BadInput(f"{path}: is no HTML page, and would be lost. Give --html another file.")
        with staged(path.absolute().parent, path.name) as staging:
            new = staging / "new"
            new.write_bytes(text.encode())
            new.replace(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{path}: cannot be written: {reason}. Give --html a file that you may write.") from None


def _is_page(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_BEGIN)) == _BEGIN


def profile_command(
    folder: Folder,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Folder of the profile; replaced. Default: <package>-profile."
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="IN.npz", help="One array per input, under the model's names. Default: noise."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Of a bundle, the model to profile.")] = None,
    runner: RunnerCommand = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Count what each layer executes and accesses, in QEMU. Cycles are estimated from that.

    With --runner cycles are measured on a device, of a package that was compiled with --hooks.
    """
    with errors_shown(as_json, debug):
        from tvm_ext.core.files.arrays import read_arrays
        from tvm_ext.profiling.page import profile_page
        from tvm_ext.profiling.profile import Profile
        from tvm_ext.profiling.tables import device_tables, profile_tables

        place = output or folder.absolute().with_name(f"{folder.absolute().name}-profile")
        check_output(place)
        if place.resolve() == folder.resolve():
            raise BadPackage(f"{place}: is the package itself, which the profile would replace; choose another folder.")
        package = package_of(folder, model)
        arrays = read_arrays(inputs) if inputs else None
        with waiting(f"Profiling {package.interface.model}"):
            profile = package.profile(arrays) if runner is None else package.profile(arrays, runner=runner)
        with replaced_folder(place) as new:
            text = json_text(profile.to_json()) + "\n"
            (new / "profile.json").write_text(text, encoding="utf-8")
            if isinstance(profile, Profile):
                (new / "profile.folded").write_text(profile.folded(), encoding="utf-8")
                (new / "profile.html").write_text(profile_page(profile), encoding="utf-8")
        if as_json:
            print_json(profile.to_json())
            return
        for table in profile_tables(profile) if isinstance(profile, Profile) else device_tables(profile):
            stdout.print(table)
        stdout.print(f"written to {place}", highlight=False, markup=False)


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
        from tvm_ext.comparison.comparison import comparison_table
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
        from tvm_ext.packages.allocation_problems import write_allocation_problems

        files = write_allocation_problems(package_of(folder, model).report, output)
        if as_json:
            print_json([str(file) for file in files])
        else:
            for file in files:
                stdout.print(str(file), highlight=False, markup=False, soft_wrap=True)


def package_of(folder: Path, model: str | None) -> tvm_ext.Package:
    """A package, or the model of a bundle that is named. Raises BadPackage, BadInput for a name of no model."""
    if model is None:
        return tvm_ext.Package.load(folder)
    try:
        models = tvm_ext.BundlePackage.load(folder).models
    except BadPackage:
        only = tvm_ext.Package.load(folder).interface.model
        raise BadInput(f"--model {model}: {folder} is the package of one model, {only}; leave it out.") from None
    if model not in models:
        raise BadInput(f"--model {model}: is no model of {folder}; there are {', '.join(models)}.")
    return models[model]


def check_result_file(path: Path) -> None:
    """Raises BadInput where results cannot be written to, or would take the place of something else."""
    from tvm_ext.core.files.arrays import holds_arrays  # imports numpy, for which --help does not wait

    try:
        if not path.name or len(os.fsencode(path.name)) > os.pathconf(path.absolute().parent, "PC_NAME_MAX"):
            raise BadInput(f"{str(path)!r}: is no name for a file. Give --outputs another one.")
        if os.path.lexists(path) and not holds_arrays(path):
            raise BadInput(f"{path}: is no .npz file of arrays, and would be lost. Give --outputs another name.")
        with staged(path.absolute().parent):
            pass
    except OSError as error:
        raise _not_written(path, error) from None


def write_result_file(path: Path, arrays: Mapping[str, Array]) -> None:
    """The arrays as an .npz file. Raises BadInput where it cannot be written."""
    from tvm_ext.core.files.arrays import write_arrays

    try:
        write_arrays(path, arrays)
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path}: cannot be written: {error.strerror or error}. Give --outputs a file you may write.")
