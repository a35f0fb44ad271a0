"""Networks of dense layers whose hidden vectors are much wider than what goes in and comes out."""

from __future__ import annotations

import onnx

from benchmarks.networks.graph import Graph


def wide_mlp(name: str, *, features: int, hidden: int) -> onnx.ModelProto:
    """float32[1, features] through `hidden` values back to as many."""
    graph = Graph(name, (1, features), padding="same")
    return graph.model(graph.dense(graph.dense("input", hidden, activation="relu"), features))


def feed_forward(name: str, *, tokens: int, features: int, hidden: int) -> onnx.ModelProto:
    """The feed-forward half of a transformer block (Vaswani et al. 2017), float32[tokens, features] on to the same."""
    graph = Graph(name, (tokens, features), padding="same")
    y = graph.dense(graph.dense("input", hidden, activation="relu"), features)
    return graph.model(graph.add("input", y))
