"""Samples for verification from the user: an .npz file or a dict of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

import numpy as np

from tvm_ext.core.errors import BadInput
from tvm_ext.core.files.arrays import read_arrays

Array = np.ndarray
VerifyInputs = str | PathLike[str] | Mapping[str, Array]
Specs = Mapping[str, tuple[tuple[int, ...], str]]

MAX_SAMPLES = 100


def read_verify_inputs(source: VerifyInputs, inputs: Specs) -> list[dict[str, Array]]:
    """Read samples, each an array by the name of every input of the model.

    source: path of an .npz file, or a dict, with an array for each input: of the input's own shape for one sample, or
    with a leading axis of samples for several samples. All inputs have the same form.

    Raises BadInput for an unreadable file, a missing or unknown name, a wrong shape or type, and for no samples or more
    than 100.
    """
    if not isinstance(source, str | PathLike | Mapping):
        raise BadInput(
            f"verify_inputs is of type {type(source).__name__}, but must be the path of an .npz file or a dict of "
            "arrays."
        )
    where = "verify_inputs" if isinstance(source, Mapping) else str(source)
    arrays = dict(source) if isinstance(source, Mapping) else read_arrays(Path(source))
    unknown = [name for name in arrays if name not in inputs]
    missing = [name for name in inputs if name not in arrays]
    if unknown or missing:
        what = f"has no array for the input {missing[0]!r}" if missing else f"{unknown[0]!r} is not an input"
        raise BadInput(f"{where}: {what}; the model's inputs are {', '.join(inputs)}.")
    counts = {name: _num_samples(where, name, np.asarray(arrays[name]), *spec) for name, spec in inputs.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name}: {'one' if count is None else count}" for name, count in counts.items())
        raise BadInput(
            f"{where}: the inputs differ in their number of samples ({listed}). Give the same number for each input."
        )
    count = next(iter(counts.values()), None)
    if count is None:
        return [{name: np.asarray(arrays[name]) for name in inputs}]
    if not 0 < count <= MAX_SAMPLES:
        raise BadInput(f"{where}: contains {count} samples; give 1 to {MAX_SAMPLES} samples.")
    return [{name: np.array(arrays[name][index]) for name in inputs} for index in range(count)]


def _num_samples(where: str, name: str, array: Array, shape: tuple[int, ...], dtype: str) -> int | None:
    """Return the number of samples in an array; None if the array is itself one sample."""
    if str(array.dtype) != dtype:
        raise BadInput(f"{where}: {name!r} is of type {array.dtype}, but the model's input is of type {dtype}.")
    if array.shape == shape:
        return None
    if array.shape[1:] != shape or array.ndim == 0:
        raise BadInput(
            f"{where}: {name!r} has shape {list(array.shape)}, but must have shape {list(shape)}, or "
            f"[{', '.join(map(str, ('N', *shape)))}] for N samples."
        )
    return len(array)
