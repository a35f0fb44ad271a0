"""Combine the arguments of `tvm-ext compile` with the project file. Arguments take precedence."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm_ext
from tvm_ext.command_line.option_parameters import build_options
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.shipped import choices

VALUES = ("shapes", "bind", "states", "initial", "calibration", "verify_inputs")
"""Arguments that are not build options. In a project file they are keys of the model."""
_FILES = ("initial", "calibration", "verify_inputs")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The command line of `tvm-ext compile`; None for every argument that the user left out.

    options: all build options by name. typed: names of the options that the user typed. values: by the names in
    `VALUES`.
    """

    model: Path | None
    platform: str | None
    output: Path | None
    options: Mapping[str, Any]
    typed: Set[str]
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A complete build request. values: by the names in `VALUES`, None where nothing was given."""

    model: Path
    platform: tvm_ext.Platform
    output: Path
    options: BuildOptions
    values: Mapping[str, Any]


def asked_for(arguments: Arguments) -> Asked:
    """Return the build request. Without a model file it comes from the project file in the given or current folder.

    Raises BadOptions, BadPlatform.
    """
    if arguments.model is None or arguments.model.is_dir():
        return _from_project(arguments.model or Path(), arguments)
    platform = _platform(arguments.platform)
    if arguments.output is None:
        raise BadOptions("-o is missing: give the folder that the package goes to, as -o out/model.")
    return Asked(
        model=arguments.model,
        platform=platform,
        output=arguments.output,
        options=build_options(arguments.options, platform.activations),
        values=arguments.values,
    )


def _from_project(folder: Path, arguments: Arguments) -> Asked:
    from tvm_ext.core.project_file import (  # imports pydantic, which other commands do not need
        PROJECT_FILE,
        ProjectFile,
    )

    if not (folder / PROJECT_FILE).is_file():
        raise BadOptions(
            f"MODEL is missing, and {folder.resolve()} holds no {PROJECT_FILE}: give a model's file, or make a project "
            "by `tvm-ext init`."
        )
    project = ProjectFile.load(folder)
    platform = _platform(arguments.platform or project.platform_name)
    in_file = {name: project.path_of(name) if name in _FILES else getattr(project.model, name) for name in VALUES}
    model = project.path_of("file")
    assert model is not None, "every model table has a file"
    # Only typed options override the file: a default of the command line is not a choice of the user's.
    options = build_options(arguments.options, platform.activations)
    overridden = {*arguments.typed, *(["time_axis"] if "new_frames" in arguments.typed else [])}
    return Asked(
        model=model,
        platform=platform,
        output=arguments.output or project.output_folder,
        options=replace(project.build_options(), **{name: getattr(options, name) for name in overridden}),
        values={name: in_file[name] if value is None else value for name, value in arguments.values.items()},
    )


def _platform(name: str | None) -> tvm_ext.Platform:
    if name is None:
        raise BadOptions(f"-p is missing: choose one of {choices()}.")
    return tvm_ext.Platform.load(name)
