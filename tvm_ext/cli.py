"""The command line, `tvm-ext COMMAND`: each command is a function in a file of `tvm_ext/command_line/`, or here.

Results go to stdout, as tables or with `--json` as one JSON value; progress and errors go to stderr. A command imports
what it needs: `--help` and `platforms` wait for no tvm, numpy or pydantic.
Exit status: 0 done and verified as asked, 1 the model or platform cannot be done or verification failed,
2 wrong usage.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

import tvm_ext
from tvm_ext.command_line.commands import Command, Commands
from tvm_ext.command_line.compare_command import compare_command
from tvm_ext.command_line.compile_command import compile_command
from tvm_ext.command_line.doctor_command import doctor_command
from tvm_ext.command_line.estimate_command import estimate_command
from tvm_ext.command_line.evaluate_command import evaluate_command
from tvm_ext.command_line.explain_command import explain_command
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.init_command import init_command
from tvm_ext.command_line.inspect_command import inspect_command
from tvm_ext.command_line.option_texts import parse_verify
from tvm_ext.command_line.option_types import (
    AsJson,
    Debug,
    Folder,
    Limit,
    OnPlatform,
    Output,
    RunnerCommand,
    Verify,
    Version,
)
from tvm_ext.command_line.packages import package_of
from tvm_ext.command_line.pareto_command import pareto_command
from tvm_ext.command_line.platforms_command import platforms_command
from tvm_ext.command_line.problems_command import problems_command
from tvm_ext.command_line.profile_command import profile_command
from tvm_ext.command_line.report_command import report_command
from tvm_ext.command_line.show import errors_shown, print_json, show_report, stdout
from tvm_ext.command_line.stages_shown import stages_shown, waiting
from tvm_ext.command_line.sweep_command import sweep_command
from tvm_ext.core.files.output_folder import check_output
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import Target
from tvm_ext.core.printable import printable_lines
from tvm_ext.core.processes.native_warnings import native_warnings_dropped
from tvm_ext.core.shipped import choices
from tvm_ext.report.cells import escape

app = typer.Typer(
    name="tvm-ext",
    cls=Commands,
    help="Compile neural networks to self-contained C11 for microcontrollers.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def run() -> None:
    """The command itself. Letters that the terminal does not have are written as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with native_warnings_dropped():
            status = app(standalone_mode=False)
    except Exception as error:
        show = getattr(error, "show", None)  # wrong usage, which names arguments as they were given
        if show is None:
            raise
        show(text := io.StringIO())
        sys.stderr.write(printable_lines(text.getvalue()) + _choices(error))
        sys.exit(getattr(error, "exit_code", 2))
    sys.exit(status if isinstance(status, int) else 0)


def _choices(error: Exception) -> str:
    """What may be given for a platform that was left out."""
    missing = getattr(error, "param", None)
    if missing is None or missing.name != "platform" or getattr(error, "message", ""):
        return ""
    return f"Choose one of: {choices()}.\n"


@app.callback()
def options_of_all(_: Version = False) -> None:
    """Takes options that stand before a command."""


app.command("compile", cls=Command)(compile_command)


app.command("init", cls=Command)(init_command)
app.command("inspect", cls=Command)(inspect_command)
app.command("estimate", cls=Command)(estimate_command)


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
    """Compile several models to one package. Arenas lie over each other, equal kernels and weights stand once."""
    targets = parse_verify(verify)
    with errors_shown(as_json, debug):
        board = tvm_ext.Platform.load(platform)
        check_output(output)
        with stages_shown(as_json) as show_stage:
            import_tvm_for(file)
            package = tvm_ext.bundle(
                file, board, output, verify=targets, limits=Limits().changed(limit or []),
                progress=show_stage,
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
        with waiting(f"Running on {place}"):
            results = package.run(arrays, on=on, runner=runner)
        write_result_file(outputs, results)
        if as_json:
            shown = {key: {"shape": list(value.shape), "dtype": str(value.dtype)} for key, value in results.items()}
            print_json({"on": place, "file": str(outputs), "outputs": shown})
            return
        for key, value in results.items():
            stdout.print(f"{escape(key)}: {value.dtype}{list(value.shape)}", highlight=False, markup=False)
        stdout.print(f"written to {outputs}", highlight=False, markup=False)


app.command("evaluate")(evaluate_command)
app.command("compare")(compare_command)
app.command("profile")(profile_command)
app.command("pareto")(pareto_command)
app.command("sweep")(sweep_command)
app.command("problems")(problems_command)
app.command("report")(report_command)
app.command("doctor", cls=Command)(doctor_command)
app.command("explain", cls=Command)(explain_command)

app.command("platforms", cls=Command)(platforms_command)
