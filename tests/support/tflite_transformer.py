"""An encoder block of a transformer in TensorFlow Lite's operators, as its converter writes one, int8 or float."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.support.tflite_file import Quantized
from tests.support.tflite_models import Network


class Block(Network):
    """Writes an encoder block; shapes follow from its input [1, tokens, width]."""

    def op(self, kind: str, inputs: Sequence[int], shape: Sequence[int], largest: float = 4.0, **fields: object) -> int:
        """An operator, and its result of values up to about `largest`, named by how many there are."""
        options = fields.pop("options", "")
        output = self.output(f"{kind.lower()}_{len(self.writer.operators)}", shape, self.scales(largest))
        return self.writer.operator(kind, inputs, output, str(options), **fields)

    def moved(self, kind: str, source: int, shape: Sequence[int], constant: Sequence[int], options: str) -> int:
        """RESHAPE or TRANSPOSE: elements keep their scale."""
        count = len(self.writer.operators)
        given = self.writer.constant(f"{kind.lower()}_{count}_c", np.array(constant, np.int32))
        output = self.output(f"{kind.lower()}_{count}", shape, self.writer.tensors[source].quantized)
        return self.writer.operator(kind, [source, given], output, options)

    def number(self, value: float) -> int:
        count = len(self.writer.tensors)
        if not self.int8:
            return self.writer.constant(f"number_{count}", np.array(value, np.float32))
        return self.writer.constant(f"number_{count}", np.array(100, np.int8), Quantized(scale=value / 100))

    def arithmetic(self, kind: str, a: int, b: int, largest: float = 4.0) -> int:
        shape = np.broadcast_shapes(self.shape(a), self.shape(b))
        return self.op(kind, [a, b], shape, largest, options=f"{kind.capitalize()}Options")

    def layer(self, source: int, channels: int, name: str) -> int:
        """FULLY_CONNECTED of vectors, which keeps the axes."""
        shape = (*self.shape(source)[:-1], channels)
        given = self.weights(name, (channels, self.shape(source)[-1]), 0, source, per_channel=False)
        return self.op(
            "FULLY_CONNECTED", [source, *given], shape, options="FullyConnectedOptions", KeepNumDims=True
        )  # fmt: skip

    def normalized(self, source: int) -> int:
        """Mean, squared differences, their mean, 1 / sqrt, two products and a difference, as Keras writes it."""
        tokens = self.shape(source)[1]
        axis = self.writer.constant(f"axis_{len(self.writer.tensors)}", np.array([2], np.int32))

        def mean(x: int, largest: float) -> int:
            return self.op("MEAN", [x, axis], (1, tokens, 1), largest, options="ReducerOptions", KeepDims=True)

        centre = mean(source, 2.0)
        squares = self.op("SQUARED_DIFFERENCE", [source, centre], self.shape(source), 16.0,
                          options="SquaredDifferenceOptions")  # fmt: skip
        variance = mean(squares, 16.0)
        positive = Quantized(scale=16 / 255, zero_point=-128) if self.int8 else None
        for index in (squares, variance):
            self.writer.tensors[index].quantized = positive
        guarded = self.arithmetic("ADD", variance, self.number(0.5), 16.0)
        self.writer.tensors[guarded].quantized = positive
        inverse = self.op("RSQRT", [guarded], (1, tokens, 1))
        self.writer.tensors[inverse].quantized = Quantized(scale=1.5 / 255, zero_point=-128) if self.int8 else None
        scaled, shift = self.arithmetic("MUL", source, inverse), self.arithmetic("MUL", centre, inverse)
        return self.arithmetic("SUB", scaled, shift)

    def attention(self, source: int, heads: int) -> int:
        _, tokens, width = self.shape(source)
        depth = width // heads

        def split(name: str) -> int:
            parts = self.moved(
                "RESHAPE", self.layer(source, width, name), (1, tokens, heads, depth), (1, tokens, heads, depth),
                "ReshapeOptions",
            )  # fmt: skip
            return self.moved("TRANSPOSE", parts, (1, heads, tokens, depth), (0, 2, 1, 3), "TransposeOptions")

        q, k, v = (split(name) for name in "qkv")
        scores = self.op("BATCH_MATMUL", [q, k], (1, heads, tokens, tokens), 12.0, options="BatchMatMulOptions",
                         AdjY=True)  # fmt: skip
        shares = self.softmax(self.arithmetic("MUL", scores, self.number(depth**-0.5), 8.0), "shares")
        sums = self.op("BATCH_MATMUL", [shares, v], (1, heads, tokens, depth), options="BatchMatMulOptions")
        together = self.moved("TRANSPOSE", sums, (1, tokens, heads, depth), (0, 2, 1, 3), "TransposeOptions")
        return self.layer(
            self.moved("RESHAPE", together, (1, tokens, width), (1, tokens, width), "ReshapeOptions"), width, "o"
        )


def encoder_block(*, int8: bool, tokens: int = 8, width: int = 16, heads: int = 2, activation: str = "GELU") -> bytes:
    """The file: x [1, tokens, width], attention and two layers, each behind a normalization and beside its input."""
    block = Block(int8=int8, seed=5)
    x = block.input((1, tokens, width), "x")
    x = block.arithmetic("ADD", x, block.attention(block.normalized(x), heads), 6.0)
    inner = block.layer(block.normalized(x), 2 * width, "inner")
    options = {"GELU": "GeluOptions"}.get(activation, "")
    active = block.op(activation, [inner], block.shape(inner), options=options)
    if activation in ("TANH", "LOGISTIC") and int8:
        fixed = {"TANH": Quantized(scale=1 / 128), "LOGISTIC": Quantized(scale=1 / 256, zero_point=-128)}
        block.writer.tensors[active].quantized = fixed[activation]
    return block.writer.finish([block.arithmetic("ADD", x, block.layer(active, width, "outer"), 8.0)])
