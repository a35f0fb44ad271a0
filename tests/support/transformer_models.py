"""Small transformers in ONNX: an encoder block, a compact convolutional transformer, a decoder whole and by tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from tests.support.onnx_models import NODE, model_of

SLOTS, WIDTH, HEADS = 8, 16, 2
"""Tokens that the decoder's cache holds, elements of a token, heads."""
MASKED = -1e4


@dataclass
class Graph:
    """Nodes and constants as they are written; every method gives the name of a tensor.

    scope: what names begin with from now on, so that a block can be written more than once.
    """

    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    quantized: bool = False
    scope: str = ""

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants[self.scope + name] = array
        return self.scope + name

    def node(self, operator: str, inputs: list[str], name: str, **attributes: object) -> str:
        scoped = self.scope + name
        self.nodes.append(NODE(operator, inputs, [scoped], name=scoped, **attributes))
        return scoped

    def random(self, name: str, *shape: int) -> np.ndarray:
        return np.random.default_rng([*(self.scope + name).encode()]).standard_normal(shape).astype(np.float32)

    def dense(self, x: str, name: str, depth: int, channels: int) -> str:
        weight = self.random(name, depth, channels) / np.sqrt(depth)
        product = self.node("MatMul", [x, self._weight(f"{name}_w", weight.astype(np.float32))], f"{name}_product")
        if self.quantized:
            return self.on_grid(product, 1 / 16)
        bias = self.constant(f"{name}_b", np.linspace(-0.5, 0.5, channels, dtype="f4"))
        return self.node("Add", [product, bias], name)

    def _weight(self, name: str, weight: np.ndarray) -> str:
        if not self.quantized:
            return self.constant(name, weight)
        integers = np.clip(np.rint(weight * 64), -127, 127).astype(np.int8)
        return self.real(self.constant(f"{name}_integers", integers), 1 / 64)

    def integers(self, x: str, scale: float, zero_point: int = 0) -> str:
        return self.node("QuantizeLinear", [x, *self._parameters(scale, zero_point)], f"{x}_quantized")

    def real(self, x: str, scale: float, zero_point: int = 0) -> str:
        return self.node("DequantizeLinear", [x, *self._parameters(scale, zero_point)], f"{x}_real")

    def on_grid(self, x: str, scale: float, zero_point: int = 0) -> str:
        """A tensor quantized and dequantized; as it is in a float model."""
        return self.real(self.integers(x, scale, zero_point), scale, zero_point) if self.quantized else x

    def _parameters(self, scale: float, zero_point: int) -> tuple[str, str]:
        names = f"scale_{scale}", f"zero_point_{zero_point}"
        return self.constant(names[0], np.float32(scale)), self.constant(names[1], np.int8(zero_point))

    def reshaped(self, x: str, name: str, *shape: int) -> str:
        return self.node("Reshape", [x, self.constant(f"{name}_shape", np.array(shape, np.int64))], name)

    def split(self, x: str, name: str, tokens: int, width: int, heads: int) -> str:
        """[batch, tokens, width] -> [batch, heads, tokens, width / heads]."""
        parts = self.reshaped(x, f"{name}_parts", -1, tokens, heads, width // heads)
        return self.node("Transpose", [parts], f"{name}_heads", perm=[0, 2, 1, 3])

    def attention(self, q: str, k: str, v: str, queries: int, keys: int, width: int, heads: int, mask: str = "") -> str:
        queried = self.split(q, "q", queries, width, heads)
        known = self.node("Transpose", [self.split(k, "k", keys, width, heads)], "k_columns", perm=[0, 1, 3, 2])
        scale = self.constant("scale", np.float32(np.sqrt(width / heads)))
        scores = self.node("Div", [self.node("MatMul", [queried, known], "products"), scale], "scores")
        scores = self.on_grid(scores, 1 / 16)
        if mask:
            scores = self.node("Add", [scores, mask], "masked")
        shares = self.on_grid(self.node("Softmax", [scores], "shares", axis=-1), 1 / 256, -128)
        sums = self.node("MatMul", [shares, self.split(v, "v", keys, width, heads)], "sums")
        together = self.node("Transpose", [self.on_grid(sums, 1 / 32)], "together", perm=[0, 2, 1, 3])
        return self.dense(self.reshaped(together, "attended", -1, queries, width), "o", width, width)

    def normalized(self, x: str, name: str, width: int) -> str:
        weight = self.constant(f"{name}_weight", np.linspace(0.7, 1.4, width, dtype="f4"))
        bias = self.constant(f"{name}_bias", np.linspace(-0.2, 0.3, width, dtype="f4"))
        return self.node("LayerNormalization", [x, weight, bias], name, axis=-1, epsilon=1e-5)

    def block(self, x: str, tokens: int, width: int, heads: int) -> str:
        """An encoder block: attention and two dense layers with GELU, each behind a LayerNorm and beside its input."""
        first = self.normalized(x, "n1", width)
        q, k, v = (self.dense(first, name, width, width) for name in ("q_all", "k_all", "v_all"))
        x = self.node("Add", [x, self.attention(q, k, v, tokens, tokens, width, heads)], "attended_sum")
        inner = self.dense(self.normalized(x, "n2", width), "inner", width, 2 * width)
        scaled = self.node("Mul", [inner, self.constant("half_root", np.float32(0.5**0.5))], "scaled")
        one = self.node("Add", [self.node("Erf", [scaled], "erf"), self.constant("one", np.float32(1))], "one_more")
        gelu = self.node("Mul", [self.node("Mul", [inner, one], "g"), self.constant("half", np.float32(0.5))], "gelu")
        return self.node("Add", [x, self.dense(gelu, "outer", 2 * width, width)], "block")


def encoder_block(tokens: int = 64, width: int = 64, heads: int = 8) -> onnx.ModelProto:
    """x: float32[1, tokens, width] -> block, of the same shape."""
    graph = Graph()
    graph.block("x", tokens, width, heads)
    return model_of(graph.nodes, {"x": (1, tokens, width)}, ["block"], graph.constants)


def compact_transformer() -> onnx.ModelProto:
    """An image's tokens by a convolution and a pool, one block, tokens weighed and summed, 5 classes."""
    graph, width, tokens = Graph(), 16, 16
    weight = np.random.default_rng(1).standard_normal((width, 3, 3, 3)).astype("f4") / 5
    conv = graph.node("Conv", ["image", graph.constant("w", weight)], "conv", pads=[1, 1, 1, 1])
    pool = graph.node("MaxPool", [graph.node("Relu", [conv], "relu")], "pool", kernel_shape=[2, 2], strides=[2, 2])
    flat = graph.reshaped(pool, "flat", 1, width, tokens)
    x = graph.node("Transpose", [flat], "tokens", perm=[0, 2, 1])
    position = np.random.default_rng(2).standard_normal((1, tokens, width)).astype("f4") / 4
    x = graph.node("Add", [x, graph.constant("position", position)], "placed")
    x = graph.normalized(graph.block(x, tokens, width, 4), "last", width)
    weights = graph.node("Softmax", [graph.dense(x, "weigh", width, 1)], "weights", axis=1)
    row = graph.node("Transpose", [weights], "row", perm=[0, 2, 1])
    pooled = graph.reshaped(graph.node("MatMul", [row, x], "pooled"), "vector", 1, width)
    graph.dense(pooled, "classes", width, 5)
    return model_of(graph.nodes, {"image": (1, 3, 8, 8)}, ["classes"], graph.constants)


def eeg_transformer() -> onnx.ModelProto:
    """An EEGformer in small: x float32[1, 22, 256], electrodes and samples -> classes float32[1, 4].

    Two depthwise convolutions over time make of each electrode 4 features of 16 places. Blocks attend to the electrodes
    of one feature (regional), the features of one electrode (synchronous), and places in time (temporal).
    After Wan et al., EEGformer: A transformer-based brain activity classification method using EEG signal, 2023.
    """
    graph, (electrodes, features, places) = Graph(), (22, 4, 16)
    x, channels = "x", electrodes * features
    for name, kernel in (("first", (channels, 1, 9)), ("second", (channels, 1, 8))):
        weight = graph.constant(f"{name}_w", graph.random(name, *kernel) / 3)
        padding, groups = [(kernel[2] - 4) // 2, (kernel[2] - 3) // 2], electrodes if name == "first" else channels
        convolved = graph.node("Conv", [x, weight], name, strides=[4], pads=padding, group=groups)
        x = graph.node("Relu", [convolved], f"{name}_relu")
    x = graph.reshaped(x, "tokens", electrodes, features, places)
    for scope, tokens in (("regional_", electrodes), ("synchronous_", features)):
        x = graph.node("Transpose", [x], f"{scope}tokens", perm=[1, 0, 2])
        graph.scope = scope
        position = graph.constant("position", graph.random("position", 1, tokens, places) / 4)
        x = graph.block(graph.node("Add", [x, position], "placed"), tokens, places, 2)
        graph.scope = ""
    times = graph.node("Transpose", [graph.reshaped(x, "features", 1, channels, places)], "times", perm=[0, 2, 1])
    x, graph.scope = graph.dense(times, "narrowed", channels, WIDTH), "temporal_"
    x, graph.scope = graph.block(x, places, WIDTH, 2), ""
    pooled = graph.node("ReduceMean", [graph.normalized(x, "last", WIDTH)], "pooled", axes=[1], keepdims=0)
    graph.dense(pooled, "classes", WIDTH, 4)
    return model_of(graph.nodes, {"x": (1, electrodes, 256)}, ["classes"], graph.constants)


def activations(*, quantized: bool) -> onnx.ModelProto:
    """x: float32[1, 6, WIDTH] through GELU by erf, by tanh, and SiLU, written out, behind a dense layer each."""
    graph = Graph(quantized=quantized)
    x = graph.on_grid("x", 1 / 32)

    def number(name: str, value: float) -> str:
        return graph.constant(name, np.float32(value))

    def half_of(x: str, gate: str, name: str) -> str:
        one = graph.node("Add", [gate, number("one", 1)], f"{name}_one_more")
        return graph.node("Mul", [graph.node("Mul", [x, one], f"{name}_product"), number("half", 0.5)], name)

    def erf_form(x: str) -> str:
        scaled = graph.node("Div", [x, number("root", 2**0.5)], "scaled")
        return half_of(x, graph.node("Erf", [scaled], "erf"), "by_erf")

    def tanh_form(x: str) -> str:
        cube = graph.node("Mul", [graph.node("Pow", [x, number("three", 3)], "cube"), number("c", 0.044715)], "cubes")
        scaled = graph.node("Mul", [graph.node("Add", [x, cube], "sum"), number("r", (2 / np.pi) ** 0.5)], "scaled_sum")
        return half_of(x, graph.node("Tanh", [scaled], "tanh"), "by_tanh")

    def silu(x: str) -> str:
        return graph.node("Mul", [x, graph.node("Sigmoid", [x], "sigmoid")], "silu")

    for name, function in (("d1", erf_form), ("d2", tanh_form), ("d3", silu)):
        x = graph.on_grid(function(graph.dense(x, name, WIDTH, WIDTH)), 1 / 32, -100)
    graph.node("Identity", [x], "y")
    return model_of(graph.nodes, {"x": (1, 6, WIDTH)}, ["y"], graph.constants)


def rotary_decoder() -> onnx.ModelProto:
    """ids: int64[1, SLOTS] -> y float32[1, SLOTS, WIDTH], quantized.

    Embeddings, rotary causal attention beside them, SiLU, positions.
    Queries and keys are turned by their places: x * cos + rotate_half(x) * sin.
    """
    graph, half = Graph(quantized=True), WIDTH // HEADS // 2
    table = np.clip(np.rint(graph.random("table", 20, WIDTH) * 32), -127, 127).astype(np.int8)
    rows = graph.real(graph.constant("table_integers", table), 1 / 32)
    x = graph.on_grid(graph.node("Gather", [rows, "ids"], "embedded", axis=0), 1 / 32)
    angles = np.outer(np.arange(SLOTS), 100.0 ** -(np.arange(half) / half)).astype("f4")
    turns = {name: np.tile(f(angles), (1, 2))[:, np.newaxis] for name, f in (("cos", np.cos), ("sin", np.sin))}

    def turned(x: str, name: str) -> str:
        graph.scope = f"turned_{name}_"
        parts = graph.reshaped(x, "parts", 1, SLOTS, HEADS, 2 * half)
        ends = [graph.constant(f"end_{place}", np.array([place], np.int64)) for place in (0, half, 2 * half)]
        last = graph.constant("last", np.array([3], np.int64))
        first, second = (graph.node("Slice", [parts, ends[i], ends[i + 1], last], f"half_{i}") for i in range(2))
        negative = graph.on_grid(graph.node("Neg", [second], "negative"), 1 / 16)
        other = graph.on_grid(graph.node("Concat", [negative, first], "other", axis=3), 1 / 16)
        products = [
            graph.on_grid(graph.node("Mul", [value, graph.constant(turn, turns[turn])], f"by_{turn}"), 1 / 16)
            for value, turn in ((parts, "cos"), (other, "sin"))
        ]
        whole = graph.on_grid(graph.node("Add", products, "turned"), 1 / 16)
        flat = graph.reshaped(whole, "flat", 1, SLOTS, WIDTH)
        graph.scope = ""
        return flat

    q, k, v = (graph.dense(x, name, WIDTH, WIDTH) for name in ("q_all", "k_all", "v_all"))
    mask = graph.constant("mask", np.triu(np.full((SLOTS, SLOTS), MASKED, "f4"), 1)[np.newaxis, np.newaxis])
    attended = graph.attention(turned(q, "q"), turned(k, "k"), v, SLOTS, SLOTS, WIDTH, HEADS, mask)
    x = graph.on_grid(graph.node("Add", [x, attended], "total"), 1 / 16)
    silu = graph.on_grid(graph.node("Mul", [x, graph.node("Sigmoid", [x], "gate")], "silu"), 1 / 16)
    places = graph.constant("places", graph.random("places", SLOTS, WIDTH))
    graph.node("Identity", [graph.on_grid(graph.node("Add", [silu, places], "placed"), 1 / 16)], "y")
    return model_of(graph.nodes, {"ids": ((1, SLOTS), TensorProto.INT64)}, ["y"], graph.constants)


def decoder(*, by_tokens: bool, quantized: bool) -> onnx.ModelProto:
    """Causal attention beside its input, over SLOTS tokens.

    Whole: x: float32[1, SLOTS, WIDTH]. by_tokens: one token, and as states the keys and values of the tokens before it,
    the newest last, and which of them there are; the scales of int8 tensors are the same.
    """
    graph = Graph(quantized=quantized)
    queries = 1 if by_tokens else SLOTS
    x = graph.on_grid("x", 1 / 32)
    q, k, v = (graph.dense(x, name, WIDTH, WIDTH) for name in ("q_all", "k_all", "v_all"))
    mask = graph.constant("mask", np.triu(np.full((SLOTS, SLOTS), MASKED, "f4"), 1)[np.newaxis, np.newaxis])
    inputs: dict[str, tuple[tuple[int, ...], int]] = {"x": ((1, queries, WIDTH), TensorProto.FLOAT)}
    outputs: list[tuple[str, int]] = [("y", TensorProto.FLOAT)]
    if by_tokens:
        kind = TensorProto.INT8 if quantized else TensorProto.FLOAT
        inputs |= {"keys": ((1, SLOTS, WIDTH), kind), "values": ((1, SLOTS, WIDTH), kind)}
        inputs |= {"there": ((1, 1, 1, SLOTS), TensorProto.FLOAT)}
        outputs += [("keys.next", kind), ("values.next", kind), ("there.next", TensorProto.FLOAT)]
        k, v = (_pushed(graph, state, new) for state, new in (("keys", k), ("values", v)))
        one = graph.constant("one", np.ones((1, 1, 1, 1), "f4"))
        there = _shifted(graph, "there", one, axis=3)
        absent = graph.node("Sub", [there, graph.constant("all", np.float32(1))], "absent")
        mask = graph.node("Mul", [absent, graph.constant("far", np.float32(-MASKED))], "mask")
        del graph.constants["mask"]
    attended = graph.attention(q, k, v, queries, SLOTS, WIDTH, HEADS, mask)
    graph.node("Add", [x, attended], "total")
    graph.node("Identity", [graph.on_grid("total", 1 / 16)], "y")
    return model_of(graph.nodes, inputs, outputs, graph.constants)


def _pushed(graph: Graph, state: str, new: str) -> str:
    """A cache without its oldest token, and with a new one."""
    if not graph.quantized:
        return _shifted(graph, state, new, axis=1)
    integers = new.removesuffix("_real")
    return graph.real(_shifted(graph, state, integers, axis=1), 1 / 16)


def _shifted(graph: Graph, state: str, new: str, axis: int) -> str:
    bounds = [
        graph.constant(f"{state}_{role}", np.array([number], np.int64))
        for role, number in (("begin", 1), ("end", SLOTS), ("axis", axis))
    ]
    kept = graph.node("Slice", [state, *bounds], f"{state}_kept")
    return graph.node("Concat", [kept, new], f"{state}.next", axis=axis)
