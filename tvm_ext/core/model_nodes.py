"""Operators of a model as its file lists them: what a map from the model to the C has to account for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


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
