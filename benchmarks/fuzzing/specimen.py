"""Specimens: whole inputs of the compiler as plain data, so that a case can be run, shrunk, kept and printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ModelSpecimen:
    """A model file and how it is to be compiled.

    platform: a shipped one's name, or the text of a TOML file. options: of `BuildOptions`, by name. ram_part: the
    default memory's limit as a part of what the model takes without one. calibration: an .npz file. is_valid: the
    file is what it should be, so that failing verification is a defect. checks: reference runtimes beside the format's
    runtime, names of `cross_checks.CHECKS`; `none`, where nobody is asked, `load`, where it is only read.
    """

    model: bytes
    suffix: str = ".onnx"
    platform: str | bytes = "host"
    options: Mapping[str, Any] = field(default_factory=dict)
    ram_part: float | None = None
    calibration: bytes | None = None
    is_valid: bool = False
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CommandSpecimen:
    """A command line, and the files it finds in its working folder, by their paths there.

    is_read_only: what it names is read, and nothing is compiled.
    """

    arguments: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    is_read_only: bool = False


Specimen = ModelSpecimen | CommandSpecimen
