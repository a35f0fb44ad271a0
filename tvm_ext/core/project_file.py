"""Read tvm_ext.toml, which gives the model, platform and options of a project, for `tvm-ext compile` in its folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from pydantic.dataclasses import dataclass

from tvm_ext.core.bundle_file import STRICT, FileName, ModelTable, checked, options_in_files, path_below
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.files.user_tables import read_table
from tvm_ext.core.options import OPTIONS, BuildOptions

PROJECT_FILE = "tvm_ext.toml"


if TYPE_CHECKING:
    ProjectOptions = BuildOptions
else:
    ProjectOptions = options_in_files("ProjectOptions", [one for one in OPTIONS.values() if one.name != "name"])
    """Options of the build, all but the name, which is the model's key."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ProjectFile:
    """The model, the platform, the output folder and the options of a project.

    platform: name of a shipped platform, or a .toml file in the project's folder.
    output: folder of the package, relative to the project's folder.
    detector: file of the heads of a detector, as `--detector` takes it.
    """

    platform: FileName
    model: ModelTable
    output: FileName = "package"
    detector: FileName | None = None
    options: ProjectOptions = ProjectOptions()
    folder: str = ""

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read the file of a project's folder. Raises BadOptions."""
        path = Path(folder) / PROJECT_FILE
        found = checked(cls, read_table(path, "project", BadOptions), path, _TABLES, "project", BadOptions)
        try:
            found.build_options()
        except BadOptions as error:
            raise BadOptions(f"{path}: options: {error}") from None
        return found

    def build_options(self) -> BuildOptions:
        """Return the options of the build. Raises BadOptions."""
        values = {key: getattr(self.options, key) for key in ProjectOptions.__dataclass_fields__}
        return BuildOptions(name=self.model.name, **values)

    @property
    def platform_name(self) -> str:
        """The platform in the form that `Platform.load` takes."""
        is_file = self.platform.endswith(".toml")
        return str(path_below(self.folder, self.platform, "platform", BadOptions)) if is_file else self.platform

    @property
    def output_folder(self) -> Path:
        """The folder of the package."""
        return path_below(self.folder, self.output, "output", BadOptions)

    @property
    def detector_file(self) -> Path | None:
        """The path of the detector's file, or None."""
        return None if self.detector is None else path_below(self.folder, self.detector, "detector", BadOptions)

    def path_of(self, key: str) -> Path | None:
        """Return the path of a file that the model names under `key`, or None. Raises BadOptions."""
        name = cast("str | None", getattr(self.model, key))
        return None if name is None else path_below(self.folder, name, f"model.{key}", BadOptions)


def beginning(platform: str, name: str, file: str) -> str:
    """Return the text of a new project's file.

    platform, file: names of files in its folder.
    name: a result of `project_name`.
    """
    return f"""# `tvm-ext compile` reads this in its folder; docs/command_line.md has all keys.
platform = {json.dumps(platform)}
output = "package"

[model]
name = {json.dumps(name)}
file = {json.dumps(file)}
# calibration = "samples.npz"

[options]
# quantize = "int8"
# ram = "64KiB"
"""


def project_name(file: Path) -> str:
    """Return a model's C prefix in the form that a project's file allows."""
    name = re.sub(r"[^a-z0-9_]+", "_", file.stem.lower()).strip("_")
    name = name if name[:1].isalpha() else f"model_{name}"
    return name[:32].strip("_")


_TABLES: Mapping[str, type] = {"model": ModelTable, "options": ProjectOptions}
