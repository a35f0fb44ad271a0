"""Check calibration data and example inputs of users before anything is computed.

Files are untrusted: pickled arrays are refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from tvm_ext.core.errors import BadInput
from tvm_ext.core.files.arrays import array_names, read_arrays
from tvm_ext.core.options import BuildOptions
from tvm_ext.frontends.load import ModelSource, load
from tvm_ext.frontends.shapes import ModelNotice

Array = np.ndarray
# Argument of `tvm_ext.build(calibration=...)`.
Source = str | PathLike[str] | Mapping[str, Array] | Iterable[Mapping[str, Array]]
# Per input: shape and dtype.
Specs = Mapping[str, tuple[tuple[int, ...], str]]

LABELS, RESETS = "labels", "resets"


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Samples by the model's input names, in exactly its shapes and types, in order.

    labels: an integer per sample, or None.
    resets: samples ahead of which states are reset.
    """

    samples: Sequence[Mapping[str, Array]]
    labels: Sequence[int] | None = None
    resets: frozenset[int] = frozenset()


def read_calibration(source: Source, inputs: Specs) -> Calibration:
    """Check calibration data against a model's inputs.

    source: path of an .npz file, or a dict, with an array for each name: the input's shape after an axis of samples
    (where the input's first extent is 1, that axis may also take its position); or an iterable of dicts, one per
    sample, with arrays of the input's shape. `labels` holds an integer per sample: the index of the largest element of
    the model's first output. Samples of a model with states are consecutive steps, over which states are carried;
    `resets` holds an integer per sample, nonzero where a new sequence starts. Other names are ignored.

    Raises BadInput for an unreadable file, a missing input, another shape or type, NaN or infinity, no samples, and
    labels or resets that are not one integer per sample.
    """
    if isinstance(source, str | PathLike):
        where, arrays = str(source), read_arrays(Path(source), {*inputs, LABELS, RESETS})
        if missing := [name for name in inputs if name not in arrays]:
            raise _no_array(where, missing[0], array_names(Path(source)))
    elif isinstance(source, Mapping):
        where, arrays = "calibration data", dict(source)
    else:
        where, arrays = "calibration data", _stacked(source, inputs)
    stacked = {name: _checked(where, name, arrays, *spec) for name, spec in inputs.items()}
    counts = {name: len(array) for name, array in stacked.items()}
    if len(set(counts.values())) != 1:
        listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise BadInput(
            f"{where}: the inputs differ in their number of samples ({listed}). Give the same number for each input."
        )
    count = next(iter(counts.values()))
    labels, resets = (
        None if name in inputs else _integers(where, name, arrays.get(name), count) for name in (LABELS, RESETS)
    )
    samples = [{name: array[index] for name, array in stacked.items()} for index in range(count)]
    begun = frozenset(index for index, number in enumerate(resets or ()) if number)
    return Calibration(samples=samples, labels=labels, resets=begun)


def _stacked(samples: Iterable[Mapping[str, Array]], inputs: Specs) -> dict[str, Array]:
    """Stack single samples under their names."""
    listed = list(samples) if isinstance(samples, Iterable) else []
    if not isinstance(samples, Iterable) or not all(isinstance(sample, Mapping) for sample in listed):
        raise BadInput("calibration data: must be a path, a dict of arrays or an iterable of dicts.")
    if not listed:
        raise BadInput("calibration data: contains no sample. Give at least one sample, better a hundred.")
    found: dict[str, Array] = {}
    for name in (*inputs, LABELS, RESETS):
        missing = [index for index, sample in enumerate(listed) if name not in sample]
        if missing and (name in inputs or len(missing) < len(listed)):
            raise BadInput(f"calibration data: sample {missing[0]} has no {name!r}, which every sample needs.")
        if missing:
            continue
        arrays = [_array("calibration data", name, sample[name]) for sample in listed]
        expected = inputs[name][0] if name in inputs else ()
        for index, array in enumerate(arrays):
            if array.shape != expected:
                raise BadInput(
                    f"calibration data: {name!r} of sample {index} has shape {array.shape}, but must have {expected}."
                )
        found[name] = np.stack(arrays)
    return found


def _checked(where: str, name: str, arrays: Mapping[str, Array], shape: tuple[int, ...], dtype: str) -> Array:
    """Return the samples of an input, dtype[N, *shape]."""
    if name not in arrays:
        raise _no_array(where, name, arrays)
    array = _array(where, name, arrays[name])
    if str(array.dtype) != dtype:
        raise BadInput(
            f"{where}: {name!r} is of type {array.dtype}, but the model's input is of type {dtype}. Prepare samples as "
            "for the model."
        )
    if array.shape[1:] != shape and shape[:1] == (1,) and array.shape[1:] == shape[1:]:
        array = array.reshape(-1, *shape)
    if array.ndim == 0 or array.shape[1:] != shape:
        rest = shape[1:] if shape[:1] == (1,) else shape
        wanted = f"(N, {', '.join(map(str, rest))})" if rest else "(N,)"
        raise BadInput(f"{where}: {name!r} has shape {array.shape}, but must have {wanted} for N samples.")
    if len(array) == 0:
        raise BadInput(f"{where}: {name!r} contains no sample. Give at least one sample, better a hundred.")
    finite = np.isfinite(array).reshape(len(array), -1).all(axis=1) if array.dtype.kind == "f" else np.array([True])
    if not finite.all():
        raise BadInput(f"{where}: {name!r} contains NaN or infinity, first in sample {int(np.argmin(finite))}.")
    return array


def _no_array(where: str, name: str, there: Iterable[str]) -> BadInput:
    """Return the error for an input without an array.

    there: names of the existing arrays.
    """
    names = sorted(map(str, there))
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    held = f"it holds {shown}" if shown else "it holds no array at all"
    return BadInput(
        f"{where}: has no array for the input {name!r}; {held}. Give the arrays the names of the model's inputs."
    )


def _integers(where: str, name: str, given: Array | None, count: int) -> Sequence[int] | None:
    if given is None:
        return None
    numbers = _array(where, name, given)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise BadInput(
            f"{where}: {name} are {numbers.dtype}{list(numbers.shape)}, but must be one integer for each sample."
        )
    if len(numbers) != count:
        raise BadInput(f"{where}: there are {len(numbers)} {name} for {count} samples. Give one for each sample.")
    return [int(number) for number in numbers]


def _array(where: str, name: str, value: object) -> Array:
    try:
        return np.asarray(value)
    except ValueError:
        raise BadInput(f"{where}: {name!r} is not an array: its rows differ in length.") from None


Examples = Sequence[object] | object
"""Arrays or tensors, one per argument of `forward`, or a single one."""


def opened_model(source: ModelSource, example_inputs: Examples | None) -> tvm.IRModule:
    """Return the model, loaded unless it is already a result of `load`. Raises like `load`."""
    if isinstance(source, tvm.IRModule) and example_inputs is None:
        return source
    return load(source, example_inputs=example_inputs)


def calibration_by_examples(
    mod: tvm.IRModule, options: BuildOptions, calibration: Source | None, example_inputs: Examples | None
) -> Source | None:
    """Return calibration data, or example inputs with a ModelNotice where a model is quantized without other data."""
    if calibration is not None or options.quantize == "none" or example_inputs is None:
        return calibration
    warnings.warn(
        f"quantize = {options.quantize!r} without calibration: ranges come from example_inputs alone, which are one "
        "sample. Give some hundred samples of the inputs that the model will see as calibration.",
        ModelNotice, stacklevel=3,
    )  # fmt: skip
    given = example_inputs if isinstance(example_inputs, list | tuple) else (example_inputs,)
    return [{param.name: _as_numpy(one) for param, one in zip(mod["main"].params, given, strict=False)}]


def _as_numpy(value: Any) -> np.ndarray:
    return np.asarray(value.detach() if hasattr(value, "detach") else value)
