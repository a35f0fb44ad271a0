"""Read BUNDLE.toml, which lists the models of a package, their options, and which may run at once.

The file is untrusted: every key and value is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, Self, TypeVar, cast

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from tvm_ext.core import option_table as kinds
from tvm_ext.core.errors import BadBundle, BadOptions, TvmExtError
from tvm_ext.core.files.user_tables import Location, explained, read_table, shortened
from tvm_ext.core.names import hides_header, is_device
from tvm_ext.core.option_table import OptionEntry, renamed_options
from tvm_ext.core.options import OPTIONS, BuildOptions, Target
from tvm_ext.core.sizes import read_size

MOST_MODELS = 32

STRICT = ConfigDict(extra="forbid", strict=True)

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
FileName = Annotated[str, Field(min_length=1, max_length=4096)]
Tensor = Annotated[str, Field(min_length=1, max_length=1000)]
Count = Annotated[int, Field(ge=0, lt=1 << 48)]
Size = Annotated[Count, BeforeValidator(read_size)]
Extent = Annotated[int, Field(ge=1, lt=1 << 31)]
Value = bool | int | Annotated[float, Field(allow_inf_nan=False)]
Values = Annotated[tuple[Value, ...], Field(max_length=1 << 16, strict=False)]
Names = Annotated[tuple[Tensor, ...], Field(max_length=256, strict=False)]


_FILE_TYPES: Mapping[str, Any] = {
    kinds.TRUTH.wanted: bool,
    kinds.NUMBER.wanted: Annotated[float, Field(strict=False)],
    kinds.SIZE.wanted: Size,
    kinds.SIZES.wanted: Size | dict[str, Size],
    kinds.TEXT.wanted: Tensor,
    kinds.TENSORS.wanted: Names,
    kinds.PROCESSORS.wanted: Names,
    kinds.TARGETS.wanted: Annotated[tuple[Target, ...], Field(strict=False)],
    kinds.OFFSETS.wanted: dict[str, Count],
    kinds.PLACES.wanted: dict[str, Tensor],
    kinds.FORMS.wanted: dict[Tensor, Tensor],
    kinds.LABELS.wanted: Annotated[tuple[str, ...], Field(max_length=1 << 16, strict=False)],
    kinds.RENAMES.wanted: dict[Tensor, Name],
    kinds.FRAMES.wanted: dict[str, Count],
    kinds.AXES.wanted: dict[str, int],
}
"""Types of the keys of a model's options, by kind."""


def options_in_files(name: str, entries: Iterable[OptionEntry]) -> Any:
    """Return a class for options in a file, as strict as the file itself.

    name: of the class.
    """
    fields: list[tuple[str, Any, Any]] = []
    for entry in entries:
        declared: Any = Literal[entry.words] if entry.words else _FILE_TYPES[entry.kind.wanted]
        fields.append((entry.name, declared | None if entry.is_optional else declared, field(default=entry.default)))
    made = make_dataclass(name, fields, frozen=True, kw_only=True)
    return dataclass(frozen=True, kw_only=True, config=STRICT)(made)


if TYPE_CHECKING:
    BundledOptions = BuildOptions
else:
    BundledOptions = options_in_files("BundledOptions", [one for one in OPTIONS.values() if one.option.in_files])
    """Options of a single model, as in `BuildOptions`. The bundle decides about its name and its verification."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ModelTable:
    """A model in a file.

    name: C prefix.
    file: of the model.
    shapes, bind, states, signature: as `load` takes them.
    initial, calibration, verify_inputs: files of arrays, as the command line takes them.
    """

    name: Name
    file: FileName
    shapes: dict[str, Annotated[tuple[Extent, ...], Field(max_length=64, strict=False)]] | None = None
    bind: dict[str, Value | Values] | None = None
    states: dict[str, str] | None = None
    signature: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    initial: FileName | None = None
    calibration: FileName | None = None
    verify_inputs: FileName | None = None


@dataclass(frozen=True, kw_only=True, config=STRICT)
class BundledModel(ModelTable):
    """A model of a bundle, with options of its own.

    processors: those that may run it. By default all may for a model of the round, and only the platform's first
    processor for other models.
    """

    options: BundledOptions = BundledOptions()
    processors: Annotated[tuple[Tensor, ...], Field(min_length=1, max_length=16, strict=False)] | None = None

    def build_options(self, verify: tuple[Any, ...] | None) -> BuildOptions:
        """Return the options of the model's build. Raises BadOptions."""
        values = {key: getattr(self.options, key) for key in BundledOptions.__dataclass_fields__}
        return BuildOptions(name=self.name, verify=verify, **values)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class BundledLink:
    """An output that becomes an input or a state: real(target) = scale * real(source) + shift, element by element.

    source: `model.output`; target: `model.input` or `model.state`, by the models' own names. resize: how the source is
    resampled where sizes of at most two axes differ.
    """

    source: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}\..+$", max_length=1000)]
    target: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}\..+$", max_length=1000)]
    scale: Annotated[float, Field(strict=False, allow_inf_nan=False, gt=-1e30, lt=1e30)] = 1.0
    shift: Annotated[float, Field(strict=False, allow_inf_nan=False, gt=-1e30, lt=1e30)] = 0.0
    resize: Literal["nearest", "linear"] | None = None

    @property
    def ends(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """(model, tensor) of the source and of the target."""
        (one, _, output), (other, _, tensor) = self.source.partition("."), self.target.partition(".")
        return (one, output), (other, tensor)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class VariantLimits:
    """Least charge of the battery and highest temperature at which a variant is chosen."""

    battery_percent: Annotated[int, Field(ge=0, le=100)] = 0
    temperature_c: Annotated[int, Field(ge=-100, le=1000)] = 1000


@dataclass(frozen=True, kw_only=True, config=STRICT)
class BundledVariants:
    """Models for the same task.

    name: C prefix of the choice between them.
    order: the models, the best first.
    switch: whether a change keeps the common state, or resets the state of the new model.
    hysteresis: the fraction by which cycles and bytes have to exceed the needs of a better variant before it is chosen
    again.
    battery_margin_percent, temperature_margin_c: the same margins for these limits.
    limits: by model.
    """

    name: Name
    order: Annotated[tuple[Name, ...], Field(min_length=2, max_length=MOST_MODELS, strict=False)]
    switch: Literal["keep", "reset"] = "reset"
    hysteresis: Annotated[float, Field(strict=False, ge=0, le=10)] = 0.1
    battery_margin_percent: Annotated[int, Field(ge=0, le=100)] = 5
    temperature_margin_c: Annotated[int, Field(ge=0, le=1000)] = 5
    limits: dict[str, VariantLimits] = field(default_factory=dict[str, VariantLimits])


@dataclass(frozen=True, kw_only=True, config=STRICT)
class BundleFile:
    """The models of a package, in the order of the file.

    name: C prefix of everything that they share.
    at_once: groups of models of which one may start before another has ended. All other models never overlap, so their
    arenas share bytes.
    links: outputs that are passed on.
    round: models that run once in each round, at the same time where processors and links allow.
    variants: models of which only one at a time does a task.
    folder: where files are searched.
    """

    name: Name
    models: Annotated[tuple[BundledModel, ...], Field(min_length=1, max_length=MOST_MODELS, strict=False)]
    at_once: Annotated[
        tuple[Annotated[tuple[Name, ...], Field(min_length=2, max_length=MOST_MODELS, strict=False)], ...],
        Field(max_length=256, strict=False),
    ] = ()
    links: Annotated[tuple[BundledLink, ...], Field(max_length=256, strict=False)] = ()
    round: Annotated[tuple[Name, ...], Field(max_length=MOST_MODELS, strict=False)] = ()
    variants: Annotated[tuple[BundledVariants, ...], Field(max_length=MOST_MODELS, strict=False)] = ()
    folder: str = ""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a TOML file. Relative paths in the file start at its folder. Raises BadBundle."""
        path = Path(path)
        found = checked(cls, read_table(path, "bundle", BadBundle), path, _TABLES, "bundle", BadBundle)
        if problem := found.contradiction():
            raise BadBundle(f"{path}: {problem}")
        return found

    def contradiction(self) -> str | None:
        """Names that C cannot distinguish, or groups of undefined models; None without such a problem."""
        names = [model.name for model in self.models]
        for name in (self.name, *names):
            if hides_header(name):
                return f"name = {name!r}: {name}.h would hide another header; choose another name."
            if is_device(name):
                return f"name = {name!r}: Windows takes {name}.c for a device; choose another name."
        for index, name in enumerate(names):
            if name in names[:index]:
                return f"models[{index}].name = {name!r} is another model's; each needs a name of its own."
        every = [self.name, *names, *(group.name for group in self.variants)]
        for one in every:
            for other in every:
                if other.startswith(f"{one}_") or (one == other and every.count(one) > 1):
                    return (
                        f"names {one!r} and {other!r}: what is generated for one begins as what is for the other, so C "
                        f"could take them for each other. Choose names none of which begins as another, such as "
                        f"{one}_a and {one}_b."
                    )
        for index, group in enumerate(self.at_once):
            for name in group:
                if name not in names:
                    return f"at_once[{index}]: {name!r} is no model of the bundle: {', '.join(names)}."
            if len(set(group)) < len(group):
                return f"at_once[{index}]: names a model twice; one model never runs at once with itself."
        if problem := self._round_problem() or self._link_problem() or self._variant_problem():
            return problem
        for index, model in enumerate(self.models):
            try:
                model.build_options(())
            except BadOptions as error:
                return f"models[{index}].options ({model.name}): {error}"
        return None

    def _link_problem(self) -> str | None:
        models = {model.name: model for model in self.models}
        for index, link in enumerate(self.links):
            where, ends = f"links[{index}]", [model for model, _ in link.ends]
            for key, name in zip(("source", "target"), ends, strict=True):
                if name not in models:
                    return f"{where}.{key}: {name!r} is no model of the bundle: {', '.join(models)}."
                options = models[name].options
                if options.io != "arena" or options.context != "static":
                    return (
                        f"{where}.{key}: {name} has io = {options.io!r}, context = {options.context!r}: its caller "
                        "holds what would be linked. Give it io = 'arena' and context = 'static', or hand the value on "
                        "there."
                    )
            if link.target in [other.target for other in self.links[:index]]:
                return f"{where}.target = {link.target!r} is another link's target; one value can come from one output."
            in_round = [name in self.round for name in ends]
            if any(in_round) and not all(in_round):
                inside, outside = ends if in_round[0] else ends[::-1]
                return (
                    f"{where}: {inside} is in the round and {outside} is not: a value could change while it is read. "
                    f"Put {outside} into the round, or hand the value on between rounds."
                )
            if len(set(ends)) == 2 and not all(in_round) and any(set(ends) <= set(group) for group in self.at_once):
                return (
                    f"{where}: {ends[0]} and {ends[1]} may run at once, so a value could change while it is read. Take "
                    "them out of at_once, or hand the value on where both rest."
                )
        return None

    def _round_problem(self) -> str | None:
        """Check for unknown models, models whose caller holds tensors, and several variants of one task."""
        models = {model.name: model for model in self.models}
        for index, name in enumerate(self.round):
            if name not in models:
                return f"round: {name!r} is no model of the bundle: {', '.join(models)}."
            if name in self.round[:index]:
                return f"round: names {name} twice; a model runs once in each round."
            options = models[name].options
            if options.io != "arena" or options.context != "static":
                return (
                    f"round: {name} has io = {options.io!r}, context = {options.context!r}: its run takes arguments. "
                    "Give it io = 'arena' and context = 'static', or run it outside of the round."
                )
        for index, group in enumerate(self.variants):
            if len(meet := [name for name in group.order if name in self.round]) > 1:
                return f"round: {meet[0]} and {meet[1]} are variants of {self.variants[index].name}; only one runs."
        for index, model in enumerate(self.models):
            names = model.processors or ()
            if twice := next((name for name in names if names.count(name) > 1), None):
                return f"models[{index}].processors: names {twice} twice."
        return None

    def _variant_problem(self) -> str | None:
        models = {model.name: model for model in self.models}
        seen: set[str] = set()
        for index, group in enumerate(self.variants):
            where = f"variants[{index}]"
            for name in (*group.order, *group.limits):
                if name not in models:
                    return f"{where}: {name!r} is no model of the bundle: {', '.join(models)}."
            if unordered := [name for name in group.limits if name not in group.order]:
                return f"{where}.limits: {unordered[0]} is no variant of {group.name}: {', '.join(group.order)}."
            for name in group.order:
                if name in seen or group.order.count(name) > 1:
                    return f"{where}.order: {name} is there already; a model is a variant of one task, once."
                if models[name].options.context != "static":
                    return f"{where}.order: {name} has context = 'caller'; variants share the bundle's memory."
            seen |= {*group.order}
            for number, together in enumerate(self.at_once):
                if len(meet := [name for name in group.order if name in together]) > 1:
                    return f"at_once[{number}]: {meet[0]} and {meet[1]} are variants of {group.name}; only one runs."
        return None

    def path_of(self, model: BundledModel, key: str) -> Path | None:
        """Return the path of a file that a model names under `key`, or None. Raises BadBundle."""
        name = cast("str | None", getattr(model, key))
        return None if name is None else path_below(self.folder, name, f"models.{model.name}.{key}", BadBundle)


_TABLES: Mapping[str, type] = {
    "models": BundledModel,
    "options": BundledOptions,
    "links": BundledLink,
    "variants": BundledVariants,
    "limits": VariantLimits,
}


class _InFolder(Protocol):
    """A file's table, with the folder at which its relative paths start."""

    @property
    def folder(self) -> str: ...


_File = TypeVar("_File", bound=_InFolder)


def checked(
    kind: type[_File],
    table: Mapping[str, object],
    path: Path,
    tables: Mapping[str, type],
    word: str,
    refusal: type[TvmExtError],
) -> _File:
    """Return a file's table as an instance of the class that has its keys.

    tables: classes of the tables below it, by key.
    word: for what the file describes.
    Raises `refusal`.
    """
    if "folder" in table:
        raise refusal(f"{path}: folder: unknown key; files are looked for in the folder of the {word}'s file.")
    try:
        found = TypeAdapter(kind).validate_json(json.dumps(table))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, ValidationError):
            raise refusal(
                f"{path}: {explained(error, partial(_allowed, kind, tables), renamed_options(OPTIONS))}"
            ) from None
        raise refusal(f"{path}: holds what no key of a {word} is: {shortened(error)}.") from None
    return replace(cast("Any", found), folder=str(path.absolute().parent))


def path_below(folder: str, name: str, where: str, refusal: type[TvmExtError]) -> Path:
    """Return the path of a file that a table names, below the table's folder or absolute.

    where: its key.
    Raises `refusal` for a relative path that leaves the folder, and for a path that is not plain.
    """
    path, start, where = Path(name), Path(folder), f"{where} = {name!r}"
    if ".." in path.parts or "\0" in name or name.startswith("~"):
        raise refusal(f"{where}: is no plain path; name a file below {start}, or the whole path without `..`.")
    if path.is_absolute():
        return path
    try:
        inside = (start / path).resolve().is_relative_to(start.resolve())
    except (OSError, RuntimeError):
        inside = False
    if not inside:
        raise refusal(f"{where}: leads out of {start}; move the file there, or give its whole path.")
    return start / path


def _allowed(kind: type, tables: Mapping[str, type], location: Location) -> list[str]:
    """Return the keys of the table that contains a location.

    kind: of the whole file.
    tables: classes of the tables below, by key.
    """
    place = [str(part) for part in location if not isinstance(part, int)][:-1]
    table = next((tables[part] for part in reversed(place) if part in tables), kind)
    return [name for name in cast("Any", table).__dataclass_fields__ if name != "folder"]
