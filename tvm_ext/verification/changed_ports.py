"""Samples and outputs of a model whose inputs and outputs have another form than those of its file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tvm_ext.core.input_forms import ChangedInput

Array = np.ndarray
Sample = Mapping[str, Array]
Said = dict[str, list[dict[str, Array]]]


def in_file_form(sample: Sample, changed: Mapping[str, ChangedInput]) -> dict[str, Array]:
    """A sample as the file's own runtimes take it."""
    return {name: changed[name].to_file(array) if name in changed else array for name, array in sample.items()}


def of_real(sample: Sample, changed: Mapping[str, ChangedInput]) -> dict[str, Array]:
    """A sample of real numbers that the float model takes, in the form that firmware hands over."""
    return {name: changed[name].of_real(array) if name in changed else array for name, array in sample.items()}


def indexed(said: Said, names: Collection[str], inner: Sequence[str]) -> Said:
    """Outputs of a runtime with the index of the largest element of some; all elements of these are inner tensors."""
    if not names:
        return said
    outputs = [
        {name: array.argmax(-1).astype(np.int32) if name in names else array for name, array in one.items()}
        for one in said["outputs"]
    ]
    watched = [name for name in names if name in inner]
    inside = [
        {**{name: one[name] for name in watched}, **seen}
        for one, seen in zip(said["outputs"], said["inner"], strict=True)
    ]
    return {**said, "outputs": outputs, "inner": inside}
