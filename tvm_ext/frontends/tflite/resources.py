"""Turn resource variables of a TensorFlow Lite file into states, which are inputs and outputs of a run.

VAR_HANDLE names a variable, READ_VARIABLE and ASSIGN_VARIABLE read and write it, and subgraphs that CALL_ONCE names
assign its initial constant. A read after an assignment returns the assigned value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tflite

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.model_nodes import ModelState
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteGraph, TfliteNode

RESOURCE_OPERATORS = frozenset("CALL_ONCE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE".split())


@dataclass(frozen=True, kw_only=True, eq=False)
class Variable:
    """A resource variable as a state. read, written: indices of the tensors with its value before and after a run."""

    state: ModelState
    read: int
    written: int


def variables_opened(path: Path, file: TfliteFile) -> tuple[TfliteFile, tuple[Variable, ...]]:
    """Remove the operators on resources; return the new file and its variables in the order in which they are read.

    A variable that is read before its first assignment becomes a state. A variable that is only assigned is dropped. A
    state without an initial value begins with its zero point. Raises BadModel, UnsupportedModel.
    """
    if not any(node.operator in RESOURCE_OPERATORS for node in file.nodes):
        return file, ()
    guarded = next((node for node in file.nodes if node.operator in RESOURCE_OPERATORS and node.is_guarded), None)
    if guarded:
        raise UnsupportedModel(
            f"{path}: {guarded.label} uses a variable in a branch that a run may skip. Compute both results and choose "
            "one by SELECT_V2, and read and assign variables outside of the branches."
        )
    initial: dict[str, np.ndarray] = {}
    for graph in file.called_once:
        initial |= _assigned(path, graph)
    uses = _uses(path, file)
    nodes = [node for node in file.nodes if node.operator not in RESOURCE_OPERATORS]
    opened = replace(
        file,
        nodes=tuple(replace(node, inputs=_renamed(node.inputs, uses.same)) for node in nodes),
        outputs=_renamed(file.outputs, uses.same),
    )
    variables: list[Variable] = []
    for name, read in uses.first_read.items():
        tensor = file.tensors[read]
        if tensor.dtype is None:
            raise UnsupportedModel(f"{path}: variable {name!r} has elements of type {tensor.type_name}.")
        zero = 0 if tensor.scales is None else int(tensor.scales.zero_point[0])
        begins = initial.get(name, np.full(tensor.shape, zero, tensor.dtype))
        if begins.size != np.prod(tensor.shape, dtype=object) or str(begins.dtype) != tensor.dtype:
            raise BadModel(f"{path}: variable {name!r} is set to {begins.dtype}{list(begins.shape)}, and read as "
                           f"{tensor.dtype}{list(tensor.shape)}.")  # fmt: skip
        written = uses.same.get(uses.last_written.get(name, read), uses.last_written.get(name, read))
        state = ModelState(name=name, initial=begins.reshape(tensor.shape))
        variables.append(Variable(state=state, read=read, written=written))
    return opened, tuple(variables)


@dataclass(frozen=True, kw_only=True)
class _Uses:
    """Uses of variables in a graph.

    first_read, last_written: index of a tensor by variable. same: for a tensor, an earlier tensor with the same value.
    """

    first_read: Mapping[str, int]
    last_written: Mapping[str, int]
    same: Mapping[int, int]


def _uses(path: Path, file: TfliteFile) -> _Uses:
    handles: dict[int, str] = {}
    now: dict[str, int] = {}
    first_read: dict[str, int] = {}
    same: dict[int, int] = {}
    for node in file.nodes:
        if node.operator == "VAR_HANDLE":
            handles[node.outputs[0]] = _variable_name(node)
        elif node.operator == "READ_VARIABLE":
            name, (result,) = _named(path, node, handles), node.outputs
            if name in now:
                _check_same_type(path, name, file, now[name], result)
                same[result] = now[name]
            else:
                first_read[name] = now[name] = result
        elif node.operator == "ASSIGN_VARIABLE":
            value = node.inputs[1]
            now[_named(path, node, handles)] = same.get(value, value)
    for name, read in first_read.items():
        _check_same_type(path, name, file, now[name], read)
    return _Uses(first_read=first_read, last_written=now, same=same)


def _check_same_type(path: Path, name: str, file: TfliteFile, written: int, read: int) -> None:
    one, other = file.tensors[written], file.tensors[read]
    if (one.dtype, int(np.prod(one.shape, dtype=object))) != (other.dtype, int(np.prod(other.shape, dtype=object))):
        raise BadModel(
            f"{path}: variable {name!r} is assigned {one.dtype}{list(one.shape)}, and read as "
            f"{other.dtype}{list(other.shape)}."
        )


def _assigned(path: Path, graph: TfliteGraph) -> dict[str, np.ndarray]:
    """Return the constants that a subgraph assigns to variables. Raises UnsupportedModel if it computes anything."""
    handles: dict[int, str] = {}
    constants: dict[str, np.ndarray] = {}
    for node in graph.nodes:
        if node.operator == "VAR_HANDLE":
            handles[node.outputs[0]] = _variable_name(node)
            continue
        value = graph.tensors[node.inputs[1]].data if node.operator == "ASSIGN_VARIABLE" else None
        if value is None:
            raise UnsupportedModel(
                f"{path}: {node.label} is in the subgraph that sets variables once, where only constants can be "
                "assigned. Initialise the variables with constants."
            )
        constants[_named(path, node, handles)] = value
    return constants


def _variable_name(node: TfliteNode) -> str:
    options, table = tflite.VarHandleOptions(), node.table.BuiltinOptions()
    if table is None:
        return ""
    options.Init(table.Bytes, table.Pos)
    parts = [(text or b"").decode("utf-8", "replace") for text in (options.Container(), options.SharedName())]
    return "/".join(part for part in parts if part)


def _named(path: Path, node: TfliteNode, handles: Mapping[int, str]) -> str:
    operands = 1 if node.operator == "READ_VARIABLE" else 2
    if len(node.inputs) != operands or len(node.outputs) != 2 - operands or -1 in node.inputs:
        raise BadModel(f"{path}: {node.label} has {len(node.inputs)} inputs and {len(node.outputs)} outputs.")
    if node.inputs[0] not in handles:
        raise BadModel(f"{path}: {node.label} uses a variable that no VAR_HANDLE names.")
    return handles[node.inputs[0]]


def _renamed(indices: Sequence[int], same: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(same.get(index, index) for index in indices)
