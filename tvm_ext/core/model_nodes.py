"""Operators and states of a model as its file lists them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class ModelNode:
    """One operator. name: as errors and comments call it; inputs, outputs: names of tensors, those read inside too.

    on_integers: whether the file has it compute quantized integers from quantized integers.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    on_integers: bool = False


def nodes_to_json(nodes: Iterable[ModelNode]) -> str:
    return json.dumps([asdict(node) for node in nodes], ensure_ascii=False)


def nodes_from_json(text: str) -> tuple[ModelNode, ...]:
    return tuple(
        ModelNode(
            name=entry["name"],
            operator=entry["operator"],
            inputs=tuple(entry["inputs"]),
            outputs=tuple(entry["outputs"]),
            on_integers=bool(entry.get("on_integers", False)),
        )
        for entry in json.loads(text)
    )


def reachable(nodes: Sequence[ModelNode], tensors: Iterable[str], *, forward: bool) -> set[str]:
    """Tensors that depend on some, or that they depend on, themselves included; nodes are in order of execution."""
    found = set(tensors)
    for node in nodes if forward else reversed(nodes):
        read, written = (node.inputs, node.outputs) if forward else (node.outputs, node.inputs)
        if not found.isdisjoint(read):
            found.update(written)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelState:
    """One state. name: the model's own name. initial: its value before the first run and after a reset.

    output: where the file has the state as an input, of that name, and an output: the output's name; else empty.
    layout: axes of the model's state in the order in which `initial` has them; empty where both are the same.
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
    """Name of the result of `main` that a run leaves in a state."""
    return f"{state}.next"


def with_next_names(outputs: Sequence[str], states: Sequence[ModelState]) -> list[str]:
    """Names of all results of `main`, the model's outputs first."""
    return [*outputs, *(next_name(state.name) for state in states)]
