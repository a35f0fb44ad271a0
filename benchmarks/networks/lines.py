"""Networks of windows with 3 or 5 taps along an axis and stride 1, as one-dimensional convolutions have them."""

from __future__ import annotations

import onnx

from benchmarks.networks.graph import Graph


def words_1d(name: str) -> onnx.ModelProto:
    """Keywords from 98 frames of 40 coefficients: float32[1, 1, 98, 40] -> 12 words, 6 layers of 1 by 3; 4.8 M.

    The coefficients are the channels, as in TC-ResNet (Choi et al. 2019).
    """
    graph = Graph(name, (1, 1, 98, 40), padding="same")
    x = graph.channels_first("input")
    for channels, stride in ((64, 1), (64, 1), (64, 2), (96, 1), (96, 2), (96, 1)):
        x = graph.conv(x, channels, (1, 3), stride=stride, activation="relu")
    return graph.model(graph.softmax(graph.dense(graph.global_pool(x), 12)))


def factored(name: str) -> onnx.ModelProto:
    """Windows of 3 by 1 and 1 by 3 behind each other (Szegedy et al. 2016): float32[1, 24, 24, 16] -> 10; 9.7 M."""
    graph = Graph(name, (1, 24, 24, 16), padding="same")
    x = graph.channels_first("input")
    for channels in (32, 32, 32):
        x = graph.conv(graph.conv(x, channels, (3, 1), activation="relu"), channels, (1, 3), activation="relu")
    return graph.model(graph.softmax(graph.dense(graph.global_pool(x), 10)))


def wide_windows(name: str) -> onnx.ModelProto:
    """Windows of 5 by 5, as small image classifiers had them: float32[1, 32, 32, 3] -> 10 classes; 12.0 M."""
    graph = Graph(name, (1, 32, 32, 3), padding="same")
    x = graph.conv(graph.channels_first("input"), 16, 5, stride=2, activation="relu")
    for channels, stride in ((24, 1), (24, 1), (48, 2), (48, 1)):
        x = graph.conv(x, channels, 5, stride=stride, activation="relu")
    return graph.model(graph.softmax(graph.dense(graph.global_pool(x), 10)))
