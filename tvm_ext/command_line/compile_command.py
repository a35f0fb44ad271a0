"""`tvm-ext compile`: a model, or a project, to a package, by every option of a build."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import tvm_ext
from tvm_ext.command_line.asked import Arguments, asked_for
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.option_parameters import typed_options, with_options
from tvm_ext.command_line.option_texts import parse_bindings, parse_shapes, parse_states
from tvm_ext.command_line.option_types import (
    AsJson,
    Bind,
    BuildJobs,
    Calibration,
    Debug,
    Initial,
    Limit,
    OnPlatformOrProject,
    OutputOrProject,
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
    call: typer.Context,
    options: Mapping[str, Any],
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL",
            help="A model: .onnx, .tflite or .pt2; or a folder with a tvm_ext.toml, the current one by default.",
        ),
    ] = None,
    platform: OnPlatformOrProject = None,
    output: OutputOrProject = None,
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
    values = {
        "shapes": parse_shapes(shape) if shape else None, "bind": parse_bindings(bind) if bind else None,
        "states": parse_states(state), "initial": initial, "calibration": calibration, "verify_inputs": verify_inputs,
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
        from tvm_ext.core.files.arrays import read_arrays

        with stages_shown(quiet or as_json) as show_stage:
            with show_stage(f"loading {asked.model.name}"):
                import_tvm_for(asked.model)
                module = tvm_ext.load(
                    asked.model, shapes=found["shapes"], limits=Limits().changed(limit or []), states=found["states"],
                    initial=read_arrays(found["initial"]) if found["initial"] else None, bind=found["bind"],
                )  # fmt: skip
            package = tvm_ext.build(
                module, asked.platform, asked.output, asked.options, calibration=found["calibration"],
                verify_inputs=found["verify_inputs"], jobs=jobs, scheduler=scheduler, runner=runner,
                progress=show_stage,
            )  # fmt: skip
        if as_json or not quiet:
            show_report(package.report, as_json)
        if not as_json:
            show_end(asked.output, package.report, time.monotonic() - begin)
