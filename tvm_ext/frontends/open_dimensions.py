"""Find sizes for the open dimensions of a model that cannot be loaded with sizes of 1, by trying.

A user who gives no `--shape` gets 1 for each open dimension. Where the model then fails, because a reshape or a window
needs more elements, the error names a shape with which the model can be loaded.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import TypeVar

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import outputs, static_shape
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.shapes import DeclaredInput, dimensions_text, fix_shapes, shape_option

Imported = TypeVar("Imported", bound=tuple[object, ...])
Shapes = Mapping[str, tuple[int, ...]]
Given = Mapping[str, Sequence[int]]

_SECONDS = 2.0
"""Processor time after which no further size is tried."""

_SPREAD = (2, 8, 32, 96, 224, 1000)
"""Sizes that are tried first. A model that fails at all of them for the same reason does not fail for its sizes."""

_SMALL = range(1, 65)
_USUAL = (
    80, 96, 98, 99, 100, 101, 112, 120, 128, 144, 160, 192, 200, 224, 240, 250, 256, 299, 300, 320, 384, 400, 416, 480,
    500, 512, 600, 640, 768, 800, 1024, 1152, 1280, 1600, 1760, 1960, 2048, 3200, 4000, 4096, 8000, 8192, 16000, 16384,
    22050, 32000, 44100, 48000,
)  # fmt: skip
"""Usual sides of images, lengths of feature windows, and numbers of audio samples."""

_MOST_ELEMENTS = 1 << 22
_MOST_HINTS = 16


def import_with_open_dimensions(
    path: Path,
    import_at: Callable[[Shapes], Imported],
    inputs: Sequence[DeclaredInput],
    given: Given | None,
    fixed: Shapes,
    constants: Iterable[np.ndarray],
) -> Imported:
    """Return what `import_at` imports from the file `path` at the shapes `fixed`: the module, and anything more.

    given: shapes that the user asked for. constants: of the model; targets of reshapes and sizes of weights among them
    suggest sizes.
    Raises the error of `import_at`, and UnsupportedModel if an output of open dimensions has no elements. If other
    sizes were tried, the error has a last line: shapes with which the model can be imported, or what was tried in vain.
    """
    slots = _open_slots(inputs, given or {})

    def imported(shapes: Shapes) -> Imported:
        found = import_at(shapes)
        if slots and (empty := _shape_without_elements(found[0])):
            raise UnsupportedModel(f"{path}: an output has the shape {dimensions_text(empty)} and no elements.")
        return found

    try:
        return imported(fixed)
    except (BadModel, UnsupportedModel) as error:
        said = _said(imported, inputs, given or {}, slots, list(constants), str(error)) if slots else ""
        if not said:
            raise
        raise type(error)(f"{error}\n{said}") from None


def _shape_without_elements(module: object) -> tuple[int, ...]:
    """Return the shape of the first result that has an extent of 0, or an empty tuple."""
    assert isinstance(module, tvm.IRModule)
    shapes = [static_shape(result) for result in outputs(module["main"]) if isinstance(result.ty, relax.TensorType)]
    return next((shape for shape in shapes if 0 in shape), ())


Slot = tuple[str, int]
"""An open dimension: name of the first input that has it, and its axis."""


def _open_slots(inputs: Sequence[DeclaredInput], given: Given) -> list[Slot]:
    """Return the open dimensions, each symbol once. Dimensions of inputs that the user gave are not open."""
    known = {dim for one in inputs if one.name in given for dim in one.dims or () if isinstance(dim, str)}
    slots: list[Slot] = []
    for one in inputs:
        for axis, dim in enumerate(() if one.name in given else one.dims or ()):
            if dim is None or (isinstance(dim, str) and dim not in known):
                slots.append((one.name, axis))
                known |= {dim} if isinstance(dim, str) else set()
    return slots


def _said(
    import_at: Callable[[Shapes], object], inputs: Sequence[DeclaredInput], given: Given, slots: Sequence[Slot],
    constants: Sequence[np.ndarray], first: str,
) -> str:  # fmt: skip
    """Return the last line of the error `first`, or an empty text if the sizes are not its reason."""
    tried: dict[tuple[int, ...], None] = {(1,) * len(slots): None}
    deadline, reasons, is_settled = time.process_time() + _SECONDS, {first}, False
    least = len(_SPREAD) + len(_hints(inputs, slots, constants))
    for sizes in _candidates(inputs, slots, constants):
        if time.process_time() > deadline:
            break
        if sizes in tried:
            continue
        tried[sizes] = None
        shapes = _shapes_at(inputs, given, dict(zip(slots, sizes, strict=True)))
        if sum(math.prod(shape) for shape in shapes.values()) > _MOST_ELEMENTS:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import_at(shapes)
        except (BadModel, UnsupportedModel) as error:
            reasons.add(str(error))
        else:
            changed = [one.name for one in inputs if any(slot[0] == one.name for slot in _slots_of(one))]
            options = " ".join(shape_option(name, shapes[name]) for name in changed)
            return f"Dimensions that the model leaves open were taken as 1. It can be loaded with {options}."
        if not is_settled and len(tried) > least:
            is_settled = True
            if len(reasons) == 1:
                return ""
    if len(reasons) == 1:
        return ""
    listed = ", ".join(f"{one.name} {dimensions_text(one.dims)}" for one in inputs if _slots_of(one))
    largest = max(max(sizes) for sizes in tried)
    return (
        f"Dimensions that the model leaves open were taken as 1: {listed}. {len(tried) - 1} other combinations of "
        f"sizes up to {largest} were tried, and the model can be loaded with none of them. Give its shapes by "
        "--shape INPUT=1,2,3."
    )


def _slots_of(one: DeclaredInput) -> list[Slot]:
    return [(one.name, axis) for axis, dim in enumerate(one.dims or ()) if not isinstance(dim, int)]


def _shapes_at(inputs: Sequence[DeclaredInput], given: Given, sizes: Mapping[Slot, int]) -> dict[str, tuple[int, ...]]:
    """Return all shapes with sizes of the open dimensions. A symbol has its size in all inputs."""
    declared = {one.name: one.dims or () for one in inputs}
    symbols = {declared[name][axis]: size for (name, axis), size in sizes.items()}
    symbols.pop(None, None)
    whole = {
        name: tuple(
            dim if isinstance(dim, int) else symbols.get(dim, sizes.get((name, axis), 1))
            for axis, dim in enumerate(dims)
        )
        for name, dims in declared.items()
        if name not in given and not all(isinstance(dim, int) for dim in dims)
    }
    return fix_shapes(inputs, {**whole, **given})


def _candidates(
    inputs: Sequence[DeclaredInput], slots: Sequence[Slot], constants: Sequence[np.ndarray]
) -> Iterator[tuple[int, ...]]:
    """Yield sizes of the open dimensions: one size for all at first, then sizes that differ, with batches of 1.

    Other sizes of a batch come last.
    """
    is_batch = [_is_batch(inputs, slot) for slot in slots]
    hints = _hints(inputs, slots, constants)
    sizes = list(dict.fromkeys([*hints, *_SPREAD, *_SMALL, *_USUAL]))
    if not all(is_batch):
        for size in sizes:
            yield tuple(1 if batch else size for batch in is_batch)
        few = list(dict.fromkeys([*hints, *_SMALL]))
        for chosen in sorted(product(few, repeat=min(2, is_batch.count(False))), key=sum):
            rest = chain(chosen, (chosen[-1] for _ in slots))
            yield tuple(1 if batch else next(rest) for batch in is_batch)
    for size in sizes if not all(is_batch) else _SPREAD:
        yield (size,) * len(slots)


def _is_batch(inputs: Sequence[DeclaredInput], slot: Slot) -> bool:
    """Return True for the first axis of several, and for a dimension that is called a batch."""
    dims = next(one.dims or () for one in inputs if one.name == slot[0])
    return (slot[1] == 0 and len(dims) > 1) or "batch" in str(dims[slot[1]]).lower()


def _hints(inputs: Sequence[DeclaredInput], slots: Sequence[Slot], constants: Sequence[np.ndarray]) -> list[int]:
    """Return sizes that the model's constants suggest.

    A vector of integers may be the target of a reshape: its product over the known extents of an input is the number of
    elements along the open axes. Extents of weights are lengths of rows and of windows.
    """
    known = {one.name: math.prod(dim for dim in one.dims or () if isinstance(dim, int)) for one in inputs}
    sides = max(1, sum(not _is_batch(inputs, slot) for slot in slots))
    targets: list[int] = []
    for array in constants:
        if array.dtype.kind == "i" and array.ndim == 1 and 1 < array.size <= 8:
            elements = math.prod(int(extent) for extent in array if extent > 0)
            targets += [elements // known[name] for name, _ in slots if known[name] and elements % known[name] == 0]
    roots = [round(count ** (1 / sides)) for count in targets]
    extents = sorted({extent for array in constants if array.dtype.kind != "O" for extent in array.shape})
    wanted = dict.fromkeys(size for size in (*targets, *roots, *extents) if 1 < size <= _MOST_ELEMENTS)
    return [*wanted][:_MOST_HINTS]
