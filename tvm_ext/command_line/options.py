"""Options and arguments that several commands share: their declarations, and parsers for their values."""

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
        help="Raise a limit on model files, for example tensor_bytes=1GiB. May be repeated.",
        rich_help_panel="Model",
    ),
]
Jobs = Annotated[int, typer.Option(min=1, metavar="N", help="Number of parallel processes.")]
BundleJobs = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Number of parallel C compilers and runs. Default: one per processor."),
]
BuildJobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Number of parallel processes: for fitting the model, C compilers and runs. "
        "Default: one for fitting, one per processor for compilers and runs.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="tcp://HOST:PORT", help="Use a dask.distributed cluster instead of local processes."),
]
Bind = Annotated[
    list[str] | None,
    typer.Option(
        metavar="IN=16000",
        help="Make an input of an .onnx file a constant, for example a sampling rate. May be repeated.",
        rich_help_panel="Model",
    ),
]
Shape = Annotated[
    list[str] | None,
    typer.Option(metavar="IN=1,3,96,96", help="Fix an input's shape; may be repeated.", rich_help_panel="Model"),
]
SignatureName = Annotated[
    str | None,
    typer.Option(
        "--signature",
        metavar="NAME",
        help="Signature of a .tflite file with several.",
        rich_help_panel="Model",
    ),
]
Calibration = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz",
        rich_help_panel="Quantization",
        help="Calibration samples: an array [N, ...] per input, and optionally labels [N].",
    ),
]
DetectorTable = Annotated[
    Path | None,
    typer.Option(
        "--detector",
        metavar="FILE.toml",
        help="A detector's heads: the package gets <model>_boxes.h, which turns its outputs into boxes.",
        rich_help_panel="Output",
    ),
]
State = Annotated[
    list[str] | None,
    typer.Option(
        metavar="IN=OUT",
        help="Keep output OUT as a state, which input IN holds in the next run. `none`: keep no states, and do not "
        "recognize any by their names. May be repeated.",
        rich_help_panel="Model",
    ),
]
_platform = typer.Option(
    "--platform",
    "-p",
    help="The name of a platform, board or chip, or a .toml file.",
    rich_help_panel="Model",
    autocompletion=shipped_names,
)
_output = typer.Option(
    "--output", "-o", metavar="DIR", help="Folder for the package; replaced.", rich_help_panel="Output"
)
OnPlatform = Annotated[str, _platform]
OnPlatformOrProject = Annotated[str | None, _platform]
"""None: the platform of the project file."""
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
        help="Where to run and verify. Default: host, and also qemu if QEMU is installed and emulates a board of the "
        "platform.",
        rich_help_panel="Verification",
    ),
]
VerifyOn = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz",
        help="Inputs for the verification: an array per input, with one sample or with N along a first axis.",
        rich_help_panel="Verification",
    ),
]
RunnerCommand = Annotated[
    str | None,
    typer.Option(
        "--runner",
        metavar="'COMMAND {elf}'",
        help="Command that runs firmware on a device and serves semihosting, instead of QEMU; run without a shell.",
        rich_help_panel="Verification",
    ),
]
Initial = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz",
        help="With --state: initial values of the states, by input. Default: zeros.",
        rich_help_panel="Model",
    ),
]
Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]


_MOST_LABEL_BYTES = 1 << 20


def parse_shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """Parse `["x=1,3,96,96"]` to `{"x": (1, 3, 96, 96)}`. The last `=` separates, because names may contain `=`."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        parts = numbers.split(",") if numbers else []
        if not name or not all(re.fullmatch(r"\s*[0-9]{1,15}\s*", part) for part in parts):
            raise typer.BadParameter(f"{text!r} is not of the form IN=1,3,96,96.", param_hint="--shape")
        if name in shapes:
            raise typer.BadParameter(f"input {name!r} is given twice; give each input once.", param_hint="--shape")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def parse_bindings(texts: list[str]) -> dict[str, float | list[float]]:
    """Parse `["sr=16000", "k=1,2"]` to `{"sr": 16000, "k": [1, 2]}`. The last `=` separates."""
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
            raise typer.BadParameter(f"input {name!r} is given twice; give each input once.", param_hint="--bind")
        values[name] = parts if len(parts) > 1 else parts[0]
    return values


def _number(text: str) -> float:
    """Parse a number; `true` and `false` are 1 and 0. Raises ValueError."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return int(word == "true")
    return int(word) if re.fullmatch(r"[+-]?[0-9]{1,20}", word) else float(word)


def parse_states(texts: list[str] | None) -> dict[str, str] | None:
    """Parse `["h=hn"]` to `{"h": "hn"}` and `["none"]` to `{}`. Return None if the option is absent."""
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
    """Parse `x=1@2` to `{"x": 1}`, the new frames, and `{"x": 2}`, the time axis."""
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
    """Parse `["64KiB", "dtcm=16384"]` to `{"": 65536, "dtcm": 16384}`."""
    limits: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        found = parse_size(size)
        if "=" in text and not name:
            raise typer.BadParameter(f"{text!r} is not of the form 64KiB or dtcm=16KiB.", param_hint="--ram")
        if found is None:
            raise typer.BadParameter(f"{size!r} {size_problem(size)}", param_hint="--ram")
        if name in limits:
            raise typer.BadParameter(f"{name or 'the default memory'} has two limits; give one.", param_hint="--ram")
        limits[name] = found
    return limits


def parse_bytes(text: str | None, option: str) -> int | None:
    """Parse `"32KiB"` to 32768. Return None if the option is absent. option: its name, for error messages."""
    found = None if text is None else parse_size(text)
    if text is not None and found is None:
        raise typer.BadParameter(f"{text!r} {size_problem(text)}", param_hint=option)
    return found


def parse_pins(texts: list[str]) -> dict[str, int]:
    """Parse `["input=0", "x=0x40"]` to `{"input": 0, "x": 64}`."""
    pins = _pairs(texts, "input=0", "--pin", r"[0-9]{1,15}|0x[0-9a-fA-F]{1,12}")
    return {name: int(offset, 16 if offset.startswith("0x") else 10) for name, offset in pins.items()}


def parse_places(texts: list[str]) -> dict[str, str]:
    """Parse `["image=dtcm"]` to `{"image": "dtcm"}`."""
    return _pairs(texts, "input=dtcm", "--place-port")


def parse_renames(texts: list[str]) -> dict[str, str]:
    """Parse `["serving_default_x:0=image"]` to `{"serving_default_x:0": "image"}`."""
    return _pairs(texts, "OLD=NEW", "--rename")


def _pairs(texts: list[str], form: str, option: str, value: str = r".+") -> dict[str, str]:
    """Parse the NAME=VALUE texts of a repeatable option. The last `=` separates, because names may contain `=`.

    form: an example for the error message. value: pattern that every value has to match.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, given = text.rpartition("=")
        if not name or not re.fullmatch(value, given):
            raise typer.BadParameter(f"{text!r} is not of the form {form}.", param_hint=option)
        if name in found:
            raise typer.BadParameter(f"{name!r} is given twice; give each name once.", param_hint=option)
        found[name] = given
    return found


def parse_inputs(texts: list[str]) -> dict[str, str]:
    """Parse `["x=nhwc,uint8,mean=127.5"]` to `{"x": "nhwc,uint8,mean=127.5"}`.

    Both names and forms may contain `=`: the first `=` that a keyword of a form follows is the separator.
    """
    forms: dict[str, str] = {}
    for text in texts:
        found = re.fullmatch(r"(.+?)=((?:nhwc|uint8|mean=[^,=]*|std=[^,=]*)(?:,.*)?)", text)
        if found is None:
            raise typer.BadParameter(f"{text!r} is not of the form NAME=nhwc,uint8.", param_hint="--input")
        name, form = found.groups()
        if name in forms:
            raise typer.BadParameter(f"input {name!r} is given twice; give each input once.", param_hint="--input")
        forms[name] = form
    return forms


def read_labels(file: str | None) -> tuple[str, ...]:
    """Return the lines of a file without empty lines at its end; an empty tuple without a file."""
    if file is None:
        return ()
    try:
        text = read_file(Path(file), most_bytes=_MOST_LABEL_BYTES).decode("utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{file}: cannot be read: {error.strerror}.", param_hint="--labels") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{file}: the file is not UTF-8 text.", param_hint="--labels") from None
    return tuple(line.strip() for line in text.rstrip().splitlines())


def parse_verify(text: str | None) -> tuple[Target, ...] | None:
    """Parse `"host,qemu"` to both targets and `"none"` to `()`. Return None if the option is absent."""
    if text is None:
        return None
    if text == "none":
        return ()
    targets = tuple(part.strip() for part in text.split(","))
    if not set(targets) <= {"host", "qemu"} or len(set(targets)) != len(targets):
        raise typer.BadParameter(
            f"{text!r} is not valid; choose host,qemu or host or qemu or none.", param_hint="--verify"
        )
    return cast("tuple[Target, ...]", targets)
