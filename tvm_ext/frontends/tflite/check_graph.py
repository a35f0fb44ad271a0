"""The graph of a TensorFlow Lite file: each tensor is made once, before it is read, and constants by no operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.tflite.read_file import TfliteNode, TfliteTensor

_VELA = "ethos-u"
"""Custom operator that Arm's compiler for its Ethos-U writes."""


def check_graph(
    path: Path,
    tensors: Sequence[TfliteTensor],
    nodes: Sequence[TfliteNode],
    inputs: Sequence[int],
    outputs: Sequence[int],
    kept: Sequence[int] = (),
) -> None:
    """Raises BadModel, and UnsupportedModel for a file of Vela's. kept: tensors that a run leaves to the next one."""
    compiled = next((node.label for node in nodes if node.is_custom and node.operator == _VELA), None)
    if compiled:
        raise UnsupportedModel(
            f"{path}: {compiled} holds commands of an Ethos-U: Vela compiled this file for that processor, and the "
            "layers are no longer in it. Give the .tflite file from which Vela made it."
        )
    if not outputs or -1 in (*inputs, *outputs):
        raise BadModel(
            f"{path}: is not a complete TensorFlow Lite model: it has no outputs, or ports without a tensor."
        )
    for index in inputs:
        if inputs.count(index) > 1 or tensors[index].data is not None:
            raise BadModel(f"{path}: input {tensors[index].name!r} is there twice, or is a constant.")
    constants = {index for index, tensor in enumerate(tensors) if tensor.data is not None}
    known = constants | {-1, *inputs}
    for node in nodes:
        unread = [index for index in node.inputs if index not in known and not tensors[index].is_variable]
        unknown = [index for index in unread if tensors[index].dtype is not None]  # else the operator is refused
        if unknown:
            raise BadModel(
                f"{path}: {node.label} reads {tensors[unknown[0]].name!r}, which nothing computes before it."
            )
        for index in node.outputs:
            if index >= 0 and (index in known or node.outputs.count(index) > 1):
                kind = "a constant" if index in constants else "there already"
                raise BadModel(f"{path}: {node.label} writes {tensors[index].name!r}, which is {kind}.")
        known.update(node.outputs)
    missing = [index for index in (*outputs, *kept) if index not in known]
    if missing:
        kind = "output" if missing[0] in outputs else "state"
        raise BadModel(f"{path}: nothing computes the {kind} {tensors[missing[0]].name!r}.")
