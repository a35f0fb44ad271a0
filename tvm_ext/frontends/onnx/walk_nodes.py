"""Every graph and every node of an ONNX model: those of branches, loop bodies and functions too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


def graphs_of(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The model's graph, and all that nodes hold, each behind the one it lies in."""
    yield model.graph
    yield from _held_by(model.graph.node)
    for function in model.functions:
        yield from _held_by(function.node)


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Nodes of all graphs and functions."""
    for graph in graphs_of(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def _held_by(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield inner
                yield from _held_by(inner.node)
