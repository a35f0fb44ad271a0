"""SWEEP.toml: models, platforms and options of a sweep; read, checked, trusted in nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from glob import glob
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from tvm_ext.core.bundle_file import BundledOptions, Extent, FileName
from tvm_ext.core.errors import BadInput
from tvm_ext.core.files.user_tables import Location, explained, read_table, shortened
from tvm_ext.core.options import BuildOptions
from tvm_ext.sweeps.candidates import SweepModel

_CONFIG = ConfigDict(extra="forbid", strict=True)

Label = Annotated[str, Field(min_length=1, max_length=100)]
Names = Annotated[tuple[FileName, ...], Field(min_length=1, max_length=10_000, strict=False)]


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class SweepFile:
    """A sweep as its file has it.

    models: files, or patterns such as `candidates/*.onnx`, from the file's folder on. options: name -> options of a
    model, as a bundle has them. shapes, calibration: of all models. tier: `estimate` or `full`.
    """

    models: Names
    platforms: Names
    options: dict[Label, BundledOptions] = field(default_factory=dict[str, BundledOptions])
    shapes: dict[str, Annotated[tuple[Extent, ...], Field(max_length=64, strict=False)]] | None = None
    calibration: FileName | None = None
    tier: Literal["estimate", "full"] = "estimate"

    @classmethod
    def load(cls, path: Path) -> Self:
        """Raises BadInput."""
        table = read_table(path, "sweep", BadInput)
        try:
            return TypeAdapter(cls).validate_json(json.dumps(table))
        except (TypeError, ValueError) as error:  # of json: a date, an integer too long to be written
            if isinstance(error, ValidationError):
                raise BadInput(f"{path}: {explained(error, _allowed)}") from None
            raise BadInput(f"{path}: is no table of a sweep: {shortened(error)}.") from None

    def sweep_models(self, folder: Path) -> Iterator[SweepModel]:
        """Its models, patterns matched in order of names. Raises BadInput for a pattern that matches nothing."""
        calibration = folder / self.calibration if self.calibration else None
        for path in matched(self.models, folder):
            yield SweepModel(source=path, shapes=self.shapes, calibration=calibration)

    def platform_names(self, folder: Path) -> list[str]:
        """Names of shipped platforms; files of the user's, from the file's folder on."""
        return [str(folder / one) if one.endswith(".toml") or "/" in one else one for one in self.platforms]

    def build_options(self) -> Mapping[str, BuildOptions]:
        """Options by name; the defaults where there are none. Raises BadOptions."""
        keys = BundledOptions.__dataclass_fields__
        named = {name: BuildOptions(**{key: getattr(one, key) for key in keys}) for name, one in self.options.items()}
        return named or {"default": BuildOptions()}


def matched(patterns: tuple[str, ...], folder: Path) -> list[Path]:
    """Files that patterns match, each once, in the order of the patterns, then of names.

    Raises BadInput for a pattern that matches nothing.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        names = sorted(glob(str(folder / pattern), recursive=True))
        if not names:
            raise BadInput(f"{pattern}: matches no file in {folder}; give models, or a pattern: models/*.onnx.")
        found.update(dict.fromkeys(map(Path, names)))
    return list(found)


def _allowed(location: Location) -> list[str]:
    """Keys of the table that a location is in."""
    table: Any = BundledOptions if len(location) > 1 else SweepFile
    return list(table.__dataclass_fields__)
