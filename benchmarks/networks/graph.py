"""Writes an ONNX graph layer by layer, with weights drawn so that activations keep their size from layer to layer."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import prod
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 10

Activation = Literal["relu", "relu6"]
Shape = tuple[int, ...]


class Graph:
    """A network under construction. Every layer takes and returns a tensor's name; images are [1, C, H, W].

    padding: `same` puts the odd row and column of a stride after the image, as TensorFlow does; `symmetric`
    gives kernel // 2 on every side, as PyTorch's networks do.
    """

    def __init__(self, name: str, shape: Shape, *, padding: Literal["same", "symmetric"]) -> None:
        self.name, self.padding = name, padding
        self.shapes: dict[str, Shape] = {"input": shape}
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[TensorProto] = []
        self._random = np.random.default_rng(zlib.crc32(name.encode()))

    def channels_first(self, x: str) -> str:
        """[1, H, W, C] -> [1, C, H, W]."""
        n, h, w, c = self.shapes[x]
        return self._node("Transpose", [x], (n, c, h, w), perm=[0, 3, 1, 2])

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int | tuple[int, int] = 1,
        *,
        stride: int = 1,
        activation: Activation | None = None,
    ) -> str:
        """A convolution with bias to `channels` channels."""
        return self._conv(x, channels, kernel, stride=stride, group=1, activation=activation)

    def depthwise(self, x: str, kernel: int, *, stride: int = 1, activation: Activation | None = None) -> str:
        """A convolution of each channel on its own, with bias."""
        channels = self.shapes[x][1]
        return self._conv(x, channels, kernel, stride=stride, group=channels, activation=activation)

    def dense(self, x: str, features: int, *, activation: Activation | None = None) -> str:
        """A fully connected layer with bias over [1, K]."""
        rows, depth = self.shapes[x]
        weight = self._weight("weight", (features, depth), depth, gain=2.0 if activation else 1.0)
        y = self._node("Gemm", [x, weight, self._bias(features)], (rows, features), transB=1)
        return self._activate(y, activation)

    def add(self, a: str, b: str, *, activation: Activation | None = None) -> str:
        """The sum of two tensors of one shape."""
        return self._activate(self._node("Add", [a, b], self.shapes[a]), activation)

    def global_pool(self, x: str) -> str:
        """Mean over each channel: [1, C, H, W] -> [1, C]."""
        n, c, _, _ = self.shapes[x]
        pooled = self._node("GlobalAveragePool", [x], (n, c, 1, 1))
        return self._node("Flatten", [pooled], (n, c), axis=1)

    def softmax(self, x: str) -> str:
        """Probabilities over the last axis."""
        return self._node("Softmax", [x], self.shapes[x], axis=-1)

    def model(self, result: str) -> onnx.ModelProto:
        """The checked model: float32 `input` to float32 `output`, which is `result`."""
        for node in self._nodes:
            node.output[:] = ["output" if name == result else name for name in node.output]
        inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, self.shapes["input"])]
        outputs = [helper.make_tensor_value_info("output", TensorProto.FLOAT, self.shapes[result])]
        graph = helper.make_graph(self._nodes, self.name, inputs, outputs, initializer=self._weights)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="tvm_ext zoo"
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def _conv(
        self,
        x: str,
        channels: int,
        kernel: int | tuple[int, int],
        *,
        stride: int,
        group: int,
        activation: Activation | None,
    ) -> str:
        n, depth, *image = self.shapes[x]
        window = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads = [self._pad(size, k, stride) for size, k in zip(image, window, strict=True)]
        begins, ends = [begin for begin, _ in pads], [end for _, end in pads]
        out = [(size + b + e - k) // stride + 1 for size, k, b, e in zip(image, window, begins, ends, strict=True)]
        fan_in = depth // group * prod(window)
        weight = self._weight("weight", (channels, depth // group, *window), fan_in, gain=2.0 if activation else 1.0)
        y = self._node(
            "Conv", [x, weight, self._bias(channels)], (n, channels, *out),
            kernel_shape=window, strides=[stride, stride], pads=[*begins, *ends], group=group,
        )  # fmt: skip
        return self._activate(y, activation)

    def _pad(self, size: int, kernel: int, stride: int) -> tuple[int, int]:
        if self.padding == "symmetric":
            return kernel // 2, kernel // 2
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        return total // 2, total - total // 2

    def _activate(self, x: str, activation: Activation | None) -> str:
        if activation is None:
            return x
        if activation == "relu":
            return self._node("Relu", [x], self.shapes[x])
        bounds = [self._constant("zero", np.float32(0)), self._constant("six", np.float32(6))]
        return self._node("Clip", [x, *bounds], self.shapes[x])

    def _weight(self, role: str, shape: Shape, fan_in: int, *, gain: float) -> str:
        """Normal with variance gain / fan_in (He et al. 2015): a rectifier halves the second moment, gain undoes it."""
        return self._constant(role, self._random.normal(0, np.sqrt(gain / fan_in), shape))

    def _bias(self, channels: int) -> str:
        return self._constant("bias", self._random.normal(0, 0.05, channels))

    def _constant(self, role: str, array: np.ndarray) -> str:
        return self._array(role, np.asarray(array, np.float32))

    def _integers(self, role: str, values: Sequence[int]) -> str:
        return self._array(role, np.asarray(values, np.int64))

    def _array(self, role: str, array: np.ndarray) -> str:
        name = f"{role}_{len(self._nodes)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def _node(self, op: str, inputs: Sequence[str], shape: Shape, **attributes: object) -> str:
        name = f"{op.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        self.shapes[name] = tuple(shape)
        return name
