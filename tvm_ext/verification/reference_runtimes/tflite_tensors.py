"""Tensors of a TensorFlow Lite file by name, for interpreters of such files."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tflite

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.tflite.read_file import TfliteFile, read_tflite

Array = np.ndarray
Sample = Mapping[str, Array]


def read_unchanged(path: str, sha256: str, limits: str, signature: str = "") -> tuple[TfliteFile, bytes]:
    """Return a file's tables and its bytes. Raises BadModel if the file has changed."""
    file, data = read_tflite(Path(path), Limits.from_json(limits), signature), Path(path).read_bytes()
    if file.sha256 != sha256:
        raise BadModel(f"{path}: has changed since it was loaded.")
    return file, data


def made_tensors(file: TfliteFile, names: Sequence[str]) -> dict[str, int]:
    """Return the index of each named tensor that an operator computes. Names of several tensors are left out."""
    wanted, every = set(names), [tensor.name for tensor in file.tensors]
    made = {index for node in file.nodes for index in node.outputs if index >= 0}
    return {every[i]: i for i in sorted(made) if every[i] in wanted and every.count(every[i]) == 1}


_OUTPUTS_FIELD = 8
"""Position of the field `outputs` in the table SubGraph of TensorFlow Lite's schema."""


def with_outputs(data: bytes, subgraph: int, tensors: Sequence[int]) -> bytes:
    """Return a file whose subgraph also has the given tensors as outputs, which delegates then keep.

    A flatbuffer refers to a vector by its distance ahead, so that a longer vector can be appended to the file.
    """
    table = tflite.Model.GetRootAsModel(data, 0).Subgraphs(subgraph)
    outputs = [*dict.fromkeys([*table.OutputsAsNumpy().tolist(), *tensors])]
    changed = bytearray(data) + bytes(-len(data) % 4)
    vector, field = len(changed), table._tab.Pos + table._tab.Offset(_OUTPUTS_FIELD)
    changed += struct.pack(f"<I{len(outputs)}i", len(outputs), *outputs)
    struct.pack_into("<I", changed, field, vector - field)
    return bytes(changed)


_DETECTIONS = "TFLite_Detection_PostProcess"


def detection_counts(path: str, file: TfliteFile) -> tuple[int, ...]:
    """Return the tensors with the numbers of detections, which `clear_unwritten` needs.

    Raises UnsupportedModel if an operator of the file reads rows after the last detection, which the runtimes leave
    unwritten: no result of it can be compared.
    """
    nodes = [node for node in file.nodes if node.operator == _DETECTIONS]
    rows = {index for node in nodes for index in node.outputs[:-1]}
    reader = next((node.operator for node in file.nodes if rows & {*node.inputs}), None)
    if reader is not None:
        raise UnsupportedModel(f"{path}: {reader} reads rows of {_DETECTIONS} that this runtime leaves unwritten.")
    return tuple(node.outputs[-1] for node in nodes)


def clear_unwritten(file: TfliteFile, values: Mapping[int, Array]) -> None:
    """Set rows after the last detection to 0, where TFLite_Detection_PostProcess leaves what its memory held before.

    values: tensors by index, with those of `detection_counts`; they are changed.
    """
    for node in file.nodes:
        if node.operator == _DETECTIONS:
            count = int(values[node.outputs[-1]].reshape(-1)[0])
            for index in values.keys() & set(node.outputs[:-1]):
                values[index][:, count:] = 0


def inputs_of(file: TfliteFile, sample: Sample) -> list[Array]:
    """Return a sample's arrays in the order of the file's inputs."""
    return [np.ascontiguousarray(sample[file.tensors[index].name]).reshape(_shape(file, index, sample))
            for index in file.inputs]  # fmt: skip


def _shape(file: TfliteFile, index: int, sample: Sample) -> tuple[int, ...]:
    return sample[file.tensors[index].name].shape
