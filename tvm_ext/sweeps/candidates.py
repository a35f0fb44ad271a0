"""Candidates of a sweep: combinations of a model, a platform and options, created lazily."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tvm_ext.core.errors import BadInput, BadModel, TvmExtError
from tvm_ext.core.files.read_file import read_file
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.execution.tool_versions import tool_versions
from tvm_ext.services.job import Job

if TYPE_CHECKING:
    from tvm import IRModule

FIGURES = "tvm_ext.sweeps.figures.figures"
_MODULE = ".relax"
_MOST_BYTES = 2 << 30
"""Limit of the bytes of a model, or of its samples, which are sent to other processes as a whole."""

Label = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class SweepModel:
    """A model of a sweep. source: a file or a loaded module. name: in the table; by default the name of the file.

    shapes: as in `load`. calibration: an .npz file, for options that quantize. labels: additional columns of the user,
    such as a width, or an accuracy that was measured elsewhere.
    """

    source: str | Path | IRModule
    name: str = ""
    shapes: Mapping[str, Sequence[int]] | None = None
    calibration: str | Path | None = None
    labels: Mapping[str, Label] = field(default_factory=dict[str, Label])


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A future row of the table: its first columns, and the job for the other columns, or an error of its files."""

    model: str
    platform: str
    options: str
    labels: Mapping[str, Label]
    job: Job | TvmExtError


def candidates_of(
    models: Iterable[SweepModel], platforms: Sequence[Platform], options: Mapping[str, BuildOptions], tier: str
) -> Iterator[Candidate]:
    """Yield every combination of model, platform and options, model by model."""
    boards = [
        (
            platform.name,
            {"platform": platform.to_json(), **({"tools": tool_versions(platform)} if tier == "full" else {})},
        )
        for platform in platforms
    ]
    choices = [(name, one.to_json()) for name, one in options.items()]
    for index, model in enumerate(models):
        try:
            read = _Read.of(model, index)
        except TvmExtError as error:
            read = error
        name = model.name or _name(model, index)
        for platform, asked in boards:
            for choice, options_json in choices:
                job = read.job(tier=tier, options=options_json, **asked) if isinstance(read, _Read) else read
                yield Candidate(model=name, platform=platform, options=choice, labels=model.labels, job=job)


@dataclass(frozen=True, kw_only=True)
class _Read:
    """A model as bytes: its file, or its loaded module in JSON if it is a module or has weights in other files."""

    name: str
    suffix: str
    content: bytes
    samples: bytes
    shapes: dict[str, list[int]] | None

    @classmethod
    def of(cls, model: SweepModel, index: int) -> Self:
        """Read a model. Raises BadModel and BadInput for files that cannot be read, and the errors of `load`."""
        samples = _bytes(Path(model.calibration), BadInput) if model.calibration is not None else b""
        shapes = {key: list(shape) for key, shape in (model.shapes or {}).items()} or None
        if isinstance(model.source, str | Path):
            path = Path(model.source)
            suffix, content = path.suffix, _bytes(path, BadModel)
            if suffix.lower() == ".onnx" and b"location" in content:  # ONNX's key for weights in other files
                from tvm_ext.frontends.load import load

                suffix, content = _MODULE, _as_json(load(path, shapes=model.shapes))
        else:
            suffix, content = _MODULE, _as_json(_loaded(model))
        return cls(name=_name(model, index), suffix=suffix, content=content, samples=samples, shapes=shapes)

    def job(self, **asked: str | list[str]) -> Job:
        request = {**asked, "name": self.name, "suffix": self.suffix, "shapes": self.shapes}
        text = json.dumps(request, sort_keys=True).encode()
        return Job(function=FIGURES, inputs=(text, self.content, self.samples))


def _name(model: SweepModel, index: int) -> str:
    """Return the file's name without its suffix, from which C prefixes are made; for a module, a name by its index."""
    return Path(model.source).stem if isinstance(model.source, str | Path) else f"model_{index}"


def _loaded(model: SweepModel) -> IRModule:
    """Return the module of a model that is not a file. Raises the errors of `load`."""
    import tvm

    from tvm_ext.frontends.load import load

    return model.source if isinstance(model.source, tvm.IRModule) else load(model.source, shapes=model.shapes)


def _as_json(module: IRModule) -> bytes:
    import tvm

    return tvm.ir.save_json(module).encode()


def _bytes(path: Path, refusal: type[TvmExtError]) -> bytes:
    try:
        return read_file(path, most_bytes=_MOST_BYTES)
    except OSError as error:
        raise refusal(f"{path}: cannot be read: {error.strerror}; check the path.") from None
