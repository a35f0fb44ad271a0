"""Commands that take a model: `compile`, `estimate`, `pareto`, `sweep` and `inspect`."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Group

import tvm_ext
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.option_parameters import build_options, typed_options, with_options
from tvm_ext.command_line.options import (
    AsJson,
    Bind,
    BuildJobs,
    Calibration,
    Debug,
    DetectorTable,
    Initial,
    Jobs,
    Limit,
    OnPlatform,
    OnPlatformOrProject,
    OutputOrProject,
    RunnerCommand,
    Scheduler,
    Shape,
    SignatureName,
    State,
    VerifyOn,
    parse_bindings,
    parse_bytes,
    parse_shapes,
    parse_states,
)
from tvm_ext.command_line.show import (
    errors_shown,
    print_json,
    show_end,
    show_report,
    stages_shown,
    stderr,
    stdout,
    sweep_shown,
    waiting,
)
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.files.output_folder import check_output, replaced_folder, write_manifest
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import OPTIONS, BuildOptions, Optimize
from tvm_ext.core.progress import Progress
from tvm_ext.core.shipped import choices
from tvm_ext.report.cells import FoldingTable, binary, escape, number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tvm_ext.boxes import DetectorFile
    from tvm_ext.sweeps.candidates import SweepModel


@with_options(OPTIONS.values())
def compile_command(
    call: typer.Context,
    options: Mapping[str, Any],
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL",
            help="A model: .onnx, .tflite, .tosa, .mlir or .pt2; or a folder with a tvm_ext.toml, by default the "
            "current one.",
        ),
    ] = None,
    platform: OnPlatformOrProject = None,
    output: OutputOrProject = None,
    shape: Shape = None,
    bind: Bind = None,
    signature: SignatureName = None,
    verify_inputs: VerifyOn = None,
    calibration: Calibration = None,
    state: State = None,
    initial: Initial = None,
    detector: DetectorTable = None,
    runner: RunnerCommand = None,
    jobs: BuildJobs = None,
    scheduler: Scheduler = None,
    limit: Limit = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no tables, only the package's folder, memory and time.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compile a model to a C package and verify it. The package holds sources, build files, tests and a report."""
    values = {
        "shapes": parse_shapes(shape) if shape else None, "bind": parse_bindings(bind) if bind else None,
        "states": parse_states(state), "signature": signature, "initial": initial, "calibration": calibration,
        "verify_inputs": verify_inputs, "detector": detector,
    }  # fmt: skip
    begin = time.monotonic()
    with errors_shown(as_json, debug):
        asked = asked_for(
            Arguments(
                model=model, platform=platform, output=output, options=options,
                typed=typed_options(call, options), values=values,
            )
        )  # fmt: skip
        found = asked.values
        check_output(asked.output)
        boxes = _detector_file(found["detector"])
        from tvm_ext.core.files.arrays import read_arrays

        with stages_shown(quiet or as_json) as show_stage:
            with show_stage(f"loading {asked.model.name}"):
                import_tvm_for(asked.model)
                module = tvm_ext.load(
                    asked.model, shapes=found["shapes"], limits=Limits().changed(limit or []), states=found["states"],
                    initial=read_arrays(found["initial"]) if found["initial"] else None, bind=found["bind"],
                    signature=found["signature"],
                    rounding=asked.options.rounding,
                )  # fmt: skip
            package = tvm_ext.build(
                module, asked.platform, asked.output, asked.options, calibration=found["calibration"],
                verify_inputs=found["verify_inputs"], jobs=jobs, scheduler=scheduler, runner=runner,
                progress=show_stage,
            )  # fmt: skip
        if boxes is not None:
            boxes.write(package, asked.output)
            write_manifest(asked.output)
        if as_json or not quiet:
            show_report(package.report, as_json)
        if not as_json:
            show_end(asked.output, package.report, time.monotonic() - begin)


def _detector_file(path: Path | None) -> DetectorFile | None:
    """Return the file of `--detector`, which is read before the build. Raises BadOptions."""
    if path is None:
        return None
    from tvm_ext.boxes import DetectorFile  # imports pydantic, which a build without it does not need

    return DetectorFile.load(path)


VALUES = ("shapes", "bind", "states", "signature", "initial", "calibration", "verify_inputs")
"""Arguments that are not build options. In a project file they are keys of the model."""
_FILES = ("initial", "calibration", "verify_inputs")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Arguments of `tvm-ext compile`; None for every argument that the user left out.

    options: all build options by name. typed: names of the options that the user typed. values: the other arguments,
    by the names in `VALUES`, and the file of the detector.
    """

    model: Path | None
    platform: str | None
    output: Path | None
    options: Mapping[str, Any]
    typed: Set[str]
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A complete build request. values: as in `Arguments`, None for each that was not given."""

    model: Path
    platform: tvm_ext.Platform
    output: Path
    options: BuildOptions
    values: Mapping[str, Any]


def asked_for(arguments: Arguments) -> Asked:
    """Return the build request. Without a model file, read it from the project file in the given or current folder.

    Raises BadOptions, BadPlatform.
    """
    if arguments.model is None or arguments.model.is_dir():
        return _from_project(arguments.model or Path(), arguments)
    platform = _platform(arguments.platform)
    if arguments.output is None:
        raise BadOptions("-o is missing: give the folder for the package, for example -o out/model.")
    return Asked(
        model=arguments.model,
        platform=platform,
        output=arguments.output,
        options=build_options(arguments.options, platform.activations),
        values=arguments.values,
    )


def _from_project(folder: Path, arguments: Arguments) -> Asked:
    """Return the build request of the project file in `folder`; typed arguments override it."""
    from tvm_ext.core.project_file import (  # imports pydantic, which other commands do not need
        PROJECT_FILE,
        ProjectFile,
    )

    if not (folder / PROJECT_FILE).is_file():
        raise BadOptions(
            f"MODEL is missing, and {folder.resolve()} holds no {PROJECT_FILE}: give a model file, or create a project "
            "with `tvm-ext init`."
        )
    project = ProjectFile.load(folder)
    platform = _platform(arguments.platform or project.platform_name)
    in_file = {name: project.path_of(name) if name in _FILES else getattr(project.model, name) for name in VALUES}
    in_file["detector"] = project.detector_file
    model = project.path_of("file")
    assert model is not None, "every model table has a file"
    # Only options that the user typed override the file: a default of the command line is not the user's choice.
    options = build_options(arguments.options, platform.activations)
    overridden = {*arguments.typed, *(["time_axis"] if "new_frames" in arguments.typed else [])}
    return Asked(
        model=model,
        platform=platform,
        output=arguments.output or project.output_folder,
        options=replace(project.build_options(), **{name: getattr(options, name) for name in overridden}),
        values={name: in_file[name] if value is None else value for name, value in arguments.values.items()},
    )


def _platform(name: str | None) -> tvm_ext.Platform:
    if name is None:
        raise BadOptions(f"-p is missing: choose one of {choices()}.")
    return tvm_ext.Platform.load(name)


_OF_PACKAGES = ("verify", "name", "image", "hooks", "tune")
"""Options that an estimate ignores, because they only affect a built package."""


@with_options(entry for name, entry in OPTIONS.items() if name not in _OF_PACKAGES)
def estimate_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .tflite, .tosa, .mlir or .pt2.")],
    platform: OnPlatform,
    options: Mapping[str, Any],
    shape: Shape = None,
    bind: Bind = None,
    signature: SignatureName = None,
    calibration: Calibration = None,
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show the RAM, flash and time that a model needs. It takes seconds and writes no files."""
    shapes, bound = parse_shapes(shape or []), parse_bindings(bind or [])
    with errors_shown(as_json, debug):
        board = tvm_ext.Platform.load(platform)
        chosen = build_options(options, board.activations)
        with waiting(f"Estimating {model.name}"):
            import_tvm_for(model)
            module = tvm_ext.load(
                model,
                shapes=shapes,
                limits=Limits().changed(limit or []),
                bind=bound,
                signature=signature,
                rounding=chosen.rounding,
            )
            found = tvm_ext.estimate(module, board, chosen, calibration=calibration)
        if as_json:
            values = {key: value for key, value in asdict(found).items() if key != "best_case" or value is not None}
            print_json(values | {"predicted_ms": found.predicted_ms})
            return
        table = FoldingTable("", title=f"{found.model} on {found.platform}, estimated", title_justify="left")
        table.add_column("", justify="right")
        for name, num_bytes in found.memories.items():
            memory = board.memory(name)
            kept = f" less {binary(memory.reserved_bytes)} for the application" if memory.reserved_bytes else ""
            table.add_row(f"{escape(name)}, of {binary(memory.capacity_bytes)}{kept}", number(num_bytes, " B"))
        for title, value in (
            ("weights and tables", number(found.weights_bytes, " B")),
            ("multiply-accumulates", number(found.macs)),
            ("instructions per run", number(found.predicted_instructions)),
            ("cycles per run", number(found.predicted_cycles)),
            (f"time at {found.clock_hz / 1e6:g} MHz", f"{found.predicted_ms:.2f} ms"),
            *_best_rows(found),
            ("made to fit by", found.method),
        ):
            table.add_row(title, value)
        stdout.print(table)


def _best_rows(found: tvm_ext.Estimate) -> list[tuple[str, str]]:
    """Return the rows of the best case of a model with branches; the rows before them are its worst case."""
    best = found.best_case
    if best is None:
        return []
    return [
        ("multiply-accumulates, best case", number(best.macs)),
        ("instructions, best case", number(best.instructions)),
        ("cycles, best case", number(best.cycles)),
        ("time, best case", f"{best.cycles * 1000 / found.clock_hz:.2f} ms"),
    ]


ParetoAxes = Literal["ram,instructions", "flash,cycles"]


def pareto_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .tflite, .tosa, .mlir or .pt2.")],
    platform: OnPlatform,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the results.")],
    shape: Shape = None,
    bind: Bind = None,
    signature: SignatureName = None,
    axes: Annotated[
        ParetoAxes,
        typer.Option(
            help="ram,instructions compiles within smaller and smaller budgets of the arena. flash,cycles builds and "
            "verifies for speed, for size and within limits of constants between them."
        ),
    ] = "ram,instructions",
    optimize: Annotated[
        Optimize | None,
        typer.Option(help="What to compile for. Default: balanced. Points of flash,cycles have their own."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="64KiB",
            help="Limit of the arena, or of flash: a line in the plot, and the best point within it is chosen.",
        ),
    ] = None,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show the Pareto front of RAM or flash against run time."""
    shapes, bound = parse_shapes(shape or []), parse_bindings(bind or [])
    budget_bytes = parse_bytes(budget, "--budget")
    with errors_shown(as_json, debug):
        board = tvm_ext.Platform.load(platform)
        check_output(output)
        if axes == "flash,cycles" and optimize is not None:
            raise BadOptions("--optimize: --axes flash,cycles builds for speed and for size. Remove --optimize.")
        import_tvm_for(model)

        with stages_shown(as_json) as show_stage:
            with show_stage(f"loading {model.name}"):
                module = tvm_ext.load(
                    model, shapes=shapes, limits=Limits().changed(limit or []), bind=bound, signature=signature
                )
            front = _flash_front if axes == "flash,cycles" else partial(_ram_front, optimize or "balanced")
            shown, least = front(module, board, model, output, budget_bytes, jobs, scheduler, show_stage)
        if budget_bytes is not None and budget_bytes < least:
            limited = "flash" if axes == "flash,cycles" else "arena"
            said = f"--budget {budget}: no point fits, so none is chosen; the smallest {limited} is {least} B."
            stderr.print(escape(said))
        if as_json:
            sys.stdout.write((output / "pareto.json").read_text(encoding="utf-8"))
        else:
            stdout.print(shown)


def _ram_front(
    optimize: Optimize, module: Any, board: tvm_ext.Platform, model: Path, output: Path, budget: int | None,
    jobs: int, scheduler: str | None, progress: Progress,
) -> tuple[RenderableType, int]:  # fmt: skip
    """Write the points of RAM and instructions; return them as a table, and the bytes of the smallest."""
    from tvm_ext.estimates.pareto import pareto, write_pareto
    from tvm_ext.report.listings import pareto_table

    options = BuildOptions(optimize=optimize)
    points = pareto(module, board, options, jobs=jobs, scheduler=scheduler, progress=progress)
    write_pareto(points, model.name, board, output, budget_bytes=budget)
    return pareto_table(points), min(point.arena_bytes for point in points)


def _flash_front(
    module: Any, board: tvm_ext.Platform, model: Path, output: Path, budget: int | None, jobs: int,
    scheduler: str | None, progress: Progress,
) -> tuple[RenderableType, int]:  # fmt: skip
    """Write the points of flash and cycles; return them as a table, and the bytes of the smallest."""
    from tvm_ext.building.flash_pareto import command_note, flash_pareto, write_flash_pareto
    from tvm_ext.report.listings import flash_table

    points = flash_pareto(module, board, jobs=jobs, scheduler=scheduler, progress=progress)
    write_flash_pareto(points, model, board, output, budget_bytes=budget)
    shown = Group(flash_table(points), escape(command_note(model, board)))
    return shown, min(point.flash_bytes for point in points)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A sweep request, from a sweep file or from the command line."""

    models: Sequence[SweepModel]
    platforms: Sequence[str]
    options: Mapping[str, BuildOptions]
    tier: str


def sweep_command(
    models: Annotated[
        list[str], typer.Argument(metavar="SWEEP.toml | MODEL...", help="A sweep file, or model files or patterns.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the tables; replaced.")],
    platform: Annotated[
        list[str] | None, typer.Option("--platform", "-p", help="A platform for the given models. May be repeated.")
    ] = None,
    tier: Annotated[
        str | None,
        typer.Option(
            metavar="estimate|full",
            help="Only estimate, or build and measure packages. Default: the sweep file's tier.",
        ),
    ] = None,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Cache of earlier results. Default: TVM_EXT_CACHE, or ~/.cache.")
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="S", help="Time limit for each candidate, in seconds.")] = 300.0,
    again: Annotated[bool, typer.Option("--again", help="Retry candidates that failed in an earlier sweep.")] = False,
    timings: Annotated[
        bool, typer.Option("--timings", help="Add a column `seconds`: processor time, which differs from run to run.")
    ] = False,
    x: Annotated[str, typer.Option(metavar="COLUMN", help="Column on the plot's horizontal axis.")] = "ram_bytes",
    y: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column on the plot's vertical axis.")
    ] = "predicted_instructions",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compile many models for many platforms into one table.

    The table lists RAM, flash, instructions and errors.
    """
    with errors_shown(as_json, debug):
        from tvm_ext.core.processes.child import ChildLimits
        from tvm_ext.report.listings import front_table
        from tvm_ext.sweeps.picture import picture

        check_output(output)
        asked = _asked(models, platform or [])
        total = len(asked.models) * len(asked.platforms) * len(asked.options)
        with sweep_shown(total) as show_row:
            table = tvm_ext.sweep(
                asked.models, asked.platforms, asked.options, tier=tier or asked.tier, jobs=jobs, scheduler=scheduler,
                cache=cache, again=again, limits=ChildLimits(seconds=seconds), timings=timings, progress=show_row,
            )  # fmt: skip
        shown = picture(table, x, y)
        with replaced_folder(output) as new:
            for name in ("sweep.csv", "sweep.jsonl"):
                table.write(new / name)
            if find_spec("pyarrow"):
                table.write(new / "sweep.parquet")
            (new / "sweep.svg").write_text(shown, encoding="utf-8")
        if as_json:
            print_json([dict(row) for row in table.rows])
        else:
            stdout.print(front_table(table.front(x, y), table.rows, x, y))


def _asked(models: list[str], platforms: list[str]) -> _Asked:
    """Return the sweep request.

    Raises BadOptions where a sweep file is mixed with models or platforms, BadInput for files and patterns.
    """
    from tvm_ext.sweeps.candidates import SweepModel
    from tvm_ext.sweeps.sweep_file import SweepFile, matched

    files = [one for one in models if one.endswith(".toml")]
    if not files:
        if not platforms:
            raise BadOptions(
                "sweep: models are given without a platform; add --platform NAME, or give a SWEEP.toml instead."
            )
        sources = [SweepModel(source=path) for path in matched(tuple(models), Path())]
        return _Asked(models=sources, platforms=platforms, options={"default": BuildOptions()}, tier="estimate")
    if len(models) > 1 or platforms:
        raise BadOptions(f"sweep: {files[0]} already names the models and platforms; give the file alone.")
    path = Path(files[0])
    table, folder = SweepFile.load(path), path.parent
    return _Asked(
        models=list(table.sweep_models(folder)), platforms=table.platform_names(folder),
        options=table.build_options(), tier=table.tier,
    )  # fmt: skip


def inspect_command(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A model (.onnx, .tflite, .tosa, .mlir, .pt2), or a folder of models."),
    ],
    shape: Shape = None,
    bind: Bind = None,
    signature: SignatureName = None,
    limit: Limit = None,
    platform: Annotated[
        str, typer.Option("--platform", "-p", help="With a folder: the platform of RAM and flash.")
    ] = "cortex_m4",
    seconds: Annotated[
        float, typer.Option(metavar="S", help="With a folder: time limit for each file, in seconds.")
    ] = 120.0,
    as_csv: Annotated[bool, typer.Option("--csv", help="With a folder: print the table as CSV.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show a model's inputs, outputs, operators and size. An error lists every operator that cannot be compiled.

    Of a folder, show a table of all model files below it.
    """
    if model.is_dir():
        with errors_shown(as_json, debug):
            if shape or bind or signature:
                raise BadOptions("shape, bind and signature are of one model: give its file instead of a folder.")
            board, limits = tvm_ext.Platform.load(platform), Limits().changed(limit or [])
            _inspect_folder(model, board, limits, seconds, as_csv=as_csv, as_json=as_json)
        return
    shapes, bound = parse_shapes(shape or []), parse_bindings(bind or [])
    with errors_shown(as_json, debug):
        with waiting(f"Reading {model.name}"):
            import_tvm_for(model)
            from tvm_ext.compilation.contents import contents_of

            module = tvm_ext.load(
                model, shapes=shapes, limits=Limits().changed(limit or []), bind=bound, signature=signature
            )
            found = contents_of(module)
        if as_json:
            print_json(found.to_json())
            return
        stdout.print(_ports("input", found.inputs))
        stdout.print(_ports("output", found.outputs))
        stdout.print(_operators(found.operators))
        stdout.print(
            f"{found.num_parameters:,} parameters in {found.parameter_bytes:,} B, {found.macs:,} multiply-accumulates"
            f"{f', {found.num_states} states' if found.num_states else ''}. Every operator can be compiled.",
            highlight=False,
        )


def _inspect_folder(
    folder: Path, platform: tvm_ext.Platform, limits: Limits, seconds: float, *, as_csv: bool, as_json: bool
) -> None:
    """Print the table of the model files below a folder."""
    from tvm_ext.sweeps import inspect_folder as folders

    with stages_shown(as_json or as_csv) as show_stage:
        rows: list[folders.Row] = []
        for path in folders.model_files(folder):
            with show_stage(f"inspecting {path.name}"):
                rows.append(folders.inspect_file(folder, path, platform, limits=limits, seconds=seconds))
    if as_json:
        print_json([dict(row) for row in rows])
    elif as_csv:
        typer.echo(folders.as_csv(rows), nl=False)
    else:
        stdout.print(folders.table(rows, platform))


def _ports(title: str, ports: Sequence[Mapping[str, Any]]) -> FoldingTable:
    table = FoldingTable(title, "type", "shape", "scale", "zero point")
    for port in ports:
        shape = ", ".join(map(str, port["shape"]))
        cells = ("", "") if port["scale"] is None else (f"{port['scale']:.6g}", str(port["zero_point"]))
        table.add_row(escape(port["name"]), port["dtype"], f"[{shape}]".replace("[", "\\["), *cells)
    return table


def _operators(operators: Mapping[str, int]) -> FoldingTable:
    table = FoldingTable("operator")
    table.add_column("count", justify="right")
    for name, count in Counter(operators).most_common():
        table.add_row(escape(name), str(count))
    return table
