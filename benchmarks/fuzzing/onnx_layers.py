"""Random layers of ONNX of every kind that microcontrollers see, each appended to a network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.fuzzing.onnx_network import Builder

UNARY = (
    "Relu Sigmoid Tanh LeakyRelu HardSwish HardSigmoid Elu Selu Softplus Abs Neg Exp Sqrt Erf Sin Cos "
    "Softsign Identity Reciprocal Mish Sign Celu"
).split()
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu", "Mean", "Sum")
REDUCE = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceProd", "ReduceL1")


def _unary(net: Builder) -> None:
    net.node(UNARY[int(net.random.integers(len(UNARY)))], [net.any()], [])


def _binary(net: Builder) -> None:
    """Operator with another value, with a constant of part of the shape, or with itself."""
    kind, x = BINARY[int(net.random.integers(len(BINARY)))], net.any()
    shape = net.shapes[x]
    way = net.random.random()
    if way < 0.45 and kind != "PRelu":
        net.node(kind, [x, net.any()], [])
    elif way < 0.55 and kind != "PRelu":
        net.node(kind, [x, x], [])
    else:
        part = tuple(e if net.random.random() < 0.6 else 1 for e in shape[int(net.random.integers(len(shape) + 1)) :])
        constant = net.random.standard_normal(part).astype(np.float32)
        net.node(kind, [x], [np.abs(constant) + 0.5 if kind in ("Div", "Pow") else constant])


def _reduce(net: Builder) -> None:
    x = net.any()
    rank = len(net.shapes[x])
    axes = sorted({int(net.random.integers(-rank, rank)) % rank for _ in range(net.draw(1, 1, 2, 3))}) if rank else []
    kind = REDUCE[int(net.random.integers(len(REDUCE)))]
    net.node(kind, [x], [], axes=axes, keepdims=net.draw(0, 1))


def _transpose(net: Builder) -> None:
    x = net.any()
    net.node("Transpose", [x], [], perm=[int(i) for i in net.random.permutation(len(net.shapes[x]))])


def _reshape(net: Builder) -> None:
    x = net.any()
    elements = int(np.prod(net.shapes[x]))
    shape = [elements]
    for _ in range(net.draw(0, 1, 2, 3)):
        factors = [f for f in (2, 3, 4, 5, 7, 8) if shape[-1] % f == 0]
        if factors:
            f = net.draw(*factors)
            shape[-1:] = [f, shape[-1] // f]
    if net.random.random() < 0.5:
        shape.insert(0, 1)
    net.node("Reshape", [x], [np.array(shape)])


def _matmul(net: Builder) -> None:
    """Dense layers in the ways exporters write them; sometimes with the weights of another one."""
    x = net.any()
    shape = net.shapes[x]
    depth, out = (shape[-1] if shape else 1), net.draw(1, 3, 8, 10, 33)
    known = [name for name, c in net.constants.items() if c.ndim == 2 and c.shape[0] == depth and c.dtype == np.float32]
    if known and net.random.random() < 0.5:
        net.node("MatMul", [x], [known[-1]])
    elif len(shape) == 2 and net.random.random() < 0.5:
        trans, bias = net.draw(0, 1), net.normal(*((out,) if net.random.random() < 0.7 else (1, out)))
        weight = net.normal(out, depth)
        net.node("Gemm", [x], [weight if trans else weight.T.copy(), bias], transB=trans,
                 alpha=float(net.draw(1, 1, 2)), beta=float(net.draw(1, 1, 0)))  # fmt: skip
    elif net.random.random() < 0.2 and len(shape) >= 2:
        turned = net.node("Transpose", [x], [], perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2])
        if turned:
            net.node("MatMul", [x, turned], [])
    else:
        net.node("MatMul", [x], [net.normal(out, depth).T.copy()])


def _normalize(net: Builder) -> None:
    x = net.any()
    shape = net.shapes[x]
    if not shape:
        return
    axis = int(net.random.integers(-len(shape), len(shape)))
    way = net.draw(0, 1, 2, 3, 4)
    if way == 0:
        net.node(("Softmax", "LogSoftmax")[net.draw(0, 1)], [x], [], axis=axis)
    elif way == 1:
        net.node("LayerNormalization", [x], [net.normal(*shape[axis:]), net.normal(*shape[axis:])], axis=axis)
    elif way == 2 and len(shape) == 4:
        net.node("InstanceNormalization", [x], [net.normal(shape[1]), net.normal(shape[1])])
    elif way == 3 and len(shape) >= 2:
        mean, variance = net.normal(shape[1]), np.abs(net.normal(shape[1])) + 0.1
        net.node("BatchNormalization", [x], [net.normal(shape[1]), net.normal(shape[1]), mean, variance])
    else:
        net.node("LpNormalization", [x], [], axis=axis, p=2)


def _conv(net: Builder) -> None:
    """Odd windows, groups, pads on one side, automatic pads; also of one dimension, and transposed."""
    x = net.of_rank(3, 4)
    if x is None:
        return
    shape = net.shapes[x]
    spatial, channels = len(shape) - 2, shape[1]
    kernel = [net.draw(1, 2, 3, 4, 5) for _ in range(spatial)]
    group = net.draw(*[g for g in (1, 1, 2, channels) if channels % g == 0])
    out = group * net.draw(1, 2, 3, 4)
    attributes: dict = {"group": group, "strides": [net.draw(1, 1, 2, 3) for _ in range(spatial)]}
    if net.random.random() < 0.7:
        attributes["pads"] = [int(net.random.integers(0, kernel[i % spatial])) for i in range(2 * spatial)]
    else:
        attributes["auto_pad"] = ("SAME_UPPER", "SAME_LOWER", "VALID")[net.draw(0, 1, 2)]
    attributes["dilations"] = [net.draw(1, 1, 1, 2) for _ in range(spatial)] if "pads" in attributes else [1] * spatial
    bias = [net.normal(out)] if net.random.random() < 0.7 else []
    if net.random.random() < 0.2:
        weight = net.normal(channels, out // group, *kernel)
        net.node("ConvTranspose", [x], [weight, *bias], **attributes)
    else:
        net.node("Conv", [x], [net.normal(out, channels // group, *kernel), *bias], **attributes)


def _pool(net: Builder) -> None:
    x = net.of_rank(3, 4)
    if x is None:
        return
    spatial = len(net.shapes[x]) - 2
    if net.random.random() < 0.3:
        net.node(("GlobalAveragePool", "GlobalMaxPool")[net.draw(0, 1)], [x], [])
        return
    kernel = [net.draw(1, 2, 3, 4) for _ in range(spatial)]
    attributes: dict = {"kernel_shape": kernel, "strides": [net.draw(1, 2, 3) for _ in range(spatial)]}
    attributes["pads"] = [int(net.random.integers(0, kernel[i % spatial])) for i in range(2 * spatial)]
    attributes["ceil_mode"] = net.draw(0, 0, 1)
    if net.random.random() < 0.5:
        net.node("MaxPool", [x], [], **attributes)
    else:
        net.node("AveragePool", [x], [], count_include_pad=net.draw(0, 1), **attributes)


def _resize(net: Builder) -> None:
    x = net.of_rank(4)
    if x is None:
        return
    way = net.random.random()
    if way < 0.2:
        net.node(("DepthToSpace", "SpaceToDepth")[net.draw(0, 1)], [x], [], blocksize=2)
        return
    mode = ("nearest", "linear", "cubic")[net.draw(0, 0, 1, 1, 2)]
    where = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")[net.draw(0, 1, 2, 3)]
    # ONNX and onnxruntime differ in align_corners where a scale does not give whole sizes.
    factors = [1, 2, 3] if where == "align_corners" else [0.5, 1, 1.5, 2, 3]
    scales = np.array([1, 1, *net.random.choice(factors, 2)], np.float32)
    attributes = (
        {"nearest_mode": ("floor", "round_prefer_floor", "ceil")[net.draw(0, 1, 2)]} if mode == "nearest" else {}
    )
    net.node(
        "Resize", [x], [np.zeros(0, np.float32), scales], mode=mode, coordinate_transformation_mode=where, **attributes
    )


def _move(net: Builder) -> None:
    """Pads, slices with steps, gathers, tiles, squeezes, joins along any axis."""
    x = net.any()
    shape, way = net.shapes[x], net.draw(0, 1, 2, 3, 4, 5, 6)
    if not shape:
        return
    axis = int(net.random.integers(len(shape)))
    if way == 0:
        mode = ("constant", "edge", "reflect")[net.draw(0, 0, 1, 2)]
        pads = np.array([int(net.random.integers(0, min(e, 3))) for e in (*shape, *shape)])
        net.node("Pad", [x], [pads, np.float32(net.draw(0, 0, 1))] if mode == "constant" else [pads], mode=mode)
    elif way == 1:
        step = net.draw(1, 1, 2, -1, -2)
        begin, end = (int(net.random.integers(0, shape[axis])), 10_000)
        ends = [shape[axis], -10_000] if step < 0 else [begin, end]
        net.node("Slice", [x], [np.array([ends[0]]), np.array([ends[1]]), np.array([axis]), np.array([step])])
    elif way == 2:
        rows = net.random.integers(-shape[axis], shape[axis], net.draw(1, 2, 5))
        net.node("Gather", [x], [rows], axis=axis)
    elif way == 3:
        net.node("Tile", [x], [np.array([net.draw(1, 1, 2) for _ in shape])])
    elif way == 4:
        net.node("Unsqueeze", [x], [np.array([axis])])
    elif way == 5:
        net.node("Flatten", [x], [], axis=axis)
    else:
        fits = [
            n
            for n, s in net.shapes.items()
            if len(s) == len(shape) and s[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :]
        ]
        chosen = [fits[int(net.random.integers(len(fits)))] for _ in range(net.draw(1, 1, 2))]
        net.node("Concat", [x, *chosen], [], axis=axis - len(shape) if net.random.random() < 0.3 else axis)


def _chain(net: Builder) -> None:
    """Many layers in series, without branches."""
    x = net.any()
    for _ in range(net.draw(3, 6, 10)):
        kind = ("Relu", "Sigmoid", "Tanh", "HardSwish")[net.draw(0, 1, 2, 3)]
        x = net.node(kind, [x], []) or x


def _residual(net: Builder) -> None:
    """A value, changed, added to itself."""
    x = net.any()
    y = net.node("Mul", [x], [np.float32(0.5)])
    z = net.node("Tanh", [y], []) if y else None
    if z:
        net.node("Add", [x, z], [])


LAYERS: tuple[Callable[[Builder], None], ...] = (
    _unary,
    _unary,
    _binary,
    _binary,
    _reduce,
    _transpose,
    _reshape,
    _matmul,
    _matmul,
    _normalize,
    _conv,
    _conv,
    _conv,
    _pool,
    _resize,
    _move,
    _move,
    _move,
    _chain,
    _residual,
)
