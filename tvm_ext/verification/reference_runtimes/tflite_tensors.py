"""The tensors of a TensorFlow Lite file that its interpreters can be asked for, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tvm_ext.core.errors import BadModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.tflite.read_file import TfliteFile, read_tflite

Array = np.ndarray
Sample = Mapping[str, Array]


def read_unchanged(path: str, sha256: str, limits: str) -> tuple[TfliteFile, bytes]:
    """The file's tables and its bytes. Raises BadModel for a file that is another one now."""
    file, data = read_tflite(Path(path), Limits.from_json(limits)), Path(path).read_bytes()
    if file.sha256 != sha256:
        raise BadModel(f"{path}: has changed since it was loaded.")
    return file, data


def made_tensors(file: TfliteFile, names: Sequence[str]) -> dict[str, int]:
    """Index of each named tensor that an operator makes; without those whose name is not theirs alone."""
    wanted, every = set(names), [tensor.name for tensor in file.tensors]
    made = {index for node in file.nodes for index in node.outputs if index >= 0}
    return {every[i]: i for i in sorted(made) if every[i] in wanted and every.count(every[i]) == 1}


def inputs_of(file: TfliteFile, sample: Sample) -> list[Array]:
    """A sample's arrays in the order of the file's inputs."""
    return [np.ascontiguousarray(sample[file.tensors[index].name]).reshape(_shape(file, index, sample))
            for index in file.inputs]  # fmt: skip


def _shape(file: TfliteFile, index: int, sample: Sample) -> tuple[int, ...]:
    return sample[file.tensors[index].name].shape
