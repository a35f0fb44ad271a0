"""The command line: `tvm-ext compile | bundle | run | compare | profile | pareto | sweep | report | platforms`.

Results go to stdout, as tables or with `--json` as one JSON value; progress and errors go to stderr. A command imports
what it needs: `--help` and `platforms` wait for no tvm, numpy or pydantic.
Exit status: 0 done and verified as asked, 1 the model or platform cannot be done or verification failed,
2 wrong usage.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

import tvm_ext
from tvm_ext.command_line.commands import Command, Commands
from tvm_ext.command_line.compare_command import compare_command
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
    Folder,
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
    Version,
)
from tvm_ext.command_line.packages import package_of
from tvm_ext.command_line.pareto_command import pareto_command
from tvm_ext.command_line.profile_command import profile_command
from tvm_ext.command_line.report_command import report_command
from tvm_ext.command_line.show import errors_shown, print_json, show_report, stderr, stdout
from tvm_ext.command_line.sweep_command import sweep_command
from tvm_ext.core.files.output_folder import check_output
from tvm_ext.core.limits import Limits
from tvm_ext.core.objectives import Grouping, Objective
from tvm_ext.core.options import (
    BuildOptions,
    Context,
    Guide,
    Io,
    IoType,
    Memories,
    Optimize,
    Quantize,
    Target,
    Weights,
)

app = typer.Typer(
    name="tvm-ext",
    cls=Commands,
    help="Compile neural networks to self-contained C11 for microcontrollers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def run() -> None:
    """The command itself. Letters that the terminal does not have are written as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()


@app.callback()
def options_of_all(_: Version = False) -> None:
    """Takes options that stand before a command."""


@app.command("compile")
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


@app.command("bundle")
def bundle_command(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE.toml", help="Models, each with options of its own.")],
    platform: OnPlatform,
    output: Output,
    verify: Verify = None,
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compile several models to one package: arenas over each other, equal kernels and weights once."""
    targets = parse_verify(verify)
    with errors_shown(as_json, debug):
        board = tvm_ext.Platform.load(platform)
        check_output(output)
        with stderr.status(f"Loading {escape(file.name)}") as status:
            import_tvm_for(file)
            package = tvm_ext.bundle(
                file, board, output, verify=targets, limits=Limits().changed(limit or []),
                progress=lambda stage: status.update(escape(stage)),
            )  # fmt: skip
        show_report(package.report, as_json)


@app.command("run")
def run_command(
    folder: Folder,
    inputs: Annotated[Path, typer.Option(metavar="IN.npz", help="One array per input, under the model's names.")],
    outputs: Annotated[Path, typer.Option(metavar="OUT.npz", help="Where the outputs go.")],
    on: Annotated[Target | None, typer.Option(help="Where to run. Default: host, or where --runner does.")] = None,
    runner: RunnerCommand = None,
    model: Annotated[str | None, typer.Option(help="Of a bundle, the model to run.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run a package on inputs of your own."""
    with errors_shown(as_json, debug):
        from tvm_ext.command_line.result_file import check_result_file, write_result_file
        from tvm_ext.core.files.arrays import read_arrays

        package = package_of(folder, model)
        check_result_file(outputs)
        arrays = read_arrays(inputs)
        place = on or ("runner" if runner is not None else "host")
        with stderr.status(f"Running on {place}"):
            results = package.run(arrays, on=on, runner=runner)
        write_result_file(outputs, results)
        if as_json:
            shown = {key: {"shape": list(value.shape), "dtype": str(value.dtype)} for key, value in results.items()}
            print_json({"on": place, "file": str(outputs), "outputs": shown})
            return
        for key, value in results.items():
            stdout.print(f"{escape(key)}: {value.dtype}{list(value.shape)}", highlight=False, markup=False)
        stdout.print(f"written to {outputs}", highlight=False, markup=False)


app.command("compare")(compare_command)
app.command("profile")(profile_command)
app.command("pareto")(pareto_command)
app.command("sweep")(sweep_command)
app.command("report")(report_command)


@app.command("platforms", cls=Command)
def platforms_command(as_json: AsJson = False, debug: Debug = False) -> None:
    """List the platforms that come with tvm-ext."""
    with errors_shown(as_json, debug):
        if as_json:
            shipped = tvm_ext.Platform.shipped()
            print_json([json.loads(tvm_ext.Platform.load(name).to_json()) for name in shipped])
            return
        from tvm_ext.core.shipped import shipped_tables
        from tvm_ext.report.listings import platform_table

        stdout.print(platform_table(shipped_tables()))
