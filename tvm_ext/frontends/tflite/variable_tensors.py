"""Turn variable tensors of a TensorFlow Lite file into states.

Some operators read and change tensors that no operator computes. These tensors become inputs of the graph, and their
values after the operator become new tensors, which are the last outputs of the operator.
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
"""Operators with variable tensors, and the modules that convert them."""
IN_BRANCH = "it keeps state between runs, but is in a branch that a run may skip"


def is_opened(node: TfliteNode) -> bool:
    """Return True for an operator whose states are already among its outputs."""
    return node.operator in KEEPING and len(node.outputs) > 1


def refusal_of_keeping(file: TfliteFile, node: TfliteNode) -> str | None:
    """Return why an operator with variable tensors is refused, or None if it can be compiled or is already opened."""
    if is_opened(node):
        return None
    if node.is_guarded:
        return IN_BRANCH
    reason = KEEPING[node.operator].refusal(file, node)
    if reason:
        return reason
    for index in KEEPING[node.operator].states(node):
        tensor = file.tensors[index]
        if not tensor.is_variable:
            return f"its state {tensor.name!r} is not a variable tensor"
        if sum(other.inputs.count(index) for other in file.nodes) > 1:
            return f"its state {tensor.name!r} is read by another operator too"
    return None


def variable_tensors_opened(file: TfliteFile) -> tuple[TfliteFile, tuple[Variable, ...]]:
    """Return the file with variable tensors as inputs and outputs of operators, and the list of these states.

    Operators that are refused stay unchanged.
    """
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
    """Return a state that begins with its zero point, as interpreters reset it."""
    zero = 0 if tensor.scales is None else int(tensor.scales.zero_point[0])
    return ModelState(name=tensor.name, initial=np.full(tensor.shape, zero, tensor.dtype))


def _of_shape(tensor: TfliteTensor, shape: tuple[int, ...]) -> TfliteTensor:
    return replace(tensor, shape=shape, dims=shape, is_variable=False)


def free_name(name: str, tensors: Sequence[TfliteTensor]) -> str:
    """Return the name, or else the first of name.1, name.2 ... that no tensor has."""
    taken, candidate, number = {tensor.name for tensor in tensors}, name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}.{number}"
    return candidate
