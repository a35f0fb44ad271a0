"""`tvm-ext compile`: a model to a package, by every option of a build."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import tvm_ext
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.option_parameters import build_options, with_options
from tvm_ext.command_line.option_texts import parse_bindings, parse_shapes, parse_states
from tvm_ext.command_line.option_types import (
    AsJson,
    Bind,
    BuildJobs,
    Calibration,
    Debug,
    Initial,
    Limit,
    OnPlatform,
    Output,
    RunnerCommand,
    Scheduler,
    Shape,
    State,
    VerifyOn,
)
from tvm_ext.command_line.show import errors_shown, show_end, show_report
from tvm_ext.command_line.stages_shown import stages_shown
from tvm_ext.core.files.output_folder import check_output
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import OPTIONS


@with_options(OPTIONS.values())
def compile_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .tflite or .pt2.")],
    platform: OnPlatform,
    output: Output,
    options: Mapping[str, Any],
    shape: Shape = None,
    bind: Bind = None,
    verify_inputs: VerifyOn = None,
    calibration: Calibration = None,
    state: State = None,
    initial: Initial = None,
    runner: RunnerCommand = None,
    jobs: BuildJobs = None,
    scheduler: Scheduler = None,
    limit: Limit = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Leave the tables out: where the package is, and what it takes.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compile a model to a package of C, and verify it. It holds sources, build files, tests and a report."""
    shapes, states, bound = parse_shapes(shape or []), parse_states(state), parse_bindings(bind or [])
    begin = time.monotonic()
    with errors_shown(as_json, debug):
        board = tvm_ext.Platform.load(platform)
        chosen = build_options(options, board.activations)
        check_output(output)
        from tvm_ext.core.files.arrays import read_arrays

        with stages_shown(quiet or as_json) as show_stage:
            with show_stage(f"loading {model.name}"):
                import_tvm_for(model)
                module = tvm_ext.load(
                    model, shapes=shapes, limits=Limits().changed(limit or []), states=states,
                    initial=read_arrays(initial) if initial else None, bind=bound,
                )  # fmt: skip
            package = tvm_ext.build(
                module, board, output, chosen, calibration=calibration, verify_inputs=verify_inputs, jobs=jobs,
                scheduler=scheduler, runner=runner, progress=show_stage,
            )  # fmt: skip
        if as_json or not quiet:
            show_report(package.report, as_json)
        if not as_json:
            show_end(output, package.report, time.monotonic() - begin)
