"""SWEEP.toml: models, platforms and options of a sweep; read, checked, trusted in nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from fnmatch import fnmatchcase
from glob import escape, glob, has_magic
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from tvm_ext.core.bundle_file import BundledOptions, Extent, FileName
from tvm_ext.core.errors import BadInput
from tvm_ext.core.files.user_tables import Location, explained, read_table, shortened
from tvm_ext.core.option_table import renamed_options
from tvm_ext.core.options import OPTIONS, BuildOptions
from tvm_ext.sweeps.candidates import SweepModel

_CONFIG = ConfigDict(extra="forbid", strict=True)

_MOST_ENTRIES = 100_000
"""Files and folders that the patterns of a file may go through."""

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
                raise BadInput(f"{path}: {explained(error, _allowed, renamed_options(OPTIONS))}") from None
            raise BadInput(f"{path}: is no table of a sweep: {shortened(error)}.") from None

    def sweep_models(self, folder: Path) -> Iterator[SweepModel]:
        """Its models, patterns matched in order of names.

        Raises BadInput for a pattern that goes through too many files, or matches nothing.
        """
        calibration = folder / self.calibration if self.calibration else None
        for path in matched(self.models, folder, limited=True):
            yield SweepModel(source=path, shapes=self.shapes, calibration=calibration)

    def platform_names(self, folder: Path) -> list[str]:
        """Names of shipped platforms; files of the user's, from the file's folder on."""
        return [str(folder / one) if one.endswith(".toml") or "/" in one else one for one in self.platforms]

    def build_options(self) -> Mapping[str, BuildOptions]:
        """Options by name; the defaults where there are none. Raises BadOptions."""
        keys = BundledOptions.__dataclass_fields__
        named = {name: BuildOptions(**{key: getattr(one, key) for key in keys}) for name, one in self.options.items()}
        return named or {"default": BuildOptions()}


def matched(patterns: tuple[str, ...], folder: Path, *, limited: bool = False) -> list[Path]:
    """Files that patterns match, each once, in the order of the patterns, then of names.

    limited: the patterns may be anybody's. They go through a limited number of files, and follow no links to folders.

    Raises BadInput for a pattern that matches nothing, or that goes through too many files.
    """
    found, allowed = dict[Path, None](), iter(range(_MOST_ENTRIES))
    for pattern in patterns:
        if limited and has_magic(pattern):
            names = _walked(pattern, folder, allowed)
        else:
            names = sorted(map(Path, glob(os.path.join(escape(str(folder)), pattern), recursive=True)))
        if not names:
            raise BadInput(f"{pattern}: matches no file in {folder}; give models, or a pattern: models/*.onnx.")
        found.update(dict.fromkeys(names))
    return list(found)


def _walked(pattern: str, folder: Path, allowed: Iterator[int]) -> list[Path]:
    """Files that a pattern with wildcards matches. allowed: one for each entry that it may look at. Raises BadInput."""
    parts = PurePosixPath(pattern).parts
    first = next(index for index, part in enumerate(parts) if has_magic(part))
    begin, rest = folder.joinpath(*parts[:first]), parts[first:]
    if ".." in rest:
        raise BadInput(f"{pattern}: .. does not follow a wildcard; name the folder of the models.")
    found, waiting = set[Path](), [(begin, rest)]
    known = {*waiting}
    while waiting:
        place, left = waiting.pop()
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if next(allowed, None) is None:
                    raise BadInput(
                        f"{pattern}: patterns of this file go through more than {_MOST_ENTRIES:,} files and folders; "
                        "name the folder of the models, such as candidates/*.onnx."
                    )
                path, is_folder = place / entry.name, entry.is_dir(follow_symlinks=False)
                below = _rests(left, entry.name)
                if () in below and not is_folder:
                    found.add(path)
                for rest in below if is_folder else ():
                    if rest and (path, rest) not in known:
                        known.add((path, rest))
                        waiting.append((path, rest))
    return sorted(found)


def _rests(parts: tuple[str, ...], name: str) -> set[tuple[str, ...]]:
    """Parts of a pattern that are left below an entry of that name, for each way to match it; none for no match."""
    first, rest = parts[0], parts[1:]
    is_hidden = name.startswith(".") and not first.startswith(".")
    found = set[tuple[str, ...]]()
    if first == "**":
        found |= {()} if not rest and not is_hidden else _rests(rest, name) if rest else set()
        found |= set() if is_hidden else {parts}
    elif not is_hidden and fnmatchcase(name, first):
        found.add(rest)
    return found


def _allowed(location: Location) -> list[str]:
    """Keys of the table that a location is in."""
    table: Any = BundledOptions if len(location) > 1 else SweepFile
    return list(table.__dataclass_fields__)
