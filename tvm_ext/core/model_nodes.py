"""Operators and states of a model as its file lists them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class ModelNode:
    """An operator.

    name: used in errors and comments.
    inputs, outputs: names of tensors, including tensors that nested graphs read.
    on_integers: whether the operator computes quantized integers from quantized integers in the file.
    line: the line of a TVMScript file, such as `model.py:18`; empty for other models.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    on_integers: bool = False
    line: str = ""


def nodes_to_json(nodes: Iterable[ModelNode]) -> str:
    entries = [{key: value for key, value in asdict(node).items() if key != "line" or value} for node in nodes]
    return json.dumps(entries, ensure_ascii=False)


def nodes_from_json(text: str) -> tuple[ModelNode, ...]:
    return tuple(
        ModelNode(
            name=entry["name"],
            operator=entry["operator"],
            inputs=tuple(entry["inputs"]),
            outputs=tuple(entry["outputs"]),
            on_integers=bool(entry.get("on_integers", False)),
            line=str(entry.get("line", "")),
        )
        for entry in json.loads(text)
    )


def reachable(nodes: Sequence[ModelNode], tensors: Iterable[str], *, forward: bool) -> set[str]:
    """Return the tensors that depend on some tensors, or that these depend on, including themselves.

    The nodes are in order of execution.
    """
    found = set(tensors)
    for node in nodes if forward else reversed(nodes):
        read, written = (node.inputs, node.outputs) if forward else (node.outputs, node.inputs)
        if not found.isdisjoint(read):
            found.update(written)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelState:
    """A state.

    name: the model's own name.
    initial: its value at the first run and after a reset.
    output: the name of the output that holds the next value, where the file has the state as input and output; else
    empty.
    layout: axes of the model's state in the order of `initial`; empty where both are the same.
    """

    name: str
    initial: np.ndarray
    output: str = ""
    layout: tuple[int, ...] = ()


def states_to_json(states: Iterable[ModelState]) -> str:
    entries = [
        {
            "name": state.name,
            "shape": list(state.initial.shape),
            "dtype": str(state.initial.dtype),
            "output": state.output,
            "layout": list(state.layout),
            "initial": base64.b64encode(np.ascontiguousarray(state.initial).tobytes()).decode("ascii"),
        }
        for state in states
    ]
    return json.dumps(entries, ensure_ascii=False)


def states_from_json(text: str) -> tuple[ModelState, ...]:
    return tuple(
        ModelState(
            name=entry["name"],
            output=entry["output"],
            layout=tuple(entry["layout"]),
            initial=np.frombuffer(base64.b64decode(entry["initial"]), entry["dtype"]).reshape(entry["shape"]),
        )
        for entry in json.loads(text)
    )


def next_name(state: str) -> str:
    """Return the name of the result of `main` that holds the next value of a state."""
    return f"{state}.next"


def with_next_names(outputs: Sequence[str], states: Sequence[ModelState]) -> list[str]:
    """Return the names of all results of `main`, the model's outputs first."""
    return [*outputs, *(next_name(state.name) for state in states)]
