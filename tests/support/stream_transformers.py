"""Small transformers over time in ONNX: a convolution, blocks of attention with a mask, and a layer on the last row."""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx

from tests.support.onnx_models import NODE, model_of

FEATURES, WIDTH, HEADS, HIDDEN, CLASSES, TAPS = 8, 16, 2, 32, 4, 3
Mask = Literal["causal", "where", "distances", "both sides", "rows", "none"]
_STEP = 1 / 16
"""Scale of the quantized tensors."""


def transformer(
    frames: int,
    *,
    blocks: int = 2,
    mask: Mask = "causal",
    reach: int = 0,
    ahead: int = 0,
    head: Literal["last", "mean"] = "last",
    positions: bool = False,
    quantized: bool = False,
) -> onnx.ModelProto:
    """Return a model of x[1, features, frames].

    mask: `causal`, `where` and `both sides` remove scores, the last one those of rows further away than `reach` on both
    sides; `distances` adds a number that depends on the distance; `rows` removes every third row of keys.
    reach: rows that each row reads; 0 for all rows up to it. ahead: rows of padding ahead of the first frame.
    quantized: whether products and sums are rounded to int8.
    """
    rows = frames + ahead - TAPS + 1
    net = _Network(rows=rows, quantized=quantized)
    x = net.rounded(net.node("Conv", "x", net.weights(WIDTH, FEATURES, TAPS), net.weights(WIDTH), pads=[ahead, 0]))
    x = net.node("Transpose", net.node("Relu", x), perm=[0, 2, 1])
    if positions:
        x = net.node("Add", x, net.weights(1, rows, WIDTH))
    for _ in range(blocks):
        x = _block(net, x, mask, reach or rows)
    step = net.node("Gather", x, net.constant(np.array(-1)), axis=1) if head == "last" else ""
    step = step or net.node("ReduceMean", x, axes=[1], keepdims=0)
    net.nodes.append(NODE("MatMul", [step, net.weights(WIDTH, CLASSES)], ["y"], "head"))
    return model_of(net.nodes, {"x": (1, FEATURES, frames)}, ["y"], net.constants)


def _block(net: _Network, x: str, mask: Mask, reach: int) -> str:
    normal = net.normal(x)
    queries, keys, values = (
        net.node("Transpose", net.node("Reshape", net.dense(normal, WIDTH, WIDTH), net.shape(HEADS, WIDTH // HEADS)),
                 perm=order)
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )  # fmt: skip
    scores = net.rounded(net.node("MatMul", queries, keys))
    scores = net.masked(net.node("Div", scores, net.constant(np.float32(np.sqrt(WIDTH // HEADS)))), mask, reach)
    shares = net.rounded(net.node("Softmax", scores, axis=-1), scale=1 / 128)
    made = net.node("Transpose", net.rounded(net.node("MatMul", shares, values)), perm=[0, 2, 1, 3])
    x = net.rounded(net.node("Add", x, net.dense(net.node("Reshape", made, net.shape(WIDTH)), WIDTH, WIDTH)))
    inner = net.node("Relu", net.dense(net.normal(x), WIDTH, HIDDEN))
    return net.rounded(net.node("Add", x, net.dense(inner, HIDDEN, WIDTH)))


class _Network:
    """A growing list of nodes and constants. Weights do not depend on the number of frames."""

    def __init__(self, *, rows: int, quantized: bool) -> None:
        self.rows, self.quantized = rows, quantized
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(NODE(kind, list(inputs), [name], f"{kind.lower()}_{len(self.nodes)}", **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def weights(self, *shape: int, around: float = 0.0) -> str:
        random = np.random.default_rng(len(self.constants))
        fan_in = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
        return self.constant((around + random.standard_normal(shape) / np.sqrt(max(fan_in, 4))).astype(np.float32))

    def shape(self, *inner: int) -> str:
        return self.constant(np.array([1, self.rows, *inner]))

    def rounded(self, x: str, scale: float = _STEP) -> str:
        if not self.quantized:
            return x
        given = [self.constant(np.float32(scale)), self.constant(np.int8(0))]
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *given), *given)

    def dense(self, x: str, channels: int, units: int) -> str:
        weights = self.weights(channels, units)
        if self.quantized:
            scales = [self.constant(np.float32(1 / 64)), self.constant(np.int8(0))]
            integers = np.clip(np.rint(self.constants.pop(weights) * 64), -127, 127).astype(np.int8)
            self.constants[weights] = integers
            weights = self.node("DequantizeLinear", weights, *scales)
        return self.rounded(self.node("Add", self.node("MatMul", x, weights), self.weights(units)))

    def normal(self, x: str) -> str:
        made = self.node("LayerNormalization", x, self.weights(WIDTH, around=1.0), self.weights(WIDTH), axis=-1)
        return self.rounded(made)

    def masked(self, scores: str, mask: Mask, reach: int) -> str:
        distances = np.arange(self.rows)[:, None] - np.arange(self.rows)[None, :]
        is_read = (distances >= 0) & (distances < reach)
        if mask == "where":
            removed = self.constant(np.float32(-1e9))
            return self.node("Where", self.constant(is_read), scores, removed)
        if mask == "both sides":
            is_read = abs(distances) <= reach
        elif mask == "rows":
            is_read = np.broadcast_to(np.arange(self.rows) % 3 > 0, distances.shape)
        added = np.where(is_read, 0.0, -np.inf)
        if mask == "distances":
            added = added - np.array([0.1, 0.2]).reshape(HEADS, 1, 1) * np.maximum(distances, 0)
        return scores if mask == "none" else self.node("Add", scores, self.constant(added.astype(np.float32)))
