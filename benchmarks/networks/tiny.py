"""The four networks of MLPerf Tiny, after their TensorFlow sources: images come as [1, H, W, C], padding is `same`."""

from __future__ import annotations

import onnx

from benchmarks.networks.graph import Graph


def ds_cnn(name: str) -> onnx.ModelProto:
    """Keyword spotting (Zhang et al. 2017): float32[1, 49, 10, 1] -> 12 words; 2.66 M multiply-adds."""
    graph = Graph(name, (1, 49, 10, 1), padding="same")
    x = graph.conv(graph.channels_first("input"), 64, (10, 4), stride=2, activation="relu")
    for _ in range(4):
        x = graph.conv(graph.depthwise(x, 3, activation="relu"), 64, activation="relu")
    return graph.model(graph.softmax(graph.dense(graph.global_pool(x), 12)))


def mobilenet_v1(name: str) -> onnx.ModelProto:
    """Visual wake words (Howard et al. 2017), a quarter of the width: float32[1, 96, 96, 3] -> 2; 7.5 M."""
    graph = Graph(name, (1, 96, 96, 3), padding="same")
    x = graph.conv(graph.channels_first("input"), 8, 3, stride=2, activation="relu")
    blocks = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1)]
    for channels, stride in blocks:
        x = graph.conv(graph.depthwise(x, 3, stride=stride, activation="relu"), channels, activation="relu")
    return graph.model(graph.softmax(graph.dense(graph.global_pool(x), 2)))


def resnet8(name: str) -> onnx.ModelProto:
    """Image classification (He et al. 2016): float32[1, 32, 32, 3] -> 10 classes; 12.5 M."""
    graph = Graph(name, (1, 32, 32, 3), padding="same")
    x = graph.conv(graph.channels_first("input"), 16, 3, activation="relu")
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        y = graph.conv(graph.conv(x, channels, 3, stride=stride, activation="relu"), channels, 3)
        shortcut = x if stride == 1 else graph.conv(x, channels, stride=stride)
        x = graph.add(shortcut, y, activation="relu")
    return graph.model(graph.softmax(graph.dense(graph.global_pool(x), 10)))


def autoencoder(name: str) -> onnx.ModelProto:
    """Anomaly detection (Koizumi et al. 2020): float32[1, 640] through 8 values back to 640; 0.264 M."""
    graph = Graph(name, (1, 640), padding="same")
    x = "input"
    for features in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = graph.dense(x, features, activation="relu")
    return graph.model(graph.dense(x, 640))
