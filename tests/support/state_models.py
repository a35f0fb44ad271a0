"""Models that keep something from one run to the next, in the forms in which ONNX files bring it."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from tests.support.onnx_models import NODE, model_of, weights

HIDDEN, FEATURES = 16, 24


def voice_detector() -> onnx.ModelProto:
    """A detector like Silero's: convolutions over one chunk, an LSTM whose state goes in and comes out, a probability.

    x float32[1, 1, 64], h and c float32[1, 1, 16] -> probability float32[1, 1], hn, cn.
    """
    nodes = [
        NODE("Conv", ["x", "w1", "b1"], ["c1"], name="stft", strides=[8], pads=[4, 4], kernel_shape=[16]),
        NODE("Relu", ["c1"], ["r1"], name="relu_1"),
        NODE("Conv", ["r1", "w2", "b2"], ["c2"], name="encoder", strides=[2], pads=[1, 1], kernel_shape=[3]),
        NODE("Relu", ["c2"], ["r2"], name="relu_2"),
        NODE("ReduceMean", ["r2"], ["m"], name="mean", axes=[2], keepdims=0),
        NODE("Unsqueeze", ["m", "front"], ["sequence"], name="step"),
        NODE("LSTM", ["sequence", "w", "r", "b", "", "h", "c"], ["", "hn", "cn"], name="decoder", hidden_size=HIDDEN),
        NODE("Squeeze", ["hn", "front"], ["flat"], name="last"),
        NODE("Gemm", ["flat", "wo", "bo"], ["logit"], name="head", transB=1),
        NODE("Sigmoid", ["logit"], ["probability"], name="sigmoid"),
    ]
    constants = {
        "w1": weights(12, 1, 16), "b1": weights(12, seed=1), "w2": weights(FEATURES, 12, 3, seed=2),
        "b2": weights(FEATURES, seed=3), "front": np.array([0], np.int64),
        "w": weights(1, 4 * HIDDEN, FEATURES, seed=4) * 4, "r": weights(1, 4 * HIDDEN, HIDDEN, seed=5) * 4,
        "b": weights(1, 8 * HIDDEN, seed=6), "wo": weights(1, HIDDEN, seed=7), "bo": weights(1, seed=8),
    }  # fmt: skip
    state = (1, 1, HIDDEN)
    return model_of(nodes, {"x": (1, 1, 64), "h": state, "c": state}, ["probability", "hn", "cn"], constants)


def gate() -> onnx.ModelProto:
    """A GRU whose state goes in and comes out, and a dense layer: x float32[1, 1, 6], h float32[1, 1, 5] -> y, hn."""
    nodes = [
        NODE("GRU", ["x", "w", "r", "b", "", "h"], ["", "hn"], name="gru", hidden_size=5, linear_before_reset=1),
        NODE("Squeeze", ["hn", "front"], ["flat"], name="last"),
        NODE("Gemm", ["flat", "wo", "bo"], ["y"], name="head", transB=1),
    ]
    constants = {
        "w": weights(1, 15, 6, seed=1) * 2, "r": weights(1, 15, 5, seed=2) * 2, "b": weights(1, 30, seed=3),
        "front": np.array([0], np.int64), "wo": weights(3, 5, seed=4), "bo": weights(3, seed=5),
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 1, 6), "h": (1, 1, 5)}, ["y", "hn"], constants)


def delays() -> onnx.ModelProto:
    """A filter of three taps, its line of delays as states: one is the other's next value.

    x, z1, z2 float32[1, 8] -> y, z1.next, z2.next float32[1, 8].
    """
    nodes = [
        NODE("Mul", ["x", "a0"], ["p0"]),
        NODE("Mul", ["z1", "a1"], ["p1"]),
        NODE("Mul", ["z2", "a2"], ["p2"]),
        NODE("Add", ["p0", "p1"], ["s"]),
        NODE("Add", ["s", "p2"], ["y"]),
        NODE("Identity", ["x"], ["z1.next"]),
        NODE("Identity", ["z1"], ["z2.next"]),
    ]
    constants = {f"a{tap}": np.float32(0.5 + tap) for tap in range(3)}
    port = (1, 8)
    return model_of(nodes, {"x": port, "z1": port, "z2": port}, ["y", "z1.next", "z2.next"], constants)


def swapped() -> onnx.ModelProto:
    """Two states that change places in each run, which no order of copies does."""
    nodes = [
        NODE("Add", ["x", "a"], ["y"]),
        NODE("Identity", ["b"], ["a.next"]),
        NODE("Identity", ["a"], ["b.next"]),
    ]
    port = (1, 5)
    return model_of(nodes, {"x": port, "a": port, "b": port}, ["y", "a.next", "b.next"])


def counter() -> onnx.ModelProto:
    """A number that each run adds to, and gives as an output too."""
    nodes = [NODE("Add", ["count", "x"], ["count.next"]), NODE("Mul", ["count.next", "two"], ["y"])]
    ports: dict[str, tuple[tuple[int, ...], int]] = {name: ((1, 3), TensorProto.INT32) for name in ("x", "count")}
    return model_of(nodes, ports, [("y", TensorProto.INT32), ("count.next", TensorProto.INT32)],
                    {"two": np.array(2, np.int32)})  # fmt: skip


def integrator() -> onnx.ModelProto:
    """A slow mean of what comes in, which a coarse state never reaches: x, h float32[1, 8] -> y, h.next."""
    nodes = [
        NODE("Mul", ["h", "most"], ["kept"]),
        NODE("Mul", ["x", "little"], ["added"]),
        NODE("Add", ["kept", "added"], ["h.next"]),
        NODE("Mul", ["h.next", "two"], ["y"]),
    ]
    constants = {"most": np.float32(0.995), "little": np.float32(0.005), "two": np.float32(2)}
    return model_of(nodes, {"x": (1, 8), "h": (1, 8)}, ["y", "h.next"], constants)


def growing() -> onnx.ModelProto:
    """A sum of all that came in: x, h float32[1, 8] -> y, h.next."""
    nodes = [NODE("Add", ["h", "x"], ["h.next"]), NODE("Relu", ["h.next"], ["y"])]
    return model_of(nodes, {"x": (1, 8), "h": (1, 8)}, ["y", "h.next"])


def set_to_constant() -> onnx.ModelProto:
    """A state that is read in the first run only: each run leaves the same in it."""
    nodes = [NODE("Add", ["x", "h"], ["y"]), NODE("Identity", ["three"], ["h.next"])]
    return model_of(nodes, {"x": (1, 4), "h": (1, 4)}, ["y", "h.next"], {"three": np.full((1, 4), 3, np.float32)})


def frames(*, channels: int = 8, rows: int = 5, pushed: int = 1, then: str = "Conv") -> onnx.ModelProto:
    """A convolution over a window of frames, of which each run brings `pushed` new ones; NCHW, frames are rows."""
    kept = rows - pushed
    if then == "Conv":
        last = NODE("Conv", ["window", "w"], ["y"], kernel_shape=[rows, 1])
        constants = {"w": weights(6, channels, rows, 1, seed=3)}
    else:
        last = NODE("ReduceMax", ["window"], ["y"], axes=[2], keepdims=1)
        constants = {}
    nodes = [
        NODE("Relu", ["x"], ["r"]),
        NODE("Concat", ["before", "r"], ["window"], axis=2),
        last,
        NODE("Slice", ["window", "begin", "end", "axis"], ["before.next"]),
    ]
    constants |= {
        "begin": np.array([pushed], np.int64), "end": np.array([rows], np.int64), "axis": np.array([2], np.int64)
    }  # fmt: skip
    ports = {"x": (1, channels, pushed, 1), "before": (1, channels, kept, 1)}
    return model_of(nodes, ports, ["y", "before.next"], constants)
