"""The command line, `tvm-ext COMMAND`: the table of commands, and the two shortest commands."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

import tvm_ext
from tvm_ext.command_line.build_commands import (
    compile_command,
    estimate_command,
    inspect_command,
    pareto_command,
    sweep_command,
)
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.options import (
    AsJson,
    BundleJobs,
    Debug,
    Folder,
    Limit,
    OnPlatform,
    Output,
    RunnerCommand,
    Verify,
    Version,
    parse_verify,
)
from tvm_ext.command_line.package_commands import (
    compare_command,
    demo_command,
    evaluate_command,
    package_of,
    problems_command,
    profile_command,
    report_command,
)
from tvm_ext.command_line.setup_commands import doctor_command, explain_command, init_command, platforms_command
from tvm_ext.command_line.show import errors_shown, print_json, show_report, stages_shown, stdout, waiting
from tvm_ext.core.files.output_folder import check_output
from tvm_ext.core.limits import Limits
from tvm_ext.core.option_table import GROUPS, flag_of
from tvm_ext.core.options import Target
from tvm_ext.core.printable import printable_lines
from tvm_ext.core.processes.native_warnings import native_warnings_dropped
from tvm_ext.core.shipped import choices
from tvm_ext.report.cells import escape


class Command(TyperCommand):
    """A command with grouped options, fast start-up, and hints for renamed options."""

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _never_coerced(super().get_help_option(ctx))

    def get_params(self, ctx: Any) -> list[Any]:
        return [_lazily_coerced(param) for param in super().get_params(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; the error for a renamed option suggests the present name."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # typer does not export the class of the error for an unknown option
            now = _present_flags().get(getattr(error, "option_name", ""))
            if now is not None:
                cast("Any", error).possibilities = [now]
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options under the headings of their groups, then options without a group."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *GROUPS, "Other options")}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                kind = "Arguments" if param.param_type_name == "argument" else "Other options"
                sections[getattr(param, "rich_help_panel", None) or kind].append(record)
        shown = {name: records for name, records in sections.items() if records}
        for name, records in shown.items():
            is_plain = name == "Other options" and not shown.keys() & {*GROUPS}
            with formatter.section("Options" if is_plain else name):
                formatter.write_dl(records)


class Commands(TyperGroup):
    """The group of all commands, with fast start-up."""

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _never_coerced(super().get_help_option(ctx))

    def get_params(self, ctx: Any) -> list[Any]:
        return [_lazily_coerced(param) for param in super().get_params(ctx)]


def _never_coerced(option: TyperOption | None) -> TyperOption | None:
    """Return the help option with the default False, so that typer does not import pydantic to convert None."""
    if option is not None:
        option.default = False
    return option


def _lazily_coerced(param: Any) -> Any:
    """Return the parameter, changed so that pydantic is only imported to convert a value that was given."""
    if hasattr(param, "coerced"):
        return param
    param.coerced = param.process_value

    def process_value(context: Any, value: Any) -> Any:
        if value is not None or param.required:
            return param.coerced(context, value)
        return param.callback(context, param, None) if param.callback else None

    param.process_value = process_value
    return param


def _present_flags() -> dict[str, str]:
    """Return the present flag of each renamed option, by its former flag."""
    from tvm_ext.core.options import OPTIONS  # imports numpy, which would slow down `--help`

    entries = [entry for entry in OPTIONS.values() if entry.option.formerly and entry.option.help]
    return {flag_of(entry.option.formerly): entry.flag for entry in entries}


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
    """Run the command line. Characters that the terminal cannot write are written as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with native_warnings_dropped():
            status = app(standalone_mode=False)
    except Exception as error:
        # Only usage errors have `show`. Their messages quote the user's arguments, so the text is made printable.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show(text := io.StringIO())
        sys.stderr.write(printable_lines(text.getvalue()) + _choices(error))
        sys.exit(getattr(error, "exit_code", 2))
    sys.exit(status if isinstance(status, int) else 0)


def _choices(error: Exception) -> str:
    """Return the list of platforms for an error about a missing --platform; empty for every other error."""
    missing = getattr(error, "param", None)
    if missing is None or missing.name != "platform" or getattr(error, "message", ""):
        return ""
    return f"Choose one of: {choices()}.\n"


@app.callback()
def options_of_all(_: Version = False) -> None:
    """Accept the options that stand before a command."""


app.command("compile", cls=Command)(compile_command)


app.command("init", cls=Command)(init_command)
app.command("inspect", cls=Command)(inspect_command)
app.command("estimate", cls=Command)(estimate_command)


@app.command("bundle")
def bundle_command(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE.toml", help="File that lists the models and their options.")],
    platform: OnPlatform,
    output: Output,
    verify: Verify = None,
    jobs: BundleJobs = None,
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compile several models to one package. The models share one arena, and equal kernels and weights."""
    targets = parse_verify(verify)
    with errors_shown(as_json, debug):
        board = tvm_ext.Platform.load(platform)
        check_output(output)
        with stages_shown(as_json) as show_stage:
            import_tvm_for(file)
            package = tvm_ext.bundle(
                file, board, output, verify=targets, limits=Limits().changed(limit or []),
                progress=show_stage, jobs=jobs,
            )  # fmt: skip
        show_report(package.report, as_json)


@app.command("run")
def run_command(
    folder: Folder,
    inputs: Annotated[Path, typer.Option(metavar="IN.npz", help="One array per input, under the model's names.")],
    outputs: Annotated[Path, typer.Option(metavar="OUT.npz", help="File for the outputs.")],
    on: Annotated[
        Target | None, typer.Option(help="Where to run. Default: the device of --runner, otherwise host.")
    ] = None,
    runner: RunnerCommand = None,
    model: Annotated[str | None, typer.Option(help="Name of the model to run, for a bundle.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run a package on your own inputs."""
    with errors_shown(as_json, debug):
        from tvm_ext.command_line.package_commands import check_result_file, write_result_file
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
app.command("demo")(demo_command)
app.command("doctor", cls=Command)(doctor_command)
app.command("explain", cls=Command)(explain_command)

app.command("platforms", cls=Command)(platforms_command)
