"""`tvm-ext compile`: a model to a package, by every option of a build."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import tvm_ext
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.option_texts import (
    parse_bindings,
    parse_bytes,
    parse_hop,
    parse_pins,
    parse_ram,
    parse_shapes,
    parse_states,
    parse_verify,
)
from tvm_ext.command_line.option_types import (
    ActivationBits,
    AsJson,
    Bind,
    BuildJobs,
    Debug,
    Initial,
    Keep,
    Limit,
    OnPlatform,
    Output,
    RunnerCommand,
    Scheduler,
    State,
    Verify,
    VerifyOn,
)
from tvm_ext.command_line.show import errors_shown, show_report, stderr
from tvm_ext.core.files.output_folder import check_output
from tvm_ext.core.limits import Limits
from tvm_ext.core.objectives import Grouping, Objective
from tvm_ext.core.options import BuildOptions, Context, Guide, Io, IoType, Memories, Optimize, Quantize, Weights
from tvm_ext.report.cells import escape


def compile_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .tflite or .pt2.")],
    platform: OnPlatform,
    output: Output,
    shape: Annotated[
        list[str] | None, typer.Option(metavar="IN=1,3,96,96", help="Fix an input's shape; may be repeated.")
    ] = None,
    bind: Bind = None,
    optimize: Annotated[Optimize, typer.Option(help="What to compile for.")] = "speed",
    io: Annotated[
        Io, typer.Option(help="Inputs and outputs in the arena, in the caller's memory, or row by row.")
    ] = "arena",
    reread: Annotated[
        bool, typer.Option(help="With --io stream: rows of inputs may be asked for more than once, to fit.")
    ] = False,
    context: Annotated[
        Context, typer.Option(help="Arenas and state as variables of the package, or in a block that callers hold.")
    ] = "static",
    image: Annotated[
        bool,
        typer.Option(help="Also an image that a main program loads from anywhere in memory; needs --context caller."),
    ] = False,
    verify: Verify = None,
    verify_inputs: VerifyOn = None,
    name: Annotated[str | None, typer.Option(help="C prefix of what is generated. Default: the file's name.")] = None,
    quantize: Annotated[
        Quantize,
        typer.Option(help="Turn a float model into int8; auto: only where float does not fit. Needs --calibration."),
    ] = "none",
    calibration: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Samples: an array [N, ...] per input, and labels [N] if there are any."),
    ] = None,
    io_type: Annotated[
        IoType, typer.Option(help="With --quantize: type of inputs and outputs that are float in the model.")
    ] = "int8",
    min_snr: Annotated[
        float, typer.Option(metavar="DB", help="With --quantize: operators stay float until outputs reach this.")
    ] = 10.0,
    activations: ActivationBits = "int8",
    weights: Annotated[
        Weights,
        typer.Option(help="Of quantized layers: mixed, int4: 4 bits, where they do or all; with --quantize made so."),
    ] = "int8",
    flash: Annotated[
        str | None,
        typer.Option(
            metavar="32KiB", help="Bytes that weights and tables may take, without code; with --quantize made so."
        ),
    ] = None,
    guide: Annotated[
        Guide, typer.Option(help="Rank what could be computed again by learned costs, or by the kernels' estimates.")
    ] = "learned",
    ram: Annotated[
        list[str] | None,
        typer.Option(metavar="64KiB", help="Bytes tensors may take; of another memory: dtcm=16KiB. May be repeated."),
    ] = None,
    memories: Annotated[
        Memories, typer.Option(help="Where tensors live: in all memories, moved meanwhile, or in the default one.")
    ] = "all",
    pin: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=OFFSET", help="Place a tensor at these bytes of its arena. May be repeated."),
    ] = None,
    keep: Keep = None,
    objective: Annotated[
        Objective, typer.Option(help="Where a platform has several processors: what placing operators on them is for.")
    ] = "makespan",
    group: Annotated[
        Grouping, typer.Option(help="Operators that stay on one processor together, where there are several.")
    ] = "none",
    processors: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Processors that may be used. Default: all.")
    ] = None,
    hooks: Annotated[
        bool,
        typer.Option(help="Hooks around each layer, nothing until <MODEL>_PROFILE is defined: cycles on the device."),
    ] = False,
    tune: Annotated[
        bool, typer.Option(help="Choose kernels by what they measure on the platform's board in QEMU, layer by layer.")
    ] = False,
    state: State = None,
    initial: Initial = None,
    hop: Annotated[
        str | None,
        typer.Option(
            metavar="INPUT=FRAMES[@AXIS]",
            help="Take only so many new frames of a window over time in each run, and answer as the whole window.",
        ),
    ] = None,
    runner: RunnerCommand = None,
    jobs: BuildJobs = None,
    scheduler: Scheduler = None,
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compile a model to a package of C sources, build files, tests and a report; then run and compare it."""
    shapes, states, bound = parse_shapes(shape or []), parse_states(state), parse_bindings(bind or [])
    targets = parse_verify(verify)
    hops, hop_axes = parse_hop(hop)
    limits = parse_ram(ram or [])
    num_bytes = parse_bytes(flash, "--flash")
    pins = parse_pins(pin or [])
    with errors_shown(as_json, debug):
        board = tvm_ext.Platform.load(platform)
        options = BuildOptions(
            optimize=optimize, io=io, reread=reread, context=context, image=image, verify=targets, name=name,
            quantize=quantize, io_type=io_type, min_snr_db=min_snr, activations=activations, weights=weights,
            flash=num_bytes, guide=guide,
            ram={name or board.activations: size for name, size in limits.items()} or None,
            memories=memories, pin=pins, keep=tuple(keep or ()), hop=hops,
            hop_axis=hop_axes, objective=objective, group=group,
            processors=tuple(processors.split(",")) if processors else None, hooks=hooks, tune=tune,
        )  # fmt: skip
        check_output(output)
        from tvm_ext.core.files.arrays import read_arrays

        with stderr.status(f"Loading {escape(model.name)}") as status:
            import_tvm_for(model)
            module = tvm_ext.load(
                model, shapes=shapes, limits=Limits().changed(limit or []), states=states,
                initial=read_arrays(initial) if initial else None, bind=bound,
            )  # fmt: skip
            package = tvm_ext.build(
                module, board, output, options, calibration=calibration, verify_inputs=verify_inputs, jobs=jobs,
                scheduler=scheduler, runner=runner, progress=lambda stage: status.update(escape(stage)),
            )  # fmt: skip
        show_report(package.report, as_json)
