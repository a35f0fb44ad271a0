"""Fix the shapes of a model's inputs, by the user, else by the model, else as 1."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from tvm_ext.core.errors import BadOptions


class ModelNotice(UserWarning):
    """Something about a model that the user may want to know, without a need to act."""


@dataclass(frozen=True, kw_only=True)
class DeclaredInput:
    """An input as its model declares it.

    dims: for each axis a number, the name of a symbolic dimension, or None for an unnamed dimension; None instead of
    the tuple when the model gives no rank.
    """

    name: str
    dims: tuple[int | str | None, ...] | None


def fix_shapes(
    inputs: Sequence[DeclaredInput], shapes: Mapping[str, Sequence[int]] | None
) -> dict[str, tuple[int, ...]]:
    """Return a static shape for each input, in order.

    A symbolic dimension that `shapes` fixes for an input has that value in all inputs. Remaining dimensions become 1,
    with a ModelNotice. Raises BadOptions where `shapes` and the model contradict each other.
    """
    wanted = _checked(inputs, shapes or {})
    symbols = _symbols(inputs, wanted)
    fixed: dict[str, tuple[int, ...]] = {}
    guessed: list[str] = []
    options: list[str] = []
    for declared in inputs:
        if declared.dims is None and declared.name not in wanted:
            raise BadOptions(
                f"input {declared.name!r} has no rank in the model; give it by shapes, on the command line by --shape."
            )
        dims = wanted.get(declared.name, declared.dims)
        resolved = tuple(dim if isinstance(dim, int) else symbols.get(dim, 1) for dim in dims or ())
        fixed[declared.name] = resolved
        if any(not isinstance(dim, int) and dim not in symbols for dim in dims or ()):
            guessed.append(f"{declared.name} {dimensions_text(declared.dims)} -> {dimensions_text(resolved)}")
            options.append(shape_option(declared.name, resolved))
    if guessed:
        warnings.warn(
            f"dimensions the model leaves open are taken as 1: {'; '.join(guessed)}. To choose others, give shapes, on "
            f"the command line {' '.join(options)}.",
            ModelNotice,
            stacklevel=4,
        )
    return fixed


def _checked(inputs: Sequence[DeclaredInput], shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    known = {declared.name: declared.dims for declared in inputs}
    checked = {}
    for name, shape in shapes.items():
        if isinstance(shape, int):
            raise BadOptions(f"shape of {name} = {shape}: a shape is several numbers, one per axis: ({shape},).")
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise BadOptions(
                f"shape of {name}: the model has no input {name!r}.{hint} Inputs: {', '.join(known) or 'none'}."
            )
        dims = tuple(shape)
        if not all(isinstance(dim, int) and not isinstance(dim, bool) and dim > 0 for dim in dims):
            raise BadOptions(f"shape of {name} = {list(dims)}: dimensions are whole numbers of at least 1.")
        declared = known[name]
        if declared is not None and len(declared) != len(dims):
            ranks = f"has rank {len(dims)}, the model's {dimensions_text(declared)} has {len(declared)}"
            raise BadOptions(f"shape of {name} = {list(dims)} {ranks}.")
        if any(isinstance(old, int) and old != new for old, new in zip(declared or (), dims, strict=False)):
            raise BadOptions(
                f"shape of {name} = {list(dims)} contradicts the model's {dimensions_text(declared)}; "
                "only symbolic dimensions can be chosen."
            )
        checked[name] = dims
    return checked


def _symbols(inputs: Sequence[DeclaredInput], wanted: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the values of the named dimensions that `wanted` fixes."""
    values: dict[str, int] = {}
    for declared in inputs:
        for symbol, value in zip(declared.dims or (), wanted.get(declared.name, ()), strict=False):
            if isinstance(symbol, str) and values.setdefault(symbol, value) != value:
                raise BadOptions(
                    f"shape of {declared.name}: dimension {symbol!r} is {value} in this input but {values[symbol]} in "
                    "another input. Give the dimension the same value in all inputs."
                )
    return values


def shape_option(name: str, shape: Sequence[int]) -> str:
    """Return the option of the command line that gives an input its shape."""
    return f"--shape {shlex.quote(name)}={','.join(map(str, shape))}"


def dimensions_text(dims: Sequence[int | str | None] | None) -> str:
    """Return dimensions as a reader writes them: `[N, 3, ?]`."""
    return "[?]" if dims is None else f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"
