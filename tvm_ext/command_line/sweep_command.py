"""`tvm-ext sweep`: figures of many models on many platforms, as tables and a picture in one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

import tvm_ext
from tvm_ext.command_line.option_types import AsJson, Debug, Jobs, Scheduler
from tvm_ext.command_line.show import errors_shown, print_json, stderr, stdout
from tvm_ext.command_line.stages_shown import moves
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.files.output_folder import check_output, replaced_folder
from tvm_ext.core.options import BuildOptions

if TYPE_CHECKING:
    from tvm_ext.sweeps.candidates import SweepModel


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A sweep as its file, or the command line, has it."""

    models: Sequence[SweepModel]
    platforms: Sequence[str]
    options: Mapping[str, BuildOptions]
    tier: str


def sweep_command(
    models: Annotated[
        list[str], typer.Argument(metavar="SWEEP.toml | MODEL...", help="A sweep's file; or models, or patterns.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the tables; replaced.")],
    platform: Annotated[
        list[str] | None, typer.Option("--platform", "-p", help="A platform, where models are given. May be repeated.")
    ] = None,
    tier: Annotated[
        str | None,
        typer.Option(metavar="estimate|full", help="Plans alone, or packages, measured; default: as the file says."),
    ] = None,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Results of earlier sweeps. Default: TVM_EXT_CACHE, or ~/.cache.")
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="S", help="A candidate's most.")] = 300.0,
    again: Annotated[bool, typer.Option("--again", help="Try again those that came to nothing.")] = False,
    timings: Annotated[
        bool, typer.Option("--timings", help="A column `seconds` too, processor time, which differs from run to run.")
    ] = False,
    x: Annotated[str, typer.Option(metavar="COLUMN", help="Picture: from left to right.")] = "ram_bytes",
    y: Annotated[str, typer.Option(metavar="COLUMN", help="Picture: upwards.")] = "predicted_instructions",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compile many models for many platforms. One table has RAM, flash, instructions, errors."""
    with errors_shown(as_json, debug):
        from tvm_ext.core.processes.child import ChildLimits
        from tvm_ext.report.listings import front_table
        from tvm_ext.sweeps.picture import picture

        check_output(output)
        asked = _asked(models, platform or [])
        total = len(asked.models) * len(asked.platforms) * len(asked.options)
        with Progress(console=stderr, transient=True, disable=not moves()) as bar:
            task = bar.add_task("candidates", total=total)
            table = tvm_ext.sweep(
                asked.models, asked.platforms, asked.options, tier=tier or asked.tier, jobs=jobs, scheduler=scheduler,
                cache=cache, again=again, limits=ChildLimits(seconds=seconds),
                timings=timings, progress=lambda done, _row: bar.update(task, completed=done),
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
    """Raises BadOptions where the two ways to say it are mixed, BadInput for files and patterns."""
    from tvm_ext.sweeps.candidates import SweepModel
    from tvm_ext.sweeps.sweep_file import SweepFile, matched

    files = [one for one in models if one.endswith(".toml")]
    if not files:
        if not platforms:
            raise BadOptions(
                "sweep: models are given, and no platform; name one with --platform, or give a SWEEP.toml."
            )
        sources = [SweepModel(source=path) for path in matched(tuple(models), Path())]
        return _Asked(models=sources, platforms=platforms, options={"default": BuildOptions()}, tier="estimate")
    if len(models) > 1 or platforms:
        raise BadOptions(f"sweep: {files[0]} says which models and platforms; give it alone.")
    path = Path(files[0])
    table, folder = SweepFile.load(path), path.parent
    return _Asked(
        models=list(table.sweep_models(folder)), platforms=table.platform_names(folder),
        options=table.build_options(), tier=table.tier,
    )  # fmt: skip
