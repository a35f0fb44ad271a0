"""Tiny ONNX networks around one form of an operator each, and around its plain sibling.

A form is what converters write beside the usual operator: a constant per channel instead of a number, a group of
channels instead of all, an axis other than the last. A network is a head, a 3 x 3 convolution or a dense layer, the
form, and where the shape stays a tail, a 1 x 1 convolution or a dense layer. `counted` are the elements of the form's
result, or its multiply-adds, and so is that of the sibling.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 21, 10
CHANNELS, SIDE = 16, 16
TOKENS, WIDTH, HEADS = 24, 32, 4
ELEMENTS, TOKEN_ELEMENTS = CHANNELS * SIDE * SIDE, TOKENS * WIDTH
_FRAMES = {"image": (1, 3, SIDE, SIDE), "tokens": (1, TOKENS, 16)}

Write = Callable[["Network", str], str]
"""Function that writes a form after a tensor and returns the name of its result."""


@dataclass
class Network:
    """A network while it is written. The result of every method is the name of a tensor."""

    name: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        """Write a node with one result."""
        result = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [result], name=result, **attributes))
        return result

    def constant(self, array: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = array
        return name

    def weights(self, *shape: int, offset: float = 0.0) -> str:
        """Write normal numbers, small enough for sums over all axes but the first, plus an offset."""
        random = np.random.default_rng([zlib.crc32(self.name.encode()), len(self.constants)])
        depth = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        return self.constant((random.standard_normal(shape) / np.sqrt(depth) + offset).astype(np.float32))

    def shape(self, *extents: int) -> str:
        return self.constant(np.array(extents, np.int64))

    def second(self, *shape: int) -> str:
        """Declare another input of the network."""
        self.inputs["other"] = shape
        return "other"

    def model(self, result: str) -> onnx.ModelProto:
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.inputs.items()]
        out = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        weights = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, self.name, ports, [out], initializer=weights)
        opsets = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="tvm_ext forms")
        return onnx.shape_inference.infer_shapes(made, strict_mode=True)


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form and the plain sibling that its cost is compared with.

    unit: what is counted, `element` or `multiply-add`.
    frame: `image` or `tokens`, the head and the tail around the form.
    has_tail: False where the result has another shape than the head's.
    """

    write: Write
    sibling: str
    sibling_write: Write
    counted: int
    sibling_counted: int
    unit: str = "element"
    frame: str = "image"
    has_tail: bool = True


def network(name: str, write: Write, frame: str = "image", *, has_tail: bool = True) -> onnx.ModelProto:
    """Return the network of a form in its frame."""
    made = Network(name=name, inputs={"x": _FRAMES[frame]})
    is_image = frame == "image"
    if is_image:
        head = made.node("Conv", "x", made.weights(CHANNELS, 3, 3, 3), made.weights(CHANNELS), pads=[1, 1, 1, 1])
    else:
        head = made.node("Add", made.node("MatMul", "x", made.weights(16, WIDTH)), made.weights(WIDTH))
    result = write(made, head)
    if has_tail and is_image:
        result = made.node("Conv", result, made.weights(8, CHANNELS, 1, 1), made.weights(8))
    elif is_image:  # the output has its channels last, as the C computes them, so that nothing is permuted
        result = made.node("Transpose", result, perm=[0, 2, 3, 1])
    elif has_tail:
        result = made.node("Add", made.node("MatMul", result, made.weights(WIDTH, 8)), made.weights(8))
    return made.model(result)


def nothing(_: Network, x: str) -> str:
    """Write no form: the frame alone."""
    return x


def forms() -> dict[str, Form]:
    """Return all forms by the names of the table."""
    return {**_elementwise(), **_normalizing(), **_moving(), **_products(), **_windows()}


def _elements(write: Write, sibling: str, plain: Write, **options: object) -> Form:
    return Form(write=write, sibling=sibling, sibling_write=plain, counted=ELEMENTS, sibling_counted=ELEMENTS,
                **options)  # fmt: skip


def _with_constant(operator: str, *shape: int) -> Write:
    return lambda net, x: net.node(operator, x, net.weights(*shape, offset=0.5))


def _with_second(operator: str, *shape: int) -> Write:
    return lambda net, x: net.node(operator, x, net.second(*shape))


def _elementwise() -> dict[str, Form]:
    whole = (1, CHANNELS, SIDE, SIDE)
    constants = {
        f"{operator} by constants per channel": _elements(
            _with_constant(operator, 1, CHANNELS, 1, 1), f"{operator} by a number", _with_constant(operator, 1)
        )
        for operator in ("Mul", "Add", "Sub")
    }

    # Div by a second input stays away from zero by an offset.
    def divided(*shape: int) -> Write:
        return lambda net, x: net.node("Div", x, net.node("Add", net.node("Abs", net.second(*shape)), net.weights(
            1, offset=2.0)))  # fmt: skip

    vectors = {
        f"{operator} by a vector of channels": _elements(
            _with_second(operator, 1, CHANNELS, 1, 1), f"{operator} of equal shapes", _with_second(operator, *whole)
        )
        for operator in ("Mul", "Add", "Max", "Min")
    }
    return {
        **constants, **vectors,
        "Div by a vector of channels": _elements(
            divided(1, CHANNELS, 1, 1), "Mul of equal shapes", _with_second("Mul", *whole)),
        "Mul by one channel": _elements(
            _with_second("Mul", 1, 1, SIDE, SIDE), "Mul of equal shapes", _with_second("Mul", *whole)),
        "Div of equal shapes": _elements(divided(*whole), "Mul of equal shapes", _with_second("Mul", *whole)),
        "PRelu per channel": _elements(
            _with_constant("PRelu", CHANNELS, 1, 1), "LeakyRelu", lambda net, x: net.node("LeakyRelu", x, alpha=0.1)),
    }  # fmt: skip


def _normalizing() -> dict[str, Form]:
    def layer_norm(net: Network, x: str) -> str:
        last = net.node("Transpose", x, perm=[0, 2, 3, 1])
        norm = net.node("LayerNormalization", last, net.weights(CHANNELS, offset=1), net.weights(CHANNELS))
        return net.node("Transpose", norm, perm=[0, 3, 1, 2])

    def instance_norm(net: Network, x: str) -> str:
        return net.node("InstanceNormalization", x, net.weights(CHANNELS, offset=1), net.weights(CHANNELS))

    def group_norm(net: Network, x: str) -> str:
        # As PyTorch's exporter writes it.
        groups = net.node("Reshape", x, net.shape(1, 4, -1))
        ones, zeros = net.constant(np.ones(4, np.float32)), net.constant(np.zeros(4, np.float32))
        norm = net.node("Reshape", net.node("InstanceNormalization", groups, ones, zeros), net.shape(
            1, CHANNELS, SIDE, SIDE))  # fmt: skip
        scaled = net.node("Mul", norm, net.weights(CHANNELS, 1, 1, offset=1))
        return net.node("Add", scaled, net.weights(CHANNELS, 1, 1))

    def softmax(axis: int) -> Write:
        return lambda net, x: net.node("Softmax", x, axis=axis)

    layer = "LayerNormalization over channels"
    return {
        "InstanceNormalization": _elements(instance_norm, layer, layer_norm),
        "GroupNormalization": _elements(group_norm, layer, layer_norm),
        "Softmax over another axis": Form(
            write=softmax(1), sibling="Softmax over the last axis", sibling_write=softmax(2), frame="tokens",
            counted=TOKEN_ELEMENTS, sibling_counted=TOKEN_ELEMENTS),
    }  # fmt: skip


def _moving() -> dict[str, Form]:
    half = ELEMENTS // 2

    def gather(axis: int, *indices: int) -> Write:
        return lambda net, x: net.node("Gather", x, net.shape(*indices), axis=axis)

    def sliced(axis: int) -> Write:
        return lambda net, x: net.node("Slice", x, net.shape(0), net.shape(8), net.shape(axis))

    def mean(*axes: int) -> Write:
        return lambda net, x: net.node("ReduceMean", x, net.shape(*axes), keepdims=1)

    def beside_token(net: Network, x: str) -> str:
        return net.node("Concat", net.weights(1, 1, WIDTH), x, axis=1)

    def resized(mode: str) -> Write:
        return lambda net, x: net.node("Resize", x, "", net.constant(np.array([1, 1, 2, 2], "f4")), mode=mode)

    def shuffled(net: Network, x: str) -> str:
        grouped = net.node("Reshape", x, net.shape(1, 4, CHANNELS // 4, SIDE, SIDE))
        turned = net.node("Transpose", grouped, perm=[0, 2, 1, 3, 4])
        return net.node("Reshape", turned, net.shape(1, CHANNELS, SIDE, SIDE))

    shuffle = np.arange(CHANNELS).reshape(4, -1).T.ravel()

    def unfolded(net: Network, x: str) -> str:
        # As PyTorch's exporter writes torch.nn.functional.unfold.
        at = net.constant(np.arange(3)[:, np.newaxis] + np.arange(SIDE))
        rows = net.node("Gather", net.node("Pad", x, net.shape(0, 0, 1, 1, 0, 0, 1, 1)), at, axis=2)
        windows = net.node("Transpose", net.node("Gather", rows, at, axis=4), perm=[0, 1, 2, 4, 3, 5])
        return net.node("Reshape", windows, net.shape(1, 9 * CHANNELS, SIDE, SIDE))

    def pair(form: Write, sibling: str, plain: Write, counted: int, plain_counted: int, frame: str = "image") -> Form:
        return Form(write=form, sibling=sibling, sibling_write=plain, counted=counted, sibling_counted=plain_counted,
                    frame=frame, has_tail=False)  # fmt: skip

    return {
        "Gather of channels": pair(
            gather(1, 3, 1, 7, 5, 15, 13, 9, 11), "Slice of channels", sliced(1), half, half),
        "Gather of rows": pair(gather(2, 3, 1, 7, 5, 15, 13, 9, 11), "Slice of rows", sliced(2), half, half),
        "ReduceMean over channels": pair(mean(1), "ReduceMean over the image", mean(2, 3), ELEMENTS, ELEMENTS),
        "ReduceMean over rows": pair(mean(2), "ReduceMean over the image", mean(2, 3), ELEMENTS, ELEMENTS),
        "Concat with a constant": pair(
            beside_token, "Concat with an input", lambda net, x: net.node("Concat", net.second(1, 1, WIDTH), x, axis=1),
            TOKEN_ELEMENTS + WIDTH, TOKEN_ELEMENTS + WIDTH, "tokens"),
        "Resize, cubic": pair(resized("cubic"), "Resize, linear", resized("linear"), 4 * ELEMENTS, 4 * ELEMENTS),
        "channel shuffle": _elements(shuffled, "Gather of all channels in the same order", gather(1, *shuffle)),
        "unfold": pair(
            unfolded, "Concat of nine images", lambda net, x: net.node("Concat", *[x] * 9, axis=1), 9 * ELEMENTS,
            9 * ELEMENTS),
    }  # fmt: skip


def _products() -> dict[str, Form]:
    head = WIDTH // HEADS
    scores, dense = HEADS * TOKENS * TOKENS * head, TOKENS * WIDTH * WIDTH

    def heads(net: Network, x: str) -> str:
        return net.node("Reshape", x, net.shape(1, TOKENS, HEADS, head))

    def einsum_scores(net: Network, x: str) -> str:
        return net.node("Einsum", heads(net, x), heads(net, net.second(1, TOKENS, WIDTH)), equation="bihd,bjhd->bhij")

    def scores_of(net: Network, x: str) -> str:
        query = net.node("Transpose", heads(net, x), perm=[0, 2, 1, 3])
        key = net.node("Transpose", heads(net, net.second(1, TOKENS, WIDTH)), perm=[0, 2, 3, 1])
        return net.node("MatMul", query, key)

    def gemm(**attributes: float) -> Write:
        def write(net: Network, x: str) -> str:
            rows = net.node("Reshape", x, net.shape(TOKENS, WIDTH))
            made = net.node("Gemm", rows, net.weights(WIDTH, WIDTH), net.weights(WIDTH), **attributes)
            return net.node("Reshape", made, net.shape(1, TOKENS, WIDTH))

        return write

    def matmul(net: Network, x: str) -> str:
        return net.node("MatMul", x, net.weights(WIDTH, WIDTH))

    def pair(write: Write, sibling: str, plain: Write, counted: int, plain_counted: int, *, tail: bool = True) -> Form:
        return Form(write=write, sibling=sibling, sibling_write=plain, counted=counted, has_tail=tail,
                    sibling_counted=plain_counted, unit="multiply-add", frame="tokens")  # fmt: skip

    return {
        "Einsum of activations": pair(
            einsum_scores, "MatMul of activations", scores_of, scores, scores, tail=False),
        "Einsum with a constant": pair(
            lambda net, x: net.node("Einsum", x, net.weights(WIDTH, WIDTH), equation="bij,jk->bik"),
            "MatMul by a constant", matmul, dense, dense),
        "MatMul, the constant on the left": pair(
            lambda net, x: net.node("MatMul", net.weights(TOKENS, TOKENS), x), "MatMul by a constant", matmul,
            TOKENS * TOKENS * WIDTH, dense),
        "Gemm with alpha and beta": pair(gemm(alpha=0.5, beta=2.0), "Gemm", gemm(), dense, dense),
    }  # fmt: skip


def _windows() -> dict[str, Form]:
    full = ELEMENTS * CHANNELS * 9
    same = {"pads": [1, 1, 1, 1]}

    def conv(group: int = 1, **attributes: object) -> Write:
        return lambda net, x: net.node(
            "Conv", x, net.weights(CHANNELS, CHANNELS // group, 3, 3), net.weights(CHANNELS), group=group,
            **(attributes or same))  # fmt: skip

    def transposed(group: int) -> Write:
        return lambda net, x: net.node(
            "ConvTranspose", x, net.weights(CHANNELS, CHANNELS // group, 3, 3), net.weights(CHANNELS), group=group,
            strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])  # fmt: skip

    def pooled(**attributes: object) -> Write:
        def write(net: Network, x: str) -> str:
            strided = conv(strides=[2, 2], **attributes)(net, x)
            most = net.node("MaxPool", strided, kernel_shape=[3, 3], strides=[2, 2], **attributes)
            return net.node("AveragePool", most, kernel_shape=[2, 2], strides=[2, 2], **attributes)

        return write

    def conv_of_volume(net: Network, x: str) -> str:
        volume = net.node("Reshape", x, net.shape(1, CHANNELS, 4, 8, 8))
        made = net.node("Conv", volume, net.weights(CHANNELS, CHANNELS, 3, 3, 3), net.weights(CHANNELS), pads=[1] * 6)
        return net.node("Reshape", made, net.shape(1, CHANNELS, SIDE, SIDE))

    def pool_padded(net: Network, x: str) -> str:
        strided = conv(strides=[2, 2], pads=[0, 0, 1, 1])(net, x)
        most = net.node("MaxPool", strided, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
        return net.node("AveragePool", most, kernel_shape=[2, 2], strides=[2, 2])

    def pair(write: Write, sibling: str, plain: Write, counted: int, plain_counted: int, *, tail: bool = True) -> Form:
        return Form(write=write, sibling=sibling, sibling_write=plain, counted=counted, has_tail=tail,
                    sibling_counted=plain_counted, unit="multiply-add")  # fmt: skip

    return {
        "grouped Conv": pair(conv(4), "Conv", conv(), full // 4, full),
        "grouped Conv, 8 groups": pair(conv(8), "Conv", conv(), full // 8, full),
        "dilated depthwise Conv": pair(
            conv(CHANNELS, dilations=[2, 2], pads=[2, 2, 2, 2]), "depthwise Conv", conv(CHANNELS), ELEMENTS * 9,
            ELEMENTS * 9),
        "Conv3D": pair(conv_of_volume, "Conv", conv(), 3 * full, full),
        "dilated Conv": pair(conv(dilations=[2, 2], pads=[2, 2, 2, 2]), "Conv", conv(), full, full),
        "grouped ConvTranspose": pair(
            transposed(4), "ConvTranspose", transposed(1), full // 4, full, tail=False),
        "auto_pad": pair(
            pooled(auto_pad="SAME_UPPER"), "pads written out", pool_padded, full // 4, full // 4, tail=False),
    }  # fmt: skip


def samples(model: onnx.ModelProto, count: int) -> Mapping[str, np.ndarray]:
    """Return normal numbers for the inputs of a network."""
    random = np.random.default_rng(0)
    shapes: dict[str, Sequence[int]] = {
        port.name: [extent.dim_value for extent in port.type.tensor_type.shape.dim] for port in model.graph.input
    }
    return {name: random.standard_normal((count, *shape)).astype(np.float32) for name, shape in shapes.items()}
