"""TensorFlow Lite networks with random weights, float or int8, built layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import tflite

from tests.support.tflite_file import Quantized, TfliteWriter

SAME, VALID = tflite.Padding.SAME, tflite.Padding.VALID
NONE, RELU, RELU6 = (getattr(tflite.ActivationFunctionType, name) for name in ("NONE", "RELU", "RELU6"))
PROBABILITIES = Quantized(scale=1 / 256, zero_point=-128)


def window_size(extent: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """Outputs along one axis."""
    reach = (kernel - 1) * dilation + 1
    return -(-extent // stride) if padding == SAME else (extent - reach) // stride + 1


@dataclass(kw_only=True)
class Network:
    """Writes layers one after the other; of integers every tensor has a scale that its values roughly need.

    int8, int16: the element type of activations, float32 by default; beside int16 weights are int8, biases int64.
    """

    int8: bool = False
    int16: bool = False
    seed: int = 0
    writer: TfliteWriter = field(default_factory=TfliteWriter)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    @property
    def dtype(self) -> str:
        return "int8" if self.int8 else "int16" if self.int16 else "float32"

    def sample(self, index: int) -> np.ndarray:
        """Random elements of a tensor, over the whole range of its type."""
        if self.dtype == "float32":
            return self.random.normal(0, 1, self.shape(index)).astype(np.float32)
        limits = np.iinfo(self.dtype)
        return self.random.integers(limits.min, limits.max + 1, self.shape(index)).astype(self.dtype)

    def scales(self, largest: float = 4.0) -> Quantized | None:
        """A scale for values up to about `largest` and any zero point."""
        if self.int16:
            return Quantized(scale=largest / 32768 * float(self.random.uniform(0.5, 1)))
        if not self.int8:
            return None
        return Quantized(
            scale=largest / 128 * float(self.random.uniform(0.5, 1)), zero_point=int(self.random.integers(-128, 128))
        )

    def shape(self, index: int) -> tuple[int, ...]:
        return self.writer.tensors[index].shape

    def input(self, shape: Sequence[int], name: str = "image", signature: Sequence[int] | None = None) -> int:
        return self.writer.input(name, shape, self.dtype, self.scales(), signature=signature)

    def output(self, name: str, shape: Sequence[int], quantized: Quantized | None = None) -> int:
        return self.writer.tensor(name, shape, self.dtype, quantized or self.scales())

    def weights(
        self, name: str, shape: tuple[int, ...], axis: int, source: int, *, per_channel: bool = True
    ) -> list[int]:
        """Weights and bias of a layer on `source`, one scale for each index of `axis`."""
        channels = shape[axis]
        fan_in = int(np.prod(shape)) / channels
        if self.dtype == "float32":
            real = self.random.normal(0, (2 / fan_in) ** 0.5, shape).astype(np.float32)
            bias = self.random.normal(0, 0.1, channels).astype(np.float32)
            return [self.writer.constant(f"{name}/weight", real), self.writer.constant(f"{name}/bias", bias)]
        scale = (3 / fan_in) ** 0.5 / 127 * self.random.uniform(0.3, 1, channels if per_channel else 1)
        integers = self.random.integers(-127, 128, shape).astype(np.int8)
        given = self.writer.tensors[source].quantized
        assert given is not None
        product = (np.float32(given.scale) * scale.astype(np.float32)).astype(np.float32)
        weight = Quantized(scale=scale.astype(np.float32).tolist(), axis=axis if per_channel else 0)
        bias = self.random.integers(-2000, 2000, channels).astype(np.int64 if self.int16 else np.int32)
        bias = bias * 300 if self.int16 else bias
        return [
            self.writer.constant(f"{name}/weight", integers, weight),
            self.writer.constant(f"{name}/bias", bias, Quantized(scale=product.tolist())),
        ]

    def conv(
        self, source: int, channels: int, kernel: tuple[int, int], name: str, *,
        stride: tuple[int, int] = (1, 1), padding: int = SAME, activation: int = RELU,
        dilation: tuple[int, int] = (1, 1), groups: int = 1,
    ) -> int:  # fmt: skip
        n, height, width, depth = self.shape(source)
        given = self.weights(name, (channels, *kernel, depth // groups), 0, source)
        size = [
            window_size(e, k, s, padding, d)
            for e, k, s, d in zip((height, width), kernel, stride, dilation, strict=True)
        ]
        return self.writer.operator(
            "CONV_2D", [source, *given], self.output(name, (n, *size, channels)), "Conv2DOptions",
            Padding=padding, StrideH=stride[0], StrideW=stride[1], FusedActivationFunction=activation,
            DilationHFactor=dilation[0], DilationWFactor=dilation[1],
        )  # fmt: skip

    def depthwise(
        self, source: int, kernel: tuple[int, int], name: str, *, multiplier: int = 1,
        stride: tuple[int, int] = (1, 1), padding: int = SAME, activation: int = RELU,
    ) -> int:  # fmt: skip
        n, height, width, depth = self.shape(source)
        channels = depth * multiplier
        given = self.weights(name, (1, *kernel, channels), 3, source)
        size = [window_size(e, k, s, padding) for e, k, s in zip((height, width), kernel, stride, strict=True)]
        return self.writer.operator(
            "DEPTHWISE_CONV_2D", [source, *given], self.output(name, (n, *size, channels)), "DepthwiseConv2DOptions",
            Padding=padding, StrideH=stride[0], StrideW=stride[1], DepthMultiplier=multiplier,
            FusedActivationFunction=activation, DilationHFactor=1, DilationWFactor=1,
        )  # fmt: skip

    def pool(
        self, source: int, kernel: tuple[int, int], name: str, *, kind: str = "AVERAGE_POOL_2D",
        stride: tuple[int, int] | None = None, padding: int = VALID, activation: int = NONE,
    ) -> int:  # fmt: skip
        n, height, width, depth = self.shape(source)
        stride = stride or kernel
        size = [window_size(e, k, s, padding) for e, k, s in zip((height, width), kernel, stride, strict=True)]
        output = self.output(name, (n, *size, depth), self.writer.tensors[source].quantized)
        return self.writer.operator(
            kind, [source], output, "Pool2DOptions", Padding=padding, StrideH=stride[0], StrideW=stride[1],
            FilterHeight=kernel[0], FilterWidth=kernel[1], FusedActivationFunction=activation,
        )  # fmt: skip

    def binary(self, kind: str, a: int, b: int, name: str, activation: int = NONE) -> int:
        options = f"{kind.capitalize()}Options"
        output = self.output(name, self.shape(a), self.scales(8.0))
        return self.writer.operator(kind, [a, b], output, options, FusedActivationFunction=activation)

    def dense(self, source: int, channels: int, name: str, *, activation: int = NONE, per_channel: bool = False) -> int:
        rows, depth = int(np.prod(self.shape(source)[:-1])), self.shape(source)[-1]
        given = self.weights(name, (channels, depth), 0, source, per_channel=per_channel)
        output = self.output(name, (rows, channels))
        return self.writer.operator(
            "FULLY_CONNECTED", [source, *given], output, "FullyConnectedOptions", FusedActivationFunction=activation
        )

    def reshape(self, source: int, shape: Sequence[int], name: str) -> int:
        target = self.writer.constant(f"{name}/shape", np.array(shape, np.int32))
        sizes = [int(np.prod(self.shape(source))) // -int(np.prod(shape)) if e == -1 else e for e in shape]
        output = self.output(name, sizes, self.writer.tensors[source].quantized)
        return self.writer.operator("RESHAPE", [source, target], output, "ReshapeOptions", NewShape=list(shape))

    def pad(self, source: int, width: Sequence[tuple[int, int]], name: str) -> int:
        amounts = self.writer.constant(f"{name}/width", np.array(width, np.int32))
        sizes = [e + before + after for e, (before, after) in zip(self.shape(source), width, strict=True)]
        output = self.output(name, sizes, self.writer.tensors[source].quantized)
        return self.writer.operator("PAD", [source, amounts], output, "PadOptions")

    def softmax(self, source: int, name: str, beta: float = 1.0) -> int:
        output = self.output(name, self.shape(source), PROBABILITIES if self.int8 else None)
        return self.writer.operator("SOFTMAX", [source], output, "SoftmaxOptions", Beta=beta)


def ds_cnn(*, int8: bool = False, signature: Sequence[int] | None = None) -> bytes:
    """Model like MLPerf Tiny's keyword spotting: depthwise-separable blocks, strides, SAME padding, an average pool."""
    net = Network(int8=int8, seed=1)
    x = net.conv(net.input((1, 25, 10, 1), signature=signature), 16, (10, 4), "stem", stride=(2, 2))
    for block in range(2):
        x = net.depthwise(x, (3, 3), f"depthwise_{block}", activation=RELU6)
        x = net.conv(x, 24, (1, 1), f"pointwise_{block}")
    x = net.pool(x, net.shape(x)[1:3], "pool")
    x = net.dense(net.reshape(x, (-1, 24), "flat"), 12, "logits")
    return net.writer.finish([net.softmax(x, "probabilities")])


def resnet(*, int8: bool = False) -> bytes:
    """Model like MLPerf Tiny's image classification: residual adds over strides, PAD, VALID padding, a max pool."""
    net = Network(int8=int8, seed=2)
    x = net.pad(net.input((1, 12, 12, 3)), [(0, 0), (1, 1), (1, 1), (0, 0)], "padded")
    x = net.conv(x, 8, (3, 3), "stem", padding=VALID)
    x = net.pool(x, (3, 3), "max", kind="MAX_POOL_2D", stride=(2, 2), padding=SAME)
    y = net.conv(net.conv(x, 8, (3, 3), "a1"), 8, (3, 3), "a2", activation=NONE)
    x = net.binary("ADD", x, y, "a", RELU)
    y = net.conv(net.conv(x, 16, (3, 3), "b1", stride=(2, 2)), 16, (3, 3), "b2", activation=NONE)
    x = net.binary("ADD", net.conv(x, 16, (1, 1), "skip", stride=(2, 2), activation=NONE), y, "b", RELU6)
    x = net.pool(x, net.shape(x)[1:3], "pool")
    x = net.dense(net.reshape(x, (-1, 16), "flat"), 10, "logits")
    return net.writer.finish([net.softmax(x, "probabilities")])


def autoencoder(*, int8: bool = False) -> bytes:
    """Model like MLPerf Tiny's anomaly detection: dense layers only."""
    net = Network(int8=int8, seed=3)
    x = net.input((1, 40), "frames")
    for index, width in enumerate((16, 16, 4, 16)):
        x = net.dense(x, width, f"dense_{index}", activation=RELU, per_channel=index == 1)
    return net.writer.finish([net.dense(x, 40, "rebuilt")])


def words() -> bytes:
    """int16 activations: layers with weights of every kind, a leaky relu, a sum, a pool."""
    net = Network(int16=True, seed=4)
    x = net.conv(net.input((1, 9, 8, 3)), 8, (3, 3), "stem", stride=(2, 2))
    y = net.depthwise(x, (3, 3), "depthwise", activation=NONE)
    y = net.writer.operator("LEAKY_RELU", [y], net.output("leaky", net.shape(y)), "LeakyReluOptions", Alpha=0.2)
    x = net.pool(net.binary("ADD", x, y, "sum"), net.shape(x)[1:3], "pool")
    return net.writer.finish([net.dense(net.reshape(x, (-1, 8), "flat"), 6, "logits")])


NETWORKS: dict[str, Callable[..., bytes]] = {"ds_cnn": ds_cnn, "resnet": resnet, "autoencoder": autoencoder}
