"""`tvm-ext pareto`: a model within smaller and smaller budgets, as JSON and a picture in one folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import tvm_ext
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.option_texts import parse_bindings, parse_bytes, parse_shapes
from tvm_ext.command_line.option_types import AsJson, Bind, Debug, Jobs, Limit, OnPlatform, Scheduler, Shape
from tvm_ext.command_line.show import errors_shown, stderr, stdout
from tvm_ext.command_line.stages_shown import stages_shown
from tvm_ext.core.files.output_folder import check_output
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import BuildOptions, Optimize
from tvm_ext.report.cells import escape


def pareto_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .tflite or .pt2.")],
    platform: OnPlatform,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the results.")],
    shape: Shape = None,
    bind: Bind = None,
    optimize: Annotated[Optimize, typer.Option(help="What to compile for.")] = "speed",
    budget: Annotated[
        str | None,
        typer.Option(metavar="64KiB", help="Bytes the arena may take: a line in the picture, and the point to choose."),
    ] = None,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show RAM against time, within smaller and smaller budgets. Time is in modelled instructions."""
    shapes, bound = parse_shapes(shape or []), parse_bindings(bind or [])
    budget_bytes = parse_bytes(budget, "--budget")
    with errors_shown(as_json, debug):
        board = tvm_ext.Platform.load(platform)
        check_output(output)
        import_tvm_for(model)
        from tvm_ext.pareto import pareto, write_pareto
        from tvm_ext.report.listings import pareto_table

        with stages_shown(as_json) as show_stage:
            with show_stage(f"loading {model.name}"):
                module = tvm_ext.load(model, shapes=shapes, limits=Limits().changed(limit or []), bind=bound)
            points = pareto(
                module, board, BuildOptions(optimize=optimize), jobs=jobs, scheduler=scheduler,
                progress=show_stage,
            )  # fmt: skip
        write_pareto(points, model.name, board, output, budget_bytes=budget_bytes)
        least = min(point.arena_bytes for point in points)
        if budget_bytes is not None and budget_bytes < least:
            said = f"--budget {budget}: no point is within it, so that none is chosen; the least takes {least} B."
            stderr.print(escape(said))
        if as_json:
            sys.stdout.write((output / "pareto.json").read_text(encoding="utf-8"))
        else:
            stdout.print(pareto_table(points))
