"""A TensorFlow Lite file as a static Relax module: the three steps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tvm_ext.frontends.loaded import Loaded
from tvm_ext.frontends.shapes import DeclaredInput, fix_shapes
from tvm_ext.frontends.tflite.check_graph import check_graph
from tvm_ext.frontends.tflite.import_graph import import_graph
from tvm_ext.frontends.tflite.read_file import read_tflite


def load_tflite(path: Path, shapes: Mapping[str, Sequence[int]] | None) -> Loaded:
    """Read, fix shapes, import. Raises BadModel, BadOptions, UnsupportedModel."""
    file = read_tflite(path)
    check_graph(path, file.tensors, file.nodes, file.inputs, file.outputs)
    inputs = [DeclaredInput(name=file.tensors[index].name, dims=file.tensors[index].dims) for index in file.inputs]
    mod = import_graph(path, file, fix_shapes(inputs, shapes))
    return Loaded(
        mod=mod,
        sha256=file.sha256,
        input_names=tuple(declared.name for declared in inputs),
        output_names=tuple(file.tensors[index].name for index in file.outputs),
        rounding="tflite",
    )
