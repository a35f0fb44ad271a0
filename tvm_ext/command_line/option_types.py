"""Options and arguments of the commands, as typer reads them and as `--help` tells of them."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from tvm_ext.core.shipped import shipped_names

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of tables.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A compiled package.")]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Allow larger models, as in tensor_bytes=1GiB. May be repeated.",
        rich_help_panel="Model",
    ),
]
Jobs = Annotated[int, typer.Option(min=1, metavar="N", help="Processes that work at once.")]
BuildJobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="How many work at once: processes that make the model fit, C compilers, runs. "
        "Default: all processors for compilers and runs, one process.",
    ),
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="tcp://HOST:PORT", help="A cluster of dask.distributed, in their place.")
]
Bind = Annotated[
    list[str] | None,
    typer.Option(
        metavar="IN=16000",
        help="Give an input of an .onnx file its value for good, such as one that only selects. May be repeated.",
        rich_help_panel="Model",
    ),
]
Shape = Annotated[
    list[str] | None,
    typer.Option(metavar="IN=1,3,96,96", help="Fix an input's shape; may be repeated.", rich_help_panel="Model"),
]
Calibration = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz",
        rich_help_panel="Quantization",
        help="Samples: an array [N, ...] per input, and labels [N] if there are any.",
    ),
]
State = Annotated[
    list[str] | None,
    typer.Option(
        metavar="IN=OUT",
        help="Keep an output for the next run, which finds it in this input; `none`: nothing, whatever names say. May "
        "be repeated.",
        rich_help_panel="Model",
    ),
]
_platform = typer.Option(
    "--platform",
    "-p",
    help="A shipped platform's, board's or chip's name, or a .toml file.",
    rich_help_panel="Model",
    autocompletion=shipped_names,
)
_output = typer.Option(
    "--output", "-o", metavar="DIR", help="Folder of the package; replaced.", rich_help_panel="Output"
)
OnPlatform = Annotated[str, _platform]
OnPlatformOrProject = Annotated[str | None, _platform]
"""None: as the project's file says."""
Output = Annotated[Path, _output]
OutputOrProject = Annotated[Path | None, _output]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tvm-ext {version('tvm-ext')}")
        raise typer.Exit


Verify = Annotated[
    str | None,
    typer.Option(
        metavar="host,qemu|host|none",
        help="Where to run and compare. Default: host, and qemu where the platform has a board and QEMU is there.",
        rich_help_panel="Verification",
    ),
]
VerifyOn = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz",
        help="Compare on these: an array per input, of one sample or of N along a first axis.",
        rich_help_panel="Verification",
    ),
]
RunnerCommand = Annotated[
    str | None,
    typer.Option(
        "--runner",
        metavar="'COMMAND {elf}'",
        help="Run firmware on a device by this command, which serves semihosting, in place of QEMU; no shell reads it.",
        rich_help_panel="Verification",
    ),
]
Initial = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz",
        help="With --state: values that they begin with, by input; else zeros.",
        rich_help_panel="Model",
    ),
]
Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]
