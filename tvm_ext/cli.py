"""The command line: `tvm-ext compile | bundle | run | report | pareto | platforms`.

Results go to stdout, as tables or with `--json` as one JSON value; progress and errors go to stderr.
Exit status: 0 done and verified as asked, 1 the model or platform cannot be done or verification failed,
2 wrong usage.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape

import tvm_ext
from tvm_ext.core.errors import BadInput, BadOptions, DefectNotice, TvmExtError
from tvm_ext.core.files.arrays import holds_arrays, read_arrays, write_arrays
from tvm_ext.core.files.output_folder import check_output
from tvm_ext.core.files.staging import staged
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import BuildOptions, Context, Guide, Io, IoType, Memories, Optimize, Quantize, Target
from tvm_ext.core.platform import Platform
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.report.tables import pareto_table, platform_table, read_report, report_tables

app = typer.Typer(
    name="tvm-ext",
    help="Compile neural networks to self-contained C11 for microcontrollers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# Files and pipes get lines long enough for the table of steps.
_stdout = Console(width=None if sys.stdout.isatty() else 140)
_stderr = Console(stderr=True)

_UNITS = {"B": 1, "kB": 1000, "MB": 1000**2, "KiB": 1024, "MiB": 1024**2}

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of tables.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A compiled package.")]
Limit = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Allow larger models, as in tensor_bytes=1GiB. May be repeated."),
]

State = Annotated[
    list[str] | None,
    typer.Option(
        metavar="IN=OUT",
        help="Keep an output for the next run, which finds it in this input; `none`: nothing, whatever names say. May "
        "be repeated.",
    ),
]
OnPlatform = Annotated[str, typer.Option("--platform", "-p", help="A shipped platform's name, or a .toml file.")]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the package; replaced.")]
Verify = Annotated[
    str | None,
    typer.Option(
        metavar="host,qemu|host|none",
        help="Where to run and compare. Default: host, and qemu where the platform has a board and QEMU is there.",
    ),
]
Initial = Annotated[
    Path | None,
    typer.Option(metavar="FILE.npz", help="With --state: values that they begin with, by input; else zeros."),
]


def run() -> None:
    """The command itself. Letters that the terminal does not have are written as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()


@app.command("compile")
def compile_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .tflite or .pt2.")],
    platform: OnPlatform,
    output: Output,
    shape: Annotated[
        list[str] | None, typer.Option(metavar="IN=1,3,96,96", help="Fix an input's shape; may be repeated.")
    ] = None,
    optimize: Annotated[Optimize, typer.Option(help="What to compile for.")] = "speed",
    io: Annotated[
        Io, typer.Option(help="Inputs and outputs in the arena, in the caller's memory, or row by row.")
    ] = "arena",
    context: Annotated[
        Context, typer.Option(help="Arenas and state as variables of the package, or in a block that callers hold.")
    ] = "static",
    image: Annotated[
        bool,
        typer.Option(help="Also an image that a main program loads from anywhere in memory; needs --context caller."),
    ] = False,
    verify: Verify = None,
    verify_inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz", help="Compare on these: an array per input, of one sample or of N along a first axis."
        ),
    ] = None,
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
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Put nothing else where this tensor lies, at any time. May be repeated."),
    ] = None,
    state: State = None,
    initial: Initial = None,
    hop: Annotated[
        str | None,
        typer.Option(
            metavar="INPUT=FRAMES[@AXIS]",
            help="Take only so many new frames of a window over time in each run, and answer as the whole window.",
        ),
    ] = None,
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compile a model to a package of C sources, build files, tests and a report; then run and compare it."""
    shapes, states = _parse_shapes(shape or []), _parse_states(state)
    targets = _parse_verify(verify)
    hops, hop_axes = _parse_hop(hop)
    limits = _parse_ram(ram or [])
    pins = _parse_pins(pin or [])
    with _errors_reported(as_json, debug):
        board = Platform.load(platform)
        options = BuildOptions(
            optimize=optimize, io=io, context=context, image=image, verify=targets, name=name, quantize=quantize,
            io_type=io_type, min_snr_db=min_snr, guide=guide,
            ram={name or board.activations: size for name, size in limits.items()} or None,
            memories=memories, pin=pins, keep=tuple(keep or ()), hop=hops,
            hop_axis=hop_axes,
        )  # fmt: skip
        check_output(output)
        with _stderr.status(f"Loading {escape(model.name)}") as status:
            module = tvm_ext.load(
                model, shapes=shapes, limits=Limits().changed(limit or []), states=states,
                initial=read_arrays(initial) if initial else None,
            )  # fmt: skip
            package = tvm_ext.build(
                module, board, output, options, calibration=calibration, verify_inputs=verify_inputs,
                progress=lambda stage: status.update(escape(stage)),
            )  # fmt: skip
        _show_report(package.report, as_json)


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
    targets = _parse_verify(verify)
    with _errors_reported(as_json, debug):
        board = Platform.load(platform)
        check_output(output)
        with _stderr.status(f"Loading {escape(file.name)}") as status:
            package = tvm_ext.bundle(
                file, board, output, verify=targets, limits=Limits().changed(limit or []),
                progress=lambda stage: status.update(escape(stage)),
            )  # fmt: skip
        _show_report(package.report, as_json)


@app.command("run")
def run_command(
    folder: Folder,
    inputs: Annotated[Path, typer.Option(metavar="IN.npz", help="One array per input, under the model's names.")],
    outputs: Annotated[Path, typer.Option(metavar="OUT.npz", help="Where the outputs go.")],
    on: Annotated[Target, typer.Option(help="Where to run.")] = "host",
    model: Annotated[str | None, typer.Option(help="Of a bundle, the model to run.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run a package on inputs of your own."""
    with _errors_reported(as_json, debug):
        package = tvm_ext.Package.load(folder) if model is None else _bundled(folder, model)
        _check_result_file(outputs)
        arrays = read_arrays(inputs)
        with _stderr.status(f"Running on {on}"):
            results = package.run(arrays, on=on)
        try:
            write_arrays(outputs, results)
        except OSError as error:
            raise _not_written(outputs, error) from None
        if as_json:
            shown = {key: {"shape": list(value.shape), "dtype": str(value.dtype)} for key, value in results.items()}
            _print_json({"on": on, "file": str(outputs), "outputs": shown})
            return
        for key, value in results.items():
            _stdout.print(f"{escape(key)}: {value.dtype}{list(value.shape)}", highlight=False, markup=False)
        _stdout.print(f"written to {outputs}", highlight=False, markup=False)


@app.command("pareto")
def pareto_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .tflite or .pt2.")],
    platform: OnPlatform,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the results.")],
    shape: Annotated[
        list[str] | None, typer.Option(metavar="IN=1,3,96,96", help="Fix an input's shape; may be repeated.")
    ] = None,
    optimize: Annotated[Optimize, typer.Option(help="What to compile for.")] = "speed",
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show RAM against instructions: the model within smaller and smaller budgets."""
    shapes = _parse_shapes(shape or [])
    with _errors_reported(as_json, debug):
        board = Platform.load(platform)
        check_output(output)
        from tvm_ext.pareto import pareto, write_pareto  # with tvm, which takes seconds to import

        with _stderr.status(f"Loading {escape(model.name)}") as status:
            module = tvm_ext.load(model, shapes=shapes, limits=Limits().changed(limit or []))
            points = pareto(
                module, board, BuildOptions(optimize=optimize), progress=lambda text: status.update(escape(text))
            )
        write_pareto(points, model.name, board, output)
        if as_json:
            sys.stdout.write((output / "pareto.json").read_text(encoding="utf-8"))
        else:
            _stdout.print(pareto_table(points))


@app.command("report")
def report_command(folder: Folder, as_json: AsJson = False, debug: Debug = False) -> None:
    """Show what a package holds: bytes per memory, steps and kernels, verification."""
    with _errors_reported(as_json, debug):
        _show_report(read_report(folder), as_json)


@app.command("platforms")
def platforms_command(as_json: AsJson = False, debug: Debug = False) -> None:
    """List the platforms that come with tvm-ext."""
    with _errors_reported(as_json, debug):
        platforms = [Platform.load(name) for name in Platform.shipped()]
        if as_json:
            _print_json([json.loads(platform.to_json()) for platform in platforms])
        else:
            _stdout.print(platform_table(platforms))


def _bundled(folder: Path, model: str) -> tvm_ext.Package:
    """A model of a bundle. Raises BadPackage, and BadInput for a name that is none of its models'."""
    models = tvm_ext.BundlePackage.load(folder).models
    if model not in models:
        raise BadInput(f"--model {model}: is no model of {folder}; there are {', '.join(models)}.")
    return models[model]


def _parse_shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """`["x=1,3,96,96"]` to `{"x": (1, 3, 96, 96)}`; the last `=` divides, so names may hold one."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        parts = numbers.split(",") if numbers else []
        if not name or not all(re.fullmatch(r"\s*[0-9]{1,15}\s*", part) for part in parts):
            raise typer.BadParameter(f"{text!r} is not of the form IN=1,3,96,96.", param_hint="--shape")
        if name in shapes:
            raise typer.BadParameter(f"input {name!r} is given twice.", param_hint="--shape")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def _parse_states(texts: list[str] | None) -> dict[str, str] | None:
    """`["h=hn"]` to `{"h": "hn"}`, `["none"]` to nothing; None where nothing is said."""
    if not texts or texts == ["none"]:
        return None if not texts else {}
    states: dict[str, str] = {}
    for text in texts:
        source, _, target = text.partition("=")
        if not source or not target or source in states:
            raise typer.BadParameter(f"{text!r} is not of the form IN=OUT, each input once.", param_hint="--state")
        states[source] = target
    return states


def _parse_hop(text: str | None) -> tuple[dict[str, int] | None, dict[str, int] | None]:
    """`x=1@2` to `{"x": 1}` and `{"x": 2}`."""
    if text is None:
        return None, None
    name, _, numbers = text.rpartition("=")
    found = re.fullmatch(r"([0-9]{1,9})(@(-?[0-9]{1,2}))?", numbers)
    if not name or not found:
        raise typer.BadParameter(f"{text!r} is not of the form INPUT=FRAMES or INPUT=FRAMES@AXIS.", param_hint="--hop")
    return {name: int(found[1])}, {name: int(found[3])} if found[3] else None


def _parse_ram(texts: list[str]) -> dict[str, int]:
    """`["64KiB", "dtcm=16384"]` to `{"": 65536, "dtcm": 16384}`."""
    limits: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        found = re.fullmatch(r"([0-9]{1,15})\s*(B|KiB|MiB|kB|MB)?", size.strip())
        if not found or ("=" in text and not name):
            raise typer.BadParameter(f"{text!r} is not of the form 64KiB or dtcm=16KiB.", param_hint="--ram")
        if name in limits:
            raise typer.BadParameter(f"{name or 'the default memory'} is given twice.", param_hint="--ram")
        limits[name] = int(found[1]) * _UNITS[found[2] or "B"]
    return limits


def _parse_pins(texts: list[str]) -> dict[str, int]:
    pins: dict[str, int] = {}
    for text in texts:
        name, _, offset = text.rpartition("=")
        if not name or not re.fullmatch(r"[0-9]{1,15}|0x[0-9a-fA-F]{1,12}", offset):
            raise typer.BadParameter(f"{text!r} is not of the form input=0.", param_hint="--pin")
        if name in pins:
            raise typer.BadParameter(f"{name!r} is given twice.", param_hint="--pin")
        pins[name] = int(offset, 16 if offset.startswith("0x") else 10)
    return pins


def _parse_verify(text: str | None) -> tuple[Target, ...] | None:
    if text is None:
        return None
    if text == "none":
        return ()
    targets = tuple(part.strip() for part in text.split(","))
    if not set(targets) <= {"host", "qemu"} or len(set(targets)) != len(targets):
        raise typer.BadParameter(f"{text!r} is none of: host,qemu; host; qemu; none.", param_hint="--verify")
    return cast("tuple[Target, ...]", targets)


def _check_result_file(path: Path) -> None:
    """Raises BadInput where results cannot be written to, or would take the place of something else."""
    try:
        if not path.name or len(os.fsencode(path.name)) > os.pathconf(path.absolute().parent, "PC_NAME_MAX"):
            raise BadInput(f"{str(path)!r}: is no name for a file. Give --outputs another one.")
        if os.path.lexists(path) and not holds_arrays(path):
            raise BadInput(f"{path}: is no .npz file of arrays, and would be lost. Give --outputs another name.")
        with staged(path.absolute().parent):
            pass
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path}: cannot be written: {error.strerror or error}. Give --outputs a file you may write.")


def _show_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _print_json(report)
        return
    for table in report_tables(report):
        _stdout.print(table)


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def _show_notice(message: Warning | str, *_: object, **__: object) -> None:
    _stderr.print(f"notice: {message}", style="yellow", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _errors_reported(as_json: bool, debug: bool) -> Generator[None]:
    """Turn errors into a message on stderr and an exit status; with --json also into `{"error": ...}` on stdout.

    Notices about the model go to stderr as one line each; warnings of the libraries underneath only with --debug.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default" if debug else "ignore")
            for category in (ModelNotice, DefectNotice):
                warnings.simplefilter("always", category)
            warnings.showwarning = _show_notice
            yield
    except BrokenPipeError:
        raise  # who read standard output has seen enough
    except TvmExtError as error:
        trace, kind, message = traceback.format_exc(), type(error).__name__, str(error)
        status = 2 if isinstance(error, BadOptions) else 1
    except Exception as error:
        trace, kind, status = traceback.format_exc(), "InternalError", 1
        message = f"{type(error).__name__}: {error} (a defect of tvm-ext; --debug shows where)"
    else:
        return
    if debug:
        _stderr.print(trace, highlight=False, markup=False, soft_wrap=True)
    _stderr.print(f"{kind}: {message}", style="red", highlight=False, markup=False, soft_wrap=True)
    if as_json:
        _print_json({"error": {"kind": kind, "message": message}})
    raise typer.Exit(status)
