"""What `tvm-ext compile` is asked for: by its arguments, and by the project's file, over which arguments go."""

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


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A model, its platform, where the package goes, and how. values: of `FILE_KEYS`, where any is given."""

    model: Path
    platform: tvm_ext.Platform
    output: Path
    options: BuildOptions
    values: Mapping[str, Any]


VALUES = ("shapes", "bind", "states", "initial", "calibration", "verify_inputs")
"""Arguments that are no options of a build: a project's file has them as keys of its model."""
_FILES = ("initial", "calibration", "verify_inputs")


def asked_for(
    model: Path | None,
    platform: str | None,
    output: Path | None,
    options: Mapping[str, Any],
    given: Set[str],
    values: Mapping[str, Any],
) -> Asked:
    """What the arguments ask for; without a model, or with a folder, beside what the project's file there does.

    options: all of the command line, by name; given: those that were typed. values: as `VALUES` names them, None where
    nothing is said. Raises BadOptions, BadPlatform.
    """
    if model is not None and not model.is_dir():
        chosen = _platform(platform)
        if output is None:
            raise BadOptions("-o is missing: give the folder that the package goes to, as -o out/model.")
        every = build_options(options, chosen.activations)
        return Asked(model=model, platform=chosen, output=output, options=every, values=values)
    return _of_project(model or Path(), platform, output, options, given, values)


def _of_project(
    folder: Path,
    platform: str | None,
    output: Path | None,
    options: Mapping[str, Any],
    given: Set[str],
    values: Mapping[str, Any],
) -> Asked:
    from tvm_ext.core.project_file import PROJECT_FILE, ProjectFile  # pydantic, which other commands do not wait for

    if not (folder / PROJECT_FILE).is_file():
        raise BadOptions(
            f"MODEL is missing, and {folder.resolve()} holds no {PROJECT_FILE}: give a model's file, or make a project "
            "by `tvm-ext init`."
        )
    project = ProjectFile.load(folder)
    chosen = _platform(platform or project.platform_name)
    of_file = {name: project.path_of(name) if name in _FILES else getattr(project.model, name) for name in VALUES}
    file = project.path_of("file")
    assert file is not None, "each model has a file"
    typed = build_options(options, chosen.activations)
    fields = {*given, *(["time_axis"] if "new_frames" in given else [])}
    return Asked(
        model=file,
        platform=chosen,
        output=output or project.output_folder,
        options=replace(project.build_options(), **{name: getattr(typed, name) for name in fields}),
        values={name: of_file[name] if values[name] is None else values[name] for name in VALUES},
    )


def _platform(name: str | None) -> tvm_ext.Platform:
    if name is None:
        raise BadOptions(f"-p is missing: choose one of {choices()}.")
    return tvm_ext.Platform.load(name)
