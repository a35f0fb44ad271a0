"""Variable tensors of a TensorFlow Lite file as states: operators that keep something get their next value as a result.

They read and change tensors of the file that no operator makes. Here these are inputs of the graph, and what an
operator leaves in them are more tensors, its last outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tvm_ext.core.model_nodes import ModelState, next_name
from tvm_ext.frontends.tflite import lstm, svdf
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteNode, TfliteTensor
from tvm_ext.frontends.tflite.resources import Variable

KEEPING = {"SVDF": svdf, "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm}
"""Operators that keep variable tensors."""


def is_opened(node: TfliteNode) -> bool:
    """True for an operator whose states are results of it already."""
    return node.operator in KEEPING and len(node.outputs) > 1


def refusal_of_keeping(file: TfliteFile, node: TfliteNode) -> str | None:
    """Reason to refuse an operator that keeps variable tensors; None without, and for those that are opened."""
    if is_opened(node):
        return None
    reason = KEEPING[node.operator].refusal(file, node)
    if reason:
        return reason
    for index in KEEPING[node.operator].states(node):
        tensor = file.tensors[index]
        if not tensor.is_variable:
            return f"its state {tensor.name!r} is no variable tensor"
        if sum(other.inputs.count(index) for other in file.nodes) > 1:
            return f"its state {tensor.name!r} is read by another operator too"
    return None


def variable_tensors_opened(file: TfliteFile) -> tuple[TfliteFile, tuple[Variable, ...]]:
    """The file with states as tensors that go in and come out, and these; operators to refuse are left as they are."""
    tensors, variables = list(file.tensors), list[Variable]()
    nodes: list[TfliteNode] = []
    for node in file.nodes:
        if node.operator not in KEEPING or refusal_of_keeping(file, node):
            nodes.append(node)
            continue
        left: list[int] = []
        for index, shape in zip(
            KEEPING[node.operator].states(node), KEEPING[node.operator].kept_shapes(file, node), strict=True
        ):
            tensors[index] = found = _of_shape(file.tensors[index], shape)
            left.append(len(tensors))
            tensors.append(replace(found, name=free_name(next_name(found.name), tensors)))
            variables.append(Variable(state=_state(found), read=index, written=left[-1]))
        nodes.append(replace(node, outputs=(*node.outputs, *left)))
    return replace(file, tensors=tuple(tensors), nodes=tuple(nodes)), tuple(variables)


def _state(tensor: TfliteTensor) -> ModelState:
    """The state as interpreters reset it: at its zero point."""
    zero = 0 if tensor.scales is None else int(tensor.scales.zero_point[0])
    return ModelState(name=tensor.name, initial=np.full(tensor.shape, zero, tensor.dtype))


def _of_shape(tensor: TfliteTensor, shape: tuple[int, ...]) -> TfliteTensor:
    return replace(tensor, shape=shape, dims=shape, is_variable=False)


def free_name(name: str, tensors: Sequence[TfliteTensor]) -> str:
    """The name, or name.1, name.2 ... where tensors have it."""
    taken, candidate, number = {tensor.name for tensor in tensors}, name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}.{number}"
    return candidate
