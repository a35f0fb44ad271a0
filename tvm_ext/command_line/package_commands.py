"""Commands that take a package: `report`, `demo`, `profile`, `compare`, `evaluate` and `problems`."""

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
        typer.Argument(metavar="[FILE.html]", help="With --html: file for the page. Default: <package>-report.html."),
    ] = None,
    html: Annotated[
        bool, typer.Option("--html", help="Write one self-contained HTML page with pictures, which needs no network.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", help="Write the predicted timeline of a run as a trace for Perfetto; a new file."
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show the report of a package: memory, layers, verification."""
    with errors_shown(as_json, debug):
        from tvm_ext.report.read_report import read_report

        if file and not html:
            raise BadOptions(f"{file}: a file is only written with --html; add --html, or leave the file out.")
        report = read_report(folder)
        if trace:
            _write_trace(trace, folder, report)
        if not html:
            show_report(report, as_json)
            return
        from tvm_ext.report.page.page import report_page

        place = file or folder.absolute().with_name(f"{folder.absolute().name}-report.html")
        _write_page(place, report_page(report), "Give --html another file.")
        _say_written(place, as_json)


def demo_command(
    folder: Folder,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE.html]", help="File for the page. Default: <package>-demo.html."),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(metavar="DATA.npz", help="Samples for the page: array x, or one array per input, in a batch."),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a page that runs a package in a browser.

    The package's C is compiled to WebAssembly, and the page contains it: one HTML file, which needs no network. A user
    draws, shows a picture, speaks, types values or chooses a test vector, and sees what each layer computes.
    """
    with errors_shown(as_json, debug):
        from tvm_ext.browser.page import demo_page
        from tvm_ext.core.files.arrays import read_arrays

        place = file or folder.absolute().with_name(f"{folder.absolute().name}-demo.html")
        with waiting("Compiling to WebAssembly"):
            package = tvm_ext.Package.load(folder)
            text = demo_page(package, _inputs_of(package, read_arrays(samples)) if samples else None)
        _write_page(place, text, "Give another file.")
        _say_written(place, as_json)


def _say_written(place: Path, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(place)})
    else:
        stdout.print(f"written to {place}", highlight=False, markup=False, soft_wrap=True)


def _write_trace(path: Path, folder: Path, report: dict[str, Any]) -> None:
    """Write the timeline of a run. Raises BadInput for a bundle, and if the file exists or cannot be written."""
    from tvm_ext.core.platform import Platform
    from tvm_ext.report.timeline import timeline_of, trace_of

    if "steps" not in report:
        raise BadInput(f"{folder}: this package is a bundle of models; --trace takes a package of one model.")
    platform = Platform.from_json((folder / "platform.json").read_text(encoding="utf-8"))
    found = trace_of(report["model"]["name"], timeline_of(report), platform.processor.clock_hz)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json_text(found) + "\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{path}: cannot be written: {reason}. Give --trace the path of a new file.") from None


def _write_page(path: Path, text: str, way_out: str) -> None:
    """Write a page as a whole or not at all.

    way_out: sentence for a file that is not replaced.
    Raises BadInput if the file cannot be written, or exists and is not an HTML page.
    """
    try:
        if os.path.lexists(path) and not _is_page(path):
            raise BadInput(f"{path}: exists and is not an HTML page. {way_out}")
        with staged(path.absolute().parent, path.name) as staging:
            new = staging / "new"
            new.write_bytes(text.encode())
            new.replace(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{path}: cannot be written: {reason}. Give a writable path.") from None


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
            "--output", "-o", metavar="DIR", help="Folder for the profile; replaced. Default: <package>-profile."
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="IN.npz", help="One array per input, under the model's names. Default: random values."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Name of the model to profile, for a bundle.")] = None,
    runner: RunnerCommand = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Count instructions and memory accesses of each layer in QEMU.

    Cycles are estimated from them. With --runner, measure cycles on a device. The package must have been compiled with
    --hooks.
    """
    with errors_shown(as_json, debug):
        from tvm_ext.core.files.arrays import read_arrays
        from tvm_ext.profiling.page import profile_page
        from tvm_ext.profiling.profile import Profile
        from tvm_ext.profiling.tables import device_tables, profile_tables

        place = output or folder.absolute().with_name(f"{folder.absolute().name}-profile")
        check_output(place)
        if place.resolve() == folder.resolve():
            raise BadPackage(f"{place}: the profile would replace the package itself; choose another folder.")
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
    on: Annotated[Target, typer.Option(help="Where to run the package.")] = "host",
    reference: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="The model file. Default: searched in this folder and beside the package."),
    ] = None,
    bind: Bind = None,
    state: State = None,
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare every layer with the reference runtime of the model.

    Exit status 1 if a layer differs.
    """
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
        Path, typer.Option(metavar="DATA.npz", help="Array x, or one array per input, and array y of true values.")
    ],
    on: Annotated[
        Target | None, typer.Option(help="Where to run. Default: the device of --runner, otherwise host.")
    ] = None,
    output: Annotated[str | None, typer.Option(metavar="NAME", help="Output to evaluate. Default: the first.")] = None,
    task: Annotated[
        Literal["classification", "regression"] | None,
        typer.Option(help="The task. Default: classification if y holds one integer per sample, otherwise regression."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="The model file. Default: searched in this folder and beside the package."),
    ] = None,
    runner: RunnerCommand = None,
    model: Annotated[str | None, typer.Option(help="Name of the model to evaluate, for a bundle.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show accuracy or errors on your own data.

    For classes: accuracy, confusion, precision and recall; for a regression: errors. The results of the model file's
    reference runtime stand beside them.
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
    """Return the arrays by input, and the true values. Raises BadInput if array y is missing."""
    from tvm_ext.core.files.arrays import read_arrays

    arrays = read_arrays(file)
    if "y" not in arrays:
        raise BadInput(f"{file}: array y of true classes or values is missing; the file holds {', '.join(arrays)}.")
    return _inputs_of(package, arrays), arrays["y"]


def _inputs_of(package: Package, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays by input; array x is that of a single input, and array y is left out."""
    names = [*package.inputs]
    inputs = {name: array for name, array in arrays.items() if name != "y" or name in names}
    if len(names) == 1 and names[0] not in inputs and "x" in inputs:
        inputs[names[0]] = inputs.pop("x")
    return inputs


def problems_command(
    folder: Folder,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the CSV files, one per memory; replaced.")
    ],
    model: Annotated[str | None, typer.Option(help="Name of the model, for a bundle.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write the allocation problems of a package as CSV files.

    Each row is the lifetime and the bytes of a tensor, `id,lower,upper,size`: the format of MiniMalloc.
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
    """Load a package, or the named model of a bundle. Raises BadPackage; BadInput if there is no model of that name."""
    if model is None:
        return tvm_ext.Package.load(folder)
    try:
        models = tvm_ext.BundlePackage.load(folder).models
    except BadPackage:
        only = tvm_ext.Package.load(folder).interface.model
        raise BadInput(f"--model {model}: {folder} is the package of one model, {only}; leave --model out.") from None
    if model not in models:
        raise BadInput(f"--model {model}: {folder} has no model of this name; its models are {', '.join(models)}.")
    return models[model]


def check_result_file(path: Path) -> None:
    """Raise BadInput if results cannot be written to this path, or would replace a file that is not a result file."""
    from tvm_ext.core.files.arrays import holds_arrays  # imports numpy, which would slow down --help

    try:
        if not path.name or len(os.fsencode(path.name)) > os.pathconf(path.absolute().parent, "PC_NAME_MAX"):
            raise BadInput(f"{str(path)!r}: not a valid file name. Give --outputs another name.")
        if os.path.lexists(path) and not holds_arrays(path):
            raise BadInput(f"{path}: exists and is not an .npz file of arrays. Give --outputs another name.")
        with staged(path.absolute().parent):
            pass
    except OSError as error:
        raise _not_written(path, error) from None


def write_result_file(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write the arrays as an .npz file. Raises BadInput if the file cannot be written."""
    from tvm_ext.core.files.arrays import write_arrays

    try:
        write_arrays(path, arrays)
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path}: cannot be written: {error.strerror or error}. Give --outputs a writable path.")
