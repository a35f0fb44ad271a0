"""Interface of a package from its report.json, checked for consistency and against the package's header.

A report is read from disk and is not trusted. The sizes in it decide how much memory a run reads.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from codegen_c.c_text.text import C_TYPES
from codegen_c.emit.header import describe_type
from codegen_c.emit.stream import streamed
from codegen_c.operators.kinds import Quantization, Rounding
from codegen_c.program.interface import Interface, Port, StreamedPort
from tvm_ext.core.errors import BadPackage
from tvm_ext.core.options import Context, Io

_CONFIG = ConfigDict(extra="ignore", strict=True)
_MOST_BYTES = 1 << 31

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Extent = Annotated[int, Field(ge=0, lt=1 << 31)]
Rows = Annotated[int, Field(ge=1, lt=1 << 31)]


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class _Stream:
    rows: Rows
    rows_kept: Extent
    rows_per_call: Rows
    layout: Annotated[tuple[Extent, ...], Field(max_length=64)]
    strips: Annotated[tuple[tuple[Extent, Extent], ...], Field(max_length=1024)] = ()


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class _Port:
    name: str
    c_name: Identifier
    shape: Annotated[tuple[Extent, ...], Field(max_length=64)]
    dtype: str
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    zero_point: Annotated[int, Field(ge=-(1 << 31), lt=1 << 32)] | None
    layout: Annotated[str, Field(pattern=r"^[A-Z]{1,8}$")] | None = None
    stream: _Stream | None = None


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class _Model:
    name: Identifier
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class _Options:
    io: Io
    context: Context = "static"


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class _Artifacts:
    elf: str | None


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class _Step:
    modelled_instructions: Annotated[int, Field(ge=0, lt=1 << 62)] | None


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class _Runner:
    """A processor that runs steps. driver: header of the interface of an accelerator, which has no serve function."""

    name: Identifier
    driver: str | None = None


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class BundleNames:
    """Names of a bundle and of its models, in the bundle's order, from the report of one of the models.

    processors: those beside the first on which its firmware runs.
    """

    name: Identifier
    models: Annotated[tuple[Identifier, ...], Field(min_length=1, max_length=256)]
    processors: Annotated[tuple[Identifier, ...], Field(max_length=16)] = ()


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class _Report:
    model: _Model
    platform: str
    options: _Options
    inputs: tuple[_Port, ...]
    outputs: tuple[_Port, ...]
    artifacts: _Artifacts
    steps: tuple[_Step, ...]
    state_bytes: Annotated[int, Field(ge=0, lt=_MOST_BYTES)] = 0
    warm_up_runs: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    context_bytes: Annotated[int, Field(ge=0, lt=_MOST_BYTES)] = 0
    bundle: BundleNames | None = None
    processors: Annotated[tuple[_Runner, ...], Field(max_length=16)] = ()
    in_flight: Annotated[int, Field(ge=1, le=16)] = 1


def interface_of(report: Mapping[str, Any]) -> Interface:
    """Return the interface of the package's C code. Raises BadPackage for a report that is not consistent."""
    checked = _checked(report)
    interface = Interface(
        model=checked.model.name, io=checked.options.io,
        inputs=tuple(map(_port, checked.inputs)), outputs=tuple(map(_port, checked.outputs)),
        state_bytes=checked.state_bytes, warm_up_runs=checked.warm_up_runs,
        context=checked.options.context, context_bytes=checked.context_bytes,
        servers=tuple(runner.name for runner in checked.processors[1:] if runner.driver is None),
        in_flight=checked.in_flight, rounding=checked.model.rounding,
    )  # fmt: skip
    for what in ("name", "source"):
        sides = [interface.inputs + interface.outputs] if what == "name" else [interface.inputs, interface.outputs]
        for side in sides:
            names = [getattr(port, what) for port in side]
            if len(set(names)) < len(names):
                raise _damaged(f"two inputs or outputs have the same name: {', '.join(names)}")
    if interface.io == "stream" and not streamed(interface):
        raise _damaged("io = 'stream', but no input or output is streamed")
    if interface.holds_context != (interface.context_bytes > 0):
        raise _damaged(f"context = {interface.context!r} contradicts an instance of {interface.context_bytes} B")
    return interface


def modelled_instructions(report: Mapping[str, Any]) -> int:
    """Return the modelled instructions of one run, summed over all steps. Raises BadPackage for a damaged report."""
    return sum(step.modelled_instructions or 0 for step in _checked(report).steps)


def bundle_names(report: Mapping[str, Any]) -> BundleNames | None:
    """Return the names of the bundle that a model is part of; None for a single model.

    Raises BadPackage for a damaged report.
    """
    return _checked(report).bundle


def firmware_of(folder: Path, report: Mapping[str, Any]) -> Path | None:
    """Return the path of the package's ELF file; None if the package has no firmware.

    Raises BadPackage if the file is missing or is the firmware of another model.
    """
    checked = _checked(report)
    if checked.artifacts.elf is None:
        return None
    name = PurePosixPath(checked.artifacts.elf)
    path = folder / name
    if name.is_absolute() or ".." in name.parts or "\0" in str(name) or not _is_inside(path, folder):
        raise _damaged(f"artifacts.elf = {str(name)!r}: is not a file of the package")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadPackage(f"{path}: cannot be read: {error.strerror}; compile the model again.") from None
    if not _defines(data, f"{checked.model.name}_run".encode()):
        raise BadPackage(f"{path}: is not the firmware of {checked.model.name}; compile the model again.")
    return path


def _defines(program: bytes, function: bytes) -> bool:
    """Return True for a program with the name of a function: an ELF file, or a module whose names have their length."""
    if program.startswith(b"\x7fELF"):
        return function + b"\0" in program
    return program.startswith(b"\0asm") and bytes([len(function)]) + function in program


def check_header(folder: Path, interface: Interface) -> None:
    """Raise BadPackage if the inputs and outputs in the package's header differ in number, shape or type.

    Before a run on the host a compiler checks sizes and C types again.
    """
    path = folder / f"{interface.model}.h"
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # lines of a comment begin with a star
        text = " ".join(" ".join(line.strip().removeprefix("* ") for line in lines).split())
    except OSError as error:
        raise BadPackage(f"{path}: cannot be read: {error.strerror}; compile the model again.") from None
    except UnicodeDecodeError:
        raise BadPackage(f"{path}: is not UTF-8 text; compile the model again.") from None
    ports = (*interface.inputs, *interface.outputs)
    sizes = {interface.size_macro(port): port.num_elements for port in ports}
    for _, port in streamed(interface):
        assert port.stream is not None, "the port is streamed"
        sizes[interface.row_macro(port)] = port.num_elements // port.stream.rows
    found = re.findall(rf"#define ({interface.model.upper()}_\w+_SIZE) (\d{{1,19}})\b", text)
    if {name: int(number) for name, number in found} != sizes:
        raise _disagrees(path, ", ".join(f"{name} {size}" for name, size in sizes.items()))
    for name, num_bytes in (
        (interface.state_bytes_name, interface.state_bytes), (interface.context_bytes_name, interface.context_bytes),
        (interface.in_flight_name, interface.in_flight if interface.is_pipeline else 0),
    ):  # fmt: skip
        defined = re.findall(rf"#define {name} (\d{{1,19}})u\b", text)
        if list(map(int, defined)) != ([num_bytes] if num_bytes else []):
            raise _disagrees(path, f"{name} = {num_bytes}")
    if re.findall(rf"\bvoid {interface.model}_serve_(\w+)\(void\);", text) != list(interface.servers):
        raise _disagrees(path, f"the serving processors {', '.join(interface.servers) or 'none'}")
    # With io = 'stream' an input that nothing reads is not passed at all; the header only has its size.
    described = [port for _, port in streamed(interface)] if interface.io == "stream" else ports
    for port in described:
        if f"{describe_type(port)}, in the model" not in text:
            raise _disagrees(path, f"{port.name}: {describe_type(port)}")


def _checked(report: Mapping[str, Any]) -> _Report:
    try:
        known = {key: report[key] for key in _Report.__dataclass_fields__ if key in report}
        return TypeAdapter(_Report).validate_json(json.dumps(known))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise _damaged(f"{key} = {str(first['input'])[:60]!r}: {first['msg']}") from None
    except RecursionError:
        raise _damaged("it is nested too deeply") from None


def _port(entry: _Port) -> Port:
    key = f"{entry.name[:60]!r}"
    if entry.dtype not in C_TYPES:
        raise _damaged(f"{key} is of type {entry.dtype[:60]!r}; the known types are {', '.join(C_TYPES)}")
    if (entry.scale is None) != (entry.zero_point is None):
        raise _damaged(f"{key} has only one of scale and zero_point")
    count = math.prod(entry.shape)
    if count * 8 > _MOST_BYTES:
        raise _damaged(f"{key} has the shape {list(entry.shape)}, which is more than 2 GiB")
    stream = entry.stream
    if stream and (sorted(stream.layout) != list(range(len(entry.shape))) or count % stream.rows or not count):
        raise _damaged(f"{key} of shape {list(entry.shape)} cannot be streamed as {stream}")
    if stream and stream.strips and not _are_strips(stream, entry.shape):
        raise _damaged(f"{key} of shape {list(entry.shape)} cannot have the strips {list(stream.strips)[:8]}")
    return Port(
        name=entry.c_name, source=entry.name, shape=entry.shape, dtype=entry.dtype,
        quantization=None
        if entry.scale is None or entry.zero_point is None
        else Quantization(scale=entry.scale, zero_point=entry.zero_point),
        layout=entry.layout or "",
        stream=StreamedPort(
            rows=stream.rows, rows_kept=stream.rows_kept, rows_per_call=stream.rows_per_call, layout=stream.layout,
            strips=stream.strips,
        )
        if stream
        else None,
    )  # fmt: skip


def _are_strips(stream: _Stream, shape: tuple[int, ...]) -> bool:
    """Return True if the strips are columns of an image with the stream's number of rows."""
    if len(shape) != 4 or shape[stream.layout[0]] != 1 or shape[stream.layout[1]] != stream.rows:
        return False
    return all(begin < end <= shape[stream.layout[2]] for begin, end in stream.strips)


def _is_inside(path: Path, folder: Path) -> bool:
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def _damaged(problem: str) -> BadPackage:
    return BadPackage(f"report.json: is damaged: {problem}. Compile the model again.")


def _disagrees(path: Path, what: str) -> BadPackage:
    return BadPackage(f"{path}: differs from report.json, which has {what}. Compile the model again.")
