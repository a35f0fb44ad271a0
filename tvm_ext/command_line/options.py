"""Options and arguments that several commands share: their types, and the values of their texts."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, cast

import typer

from tvm_ext.core.files.read_file import read_file
from tvm_ext.core.options import Target
from tvm_ext.core.shipped import shipped_names
from tvm_ext.core.sizes import parse_size, size_problem

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


_MOST_LABEL_BYTES = 1 << 20


def parse_shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
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


def parse_bindings(texts: list[str]) -> dict[str, float | list[float]]:
    """`["sr=16000", "k=1,2"]` to `{"sr": 16000, "k": [1, 2]}`; the last `=` divides."""
    values: dict[str, float | list[float]] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            parts = [_number(part) for part in numbers.split(",")]
        except ValueError:
            parts = []
        if not name or not parts:
            raise typer.BadParameter(f"{text!r} is not of the form IN=16000 or IN=1,2,3.", param_hint="--bind")
        if name in values:
            raise typer.BadParameter(f"input {name!r} is given twice.", param_hint="--bind")
        values[name] = parts if len(parts) > 1 else parts[0]
    return values


def _number(text: str) -> float:
    """A number; `true` and `false` are 1 and 0. Raises ValueError."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return int(word == "true")
    return int(word) if re.fullmatch(r"[+-]?[0-9]{1,20}", word) else float(word)


def parse_states(texts: list[str] | None) -> dict[str, str] | None:
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


def parse_hop(text: str | None) -> tuple[dict[str, int] | None, dict[str, int] | None]:
    """`x=1@2` to `{"x": 1}` and `{"x": 2}`."""
    if text is None:
        return None, None
    name, _, numbers = text.rpartition("=")
    found = re.fullmatch(r"([0-9]{1,9})(@(-?[0-9]{1,2}))?", numbers)
    if not name or not found:
        raise typer.BadParameter(
            f"{text!r} is not of the form INPUT=FRAMES or INPUT=FRAMES@AXIS.", param_hint="--new-frames"
        )
    return {name: int(found[1])}, {name: int(found[3])} if found[3] else None


def parse_ram(texts: list[str]) -> dict[str, int]:
    """`["64KiB", "dtcm=16384"]` to `{"": 65536, "dtcm": 16384}`."""
    limits: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        found = parse_size(size)
        if "=" in text and not name:
            raise typer.BadParameter(f"{text!r} is not of the form 64KiB or dtcm=16KiB.", param_hint="--ram")
        if found is None:
            raise typer.BadParameter(f"{size!r} {size_problem(size)}", param_hint="--ram")
        if name in limits:
            raise typer.BadParameter(f"{name or 'the default memory'} is given twice.", param_hint="--ram")
        limits[name] = found
    return limits


def parse_bytes(text: str | None, option: str) -> int | None:
    """`"32KiB"` to 32768; None where nothing is said. option: name for messages."""
    found = None if text is None else parse_size(text)
    if text is not None and found is None:
        raise typer.BadParameter(f"{text!r} {size_problem(text)}", param_hint=option)
    return found


def parse_pins(texts: list[str]) -> dict[str, int]:
    """`["input=0", "x=0x40"]` to `{"input": 0, "x": 64}`."""
    pins = _pairs(texts, "input=0", "--pin", r"[0-9]{1,15}|0x[0-9a-fA-F]{1,12}")
    return {name: int(offset, 16 if offset.startswith("0x") else 10) for name, offset in pins.items()}


def parse_places(texts: list[str]) -> dict[str, str]:
    """`["image=dtcm"]` to `{"image": "dtcm"}`."""
    return _pairs(texts, "input=dtcm", "--place-port")


def parse_renames(texts: list[str]) -> dict[str, str]:
    """`["serving_default_x:0=image"]` to `{"serving_default_x:0": "image"}`."""
    return _pairs(texts, "OLD=NEW", "--rename")


def _pairs(texts: list[str], form: str, option: str, value: str = r".+") -> dict[str, str]:
    """Names and values of an option that may be repeated. The last `=` separates them, because names may contain one.

    form: an example for the error message. value: pattern that every value has to match.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, given = text.rpartition("=")
        if not name or not re.fullmatch(value, given):
            raise typer.BadParameter(f"{text!r} is not of the form {form}.", param_hint=option)
        if name in found:
            raise typer.BadParameter(f"{name!r} is given twice.", param_hint=option)
        found[name] = given
    return found


def parse_inputs(texts: list[str]) -> dict[str, str]:
    """`["x=nhwc,uint8,mean=127.5"]` to `{"x": "nhwc,uint8,mean=127.5"}`; the first `=` behind which a form stands."""
    forms: dict[str, str] = {}
    for text in texts:
        found = re.fullmatch(r"(.+?)=((?:nhwc|uint8|mean=[^,=]*|std=[^,=]*)(?:,.*)?)", text)
        if found is None:
            raise typer.BadParameter(f"{text!r} is not of the form NAME=nhwc,uint8.", param_hint="--input")
        name, form = found.groups()
        if name in forms:
            raise typer.BadParameter(f"input {name!r} is given twice.", param_hint="--input")
        forms[name] = form
    return forms


def read_labels(file: str | None) -> tuple[str, ...]:
    """The lines of a file, without empty ones at its end; nothing without a file."""
    if file is None:
        return ()
    try:
        text = read_file(Path(file), most_bytes=_MOST_LABEL_BYTES).decode("utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{file}: cannot be read: {error.strerror}.", param_hint="--labels") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{file}: is not UTF-8 text.", param_hint="--labels") from None
    return tuple(line.strip() for line in text.rstrip().splitlines())


def parse_verify(text: str | None) -> tuple[Target, ...] | None:
    """`"host,qemu"` to both, `"none"` to neither; None where nothing is said."""
    if text is None:
        return None
    if text == "none":
        return ()
    targets = tuple(part.strip() for part in text.split(","))
    if not set(targets) <= {"host", "qemu"} or len(set(targets)) != len(targets):
        raise typer.BadParameter(f"{text!r} is none of: host,qemu; host; qemu; none.", param_hint="--verify")
    return cast("tuple[Target, ...]", targets)
