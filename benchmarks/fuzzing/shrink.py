"""Makes a failing specimen smaller for as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import onnx

from benchmarks.fuzzing.shrink_onnx import smaller_models
from benchmarks.fuzzing.shrink_tflite import smaller_files
from benchmarks.fuzzing.specimen import CommandSpecimen, ModelSpecimen, Specimen

_PLAIN = {"io": "arena", "optimize": "speed", "least_scratch": False, "memories": "default"}


def shrunk(specimen: Specimen, fails: Callable[[Specimen], bool], *, most_tries: int = 300) -> Specimen:
    """The smallest specimen found: the first smaller one that fails is taken, until none does or tries are spent."""
    tries, is_smaller = 0, True
    while is_smaller and tries < most_tries:
        is_smaller = False
        for candidate in _smaller(specimen):
            tries += 1
            if fails(candidate):
                specimen, is_smaller = candidate, True
                break
            if tries >= most_tries:
                break
    return specimen


def _smaller(specimen: Specimen) -> Iterator[Specimen]:
    """Smaller specimens: options first, so that the others compile faster; then the file."""
    if isinstance(specimen, CommandSpecimen):
        yield from _smaller_commands(specimen)
        return
    yield from _plainer(specimen)
    for data in _smaller_data(specimen.model, specimen.suffix):
        yield replace(specimen, model=data)
    if isinstance(specimen.platform, bytes):
        for data in smaller_bytes(specimen.platform, b"\n"):
            yield replace(specimen, platform=data)
    if specimen.calibration is not None:
        for data in smaller_bytes(specimen.calibration):
            yield replace(specimen, calibration=data)


def _smaller_data(data: bytes, suffix: str) -> Iterator[bytes]:
    if suffix == ".onnx":
        try:
            yield from smaller_models(onnx.load_from_string(data))
            return
        except Exception:  # damaged: bytes are all that is known of it
            pass
    if suffix == ".tflite":
        yield from smaller_files(data)
    yield from smaller_bytes(data)


def _plainer(specimen: ModelSpecimen) -> Iterator[ModelSpecimen]:
    if isinstance(specimen.platform, bytes) or specimen.platform != "host":
        yield replace(specimen, platform="host")
    if specimen.checks and specimen.checks != ("none",):
        yield replace(specimen, checks=())
        for check in specimen.checks if len(specimen.checks) > 1 else ():
            yield replace(specimen, checks=(check,))
    if specimen.ram_part is not None:
        yield replace(specimen, ram_part=None)
    if specimen.options.get("quantize", "none") != "none":
        kept = {key: value for key, value in specimen.options.items() if key not in ("quantize", "io_type")}
        yield replace(specimen, options=kept, calibration=None)
    for key in ("pin", "keep"):
        if specimen.options.get(key):
            yield replace(specimen, options={k: v for k, v in specimen.options.items() if k != key})
    for key, value in _PLAIN.items():
        if specimen.options.get(key, value) != value:
            yield replace(specimen, options={**specimen.options, key: value})


def _smaller_commands(specimen: CommandSpecimen) -> Iterator[CommandSpecimen]:
    arguments = specimen.arguments
    for at in range(1, len(arguments)):
        for count in (2, 1):
            yield replace(specimen, arguments=(*arguments[:at], *arguments[at + count :]))
    for name, content in specimen.files.items():
        yield replace(specimen, files={key: value for key, value in specimen.files.items() if key != name})
        if not name.endswith((".c", ".h")):
            for data in smaller_bytes(content):
                yield replace(specimen, files={**specimen.files, name: data})


def smaller_bytes(data: bytes, between: bytes = b"") -> Iterator[bytes]:
    """The data without halves, quarters and so on; parts end where `between` stands."""
    parts: list[Any] = data.split(between) if between else [data[i : i + 1] for i in range(len(data))]
    size = max(1, len(parts) // 2)
    while parts:
        for begin in range(0, len(parts), size):
            yield between.join(parts[:begin] + parts[begin + size :])
        if size == 1:
            return
        size //= 2
