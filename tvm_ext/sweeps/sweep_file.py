"""The sweep file SWEEP.toml: models, platforms and options, read as untrusted input."""

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
"""Limit of the files and folders that the patterns of a sweep file may visit."""

Label = Annotated[str, Field(min_length=1, max_length=100)]
Names = Annotated[tuple[FileName, ...], Field(min_length=1, max_length=10_000, strict=False)]


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class SweepFile:
    """Content of a sweep file.

    models: files, or patterns such as `candidates/*.onnx`, relative to the folder of the sweep file. options: sets of
    options by name, with the keys of a model in a bundle. shapes, calibration: for all models. tier: `estimate` or
    `full`.
    """

    models: Names
    platforms: Names
    options: dict[Label, BundledOptions] = field(default_factory=dict[str, BundledOptions])
    shapes: dict[str, Annotated[tuple[Extent, ...], Field(max_length=64, strict=False)]] | None = None
    calibration: FileName | None = None
    tier: Literal["estimate", "full"] = "estimate"

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and check a sweep file. Raises BadInput."""
        table = read_table(path, "sweep", BadInput)
        try:
            return TypeAdapter(cls).validate_json(json.dumps(table))
        except (TypeError, ValueError) as error:  # json cannot write dates and very long integers
            if isinstance(error, ValidationError):
                raise BadInput(f"{path}: {explained(error, _allowed, renamed_options(OPTIONS))}") from None
            raise BadInput(f"{path} is not a valid sweep file: {shortened(error)}.") from None

    def sweep_models(self, folder: Path) -> Iterator[SweepModel]:
        """Yield the models. The files of a pattern are in the order of their names.

        Raises BadInput for a pattern that visits too many files, or matches no file.
        """
        calibration = folder / self.calibration if self.calibration else None
        for path in matched(self.models, folder, limited=True):
            yield SweepModel(source=path, shapes=self.shapes, calibration=calibration)

    def platform_names(self, folder: Path) -> list[str]:
        """Return the names of shipped platforms, and the paths of platform files. folder: of the sweep file."""
        return [str(folder / one) if one.endswith(".toml") or "/" in one else one for one in self.platforms]

    def build_options(self) -> Mapping[str, BuildOptions]:
        """Return the sets of options by name; the defaults if the file has none. Raises BadOptions."""
        keys = BundledOptions.__dataclass_fields__
        named = {name: BuildOptions(**{key: getattr(one, key) for key in keys}) for name, one in self.options.items()}
        return named or {"default": BuildOptions()}


def matched(patterns: tuple[str, ...], folder: Path, *, limited: bool = False) -> list[Path]:
    """Return the files that patterns match, each once, in the order of the patterns and then of names.

    limited: True for untrusted patterns, which may only visit a limited number of files and follow no links to folders.

    Raises BadInput for a pattern that matches no file, or that visits too many files.
    """
    found, allowed = dict[Path, None](), iter(range(_MOST_ENTRIES))
    for pattern in patterns:
        if limited and has_magic(pattern):
            names = _walked(pattern, folder, allowed)
        else:
            names = sorted(map(Path, glob(os.path.join(escape(str(folder)), pattern), recursive=True)))
        if not names:
            raise BadInput(f"{pattern}: matches no file in {folder}; give model files, or a pattern: models/*.onnx.")
        found.update(dict.fromkeys(names))
    return list(found)


def _walked(pattern: str, folder: Path, allowed: Iterator[int]) -> list[Path]:
    """Return the files that a pattern with wildcards matches. allowed: has an item for each entry that may be visited.

    Raises BadInput.
    """
    parts = PurePosixPath(pattern).parts
    first = next(index for index, part in enumerate(parts) if has_magic(part))
    begin, rest = folder.joinpath(*parts[:first]), parts[first:]
    if ".." in rest:
        raise BadInput(f"{pattern}: .. cannot follow a wildcard; name the folder of the models.")
    found, waiting = set[Path](), [(begin, rest)]
    known = {*waiting}
    while waiting:
        place, left = waiting.pop()
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if next(allowed, None) is None:
                    raise BadInput(
                        f"{pattern}: the patterns of this file visit more than {_MOST_ENTRIES:,} files and folders; "
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
    """Return the rest of a pattern below an entry of this name, for each possible match; empty without a match.

    `**` matches any number of folders, so it stays in one of the rests. Hidden entries only match patterns with a dot.
    """
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
    """Return the keys that are allowed in the table at a location."""
    table: Any = BundledOptions if len(location) > 1 else SweepFile
    return list(table.__dataclass_fields__)
