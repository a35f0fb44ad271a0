"""TensorFlow Lite operators on elements, along axes and on matrices, in floats and integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.pairing.operator_case import Choice, Operator
from benchmarks.pairing.tflite_form import ACTIVATIONS, TYPES, tflite_operator
from tests.support.tflite_file import Quantized
from tests.support.tflite_models import PROBABILITIES, SAME, VALID, Network

_PAIRS = [((1, 4, 6, 5), (1, 4, 6, 5)), ((1, 4, 6, 5), (1, 1, 1, 5)), ((1, 1, 6, 1), (1, 4, 6, 5)),
          ((2, 3), (2, 1)), ((7,), (7,)), ((1, 4, 6, 5), (1,))]  # fmt: skip
_RANKS = [(1, 4, 6, 5), (2, 3, 7), (3, 8), (9,), (1, 1, 1, 3)]


def _same(net: Network, index: int) -> Quantized | None:
    return net.writer.tensors[index].quantized


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _binary(name: str, *, options: str = "", fused: bool = True, same: bool = False) -> Operator:
    def make(net: Network, choice: Choice) -> int:
        (one, other), fields = choice["shapes"], {}
        a = net.input(one, "a")
        scales = _same(net, a) if same else net.scales()
        if choice["second"] == "constant":
            array = net.random.normal(0, 1, other).astype(np.float32)
            if net.dtype != "float32":
                array = net.random.integers(-100, 101, other).astype(net.dtype)
            b = net.writer.constant("b", array, scales)
        else:
            b = net.writer.input("b", other, net.dtype, scales)
        if fused:
            fields["FusedActivationFunction"] = ACTIVATIONS[choice["activation"]]
        result = np.broadcast_shapes(one, other)
        y = net.output("y", result, scales if same else net.scales(8.0))
        return net.writer.operator(name, [a, b], y, options or f"{_title(name)}Options", **fields)

    factors = {"activation": list(ACTIVATIONS)} if fused else {}
    return tflite_operator(name, make, shapes=_PAIRS, second=["input", "constant"], dtype=TYPES, **factors)


def _comparison(name: str) -> Operator:
    def make(net: Network, choice: Choice) -> int:
        one, other = choice["shapes"]
        a = net.input(one, "a")
        b = net.writer.input("b", other, net.dtype, _same(net, a) if choice["one_scale"] else net.scales())
        y = net.writer.tensor("y", tuple(np.broadcast_shapes(one, other)), "bool")
        return net.writer.operator(name, [a, b], y, f"{_title(name)}Options")

    return tflite_operator(name, make, shapes=_PAIRS, one_scale=[True, False], dtype=["float32", "int8"])


def _softmax(net: Network, choice: Choice) -> int:
    return net.softmax(net.input(choice["shape"]), "y", choice["beta"])


def _log_softmax(net: Network, choice: Choice) -> int:
    x = net.input(choice["shape"])
    scales = Quantized(scale=16 / 256, zero_point=127) if net.int8 else None
    return net.writer.operator("LOG_SOFTMAX", [x], net.output("y", choice["shape"], scales), "LogSoftmaxOptions")


def _reduced(shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    gone = {axis % len(shape) for axis in axes}
    kept = [1 if axis in gone else extent for axis, extent in enumerate(shape) if keep or axis not in gone]
    return tuple(kept)


def _reduction(name: str, types: tuple[str, ...]) -> Operator:
    def make(net: Network, choice: Choice) -> int:
        x = net.input(choice["shape"])
        axes = net.writer.constant("axes", np.array(choice["axes"], np.int32))
        scales = net.scales(8.0) if name in ("MEAN", "SUM") else _same(net, x)
        y = net.output("y", _reduced(choice["shape"], choice["axes"], choice["keep_dims"]), scales)
        return net.writer.operator(name, [x, axes], y, "ReducerOptions", KeepDims=choice["keep_dims"])

    return tflite_operator(
        name, make, shape=[(1, 4, 6, 5), (2, 3, 7), (3, 8)], axes=[(1, 2), (1,), (-1,), (0,), (0, 1), (2,), (3,)],
        keep_dims=[True, False], dtype=types,
        is_valid=lambda choice: all(-len(choice["shape"]) <= axis < len(choice["shape"]) for axis in choice["axes"]),
    )  # fmt: skip


def _arg(name: str) -> Operator:
    def make(net: Network, choice: Choice) -> int:
        x = net.input(choice["shape"])
        axis = net.writer.constant("axis", np.array(choice["axis"], np.int32))
        y = net.writer.tensor("y", _reduced(choice["shape"], (choice["axis"],), False), "int32")
        return net.writer.operator(name, [x, axis], y, f"{_title(name)}Options", OutputType=2)

    return tflite_operator(
        name, make, shape=[(1, 4, 6, 5), (2, 3, 7), (3, 8)], axis=[-1, 1, 0, 2], dtype=["float32", "int8"],
        is_valid=lambda choice: choice["axis"] < len(choice["shape"]),
    )  # fmt: skip


def _transposed(net: Network, choice: Choice) -> int:
    n, height, width, depth = choice["shape"]
    (rows, columns), (down, across), channels = choice["kernel"], choice["stride"], choice["channels"]
    is_same = choice["padding"] == "same"
    size = (height * down, width * across) if is_same else (
        (height - 1) * down + rows, (width - 1) * across + columns)  # fmt: skip
    x = net.input(choice["shape"])
    weight, bias = net.weights("t", (channels, rows, columns, depth), 0, x)
    shape = net.writer.constant("shape", np.array((n, *size, channels), np.int32))
    places = [shape, weight, x, *([bias] if choice["bias"] else [])]
    return net.writer.operator(
        "TRANSPOSE_CONV", places, net.output("y", (n, *size, channels)), "TransposeConvOptions",
        Padding=SAME if is_same else VALID, StrideH=down, StrideW=across,
    )  # fmt: skip


def _matmul(net: Network, choice: Choice) -> int:
    batch, rows, inner, columns = choice["sizes"]
    left = (inner, rows) if choice["adj_x"] else (rows, inner)
    right = (columns, inner) if choice["adj_y"] else (inner, columns)
    a, b = net.input((*batch, *left), "a"), net.input((*batch, *right), "b")
    if net.int16:
        for index in (a, b):
            net.writer.tensors[index].quantized = Quantized(scale=1e-4)
    y = net.output("y", (*batch, rows, columns), net.scales(30.0))
    fields = {"AdjX": choice["adj_x"], "AdjY": choice["adj_y"]}
    return net.writer.operator("BATCH_MATMUL", [a, b], y, "BatchMatMulOptions", **fields)


def _leaky(net: Network, choice: Choice) -> int:
    x = net.input(choice["shape"])
    return net.writer.operator(
        "LEAKY_RELU", [x], net.output("y", choice["shape"]), "LeakyReluOptions", Alpha=choice["alpha"]
    )


def _prelu(net: Network, choice: Choice) -> int:
    x, shape = net.input(choice["shape"]), choice["alpha"]
    if net.dtype == "float32":
        alpha = net.writer.constant("alpha", net.random.normal(0, 0.3, shape).astype(np.float32))
    else:
        array = net.random.integers(-128, 128, shape).astype(np.int8)
        alpha = net.writer.constant("alpha", array, Quantized(scale=0.004, zero_point=7))
    return net.writer.operator("PRELU", [x, alpha], net.output("y", choice["shape"]))


def _unary(name: str, types: tuple[str, ...] = TYPES) -> Operator:
    scales = {"LOGISTIC": PROBABILITIES, "TANH": Quantized(scale=1 / 128), "L2_NORMALIZATION": Quantized(scale=1 / 128)}
    wide = {"LOGISTIC": Quantized(scale=1 / 32768), "TANH": Quantized(scale=1 / 32768)}

    def make(net: Network, choice: Choice) -> int:
        x = net.input(choice["shape"])
        wanted = scales.get(name) if net.int8 else wide.get(name) if net.int16 else None
        if name in ("RELU", "RELU6") and net.dtype != "float32":
            wanted = _same(net, x)
        options = {"L2_NORMALIZATION": "L2NormOptions"}.get(name, "")
        return net.writer.operator(name, [x], net.output("y", choice["shape"], wanted), options)

    return tflite_operator(name, make, shape=_RANKS, dtype=types)


def _cumsum(net: Network, choice: Choice) -> int:
    x = net.input(choice["shape"])
    axis = net.writer.constant("axis", np.array(choice["axis"], np.int32))
    fields = {"Exclusive": choice["exclusive"], "Reverse": choice["reverse"]}
    y = net.output("y", choice["shape"], _same(net, x))  # the only scale that TensorFlow Lite Micro has for it
    return net.writer.operator("CUMSUM", [x, axis], y, "CumsumOptions", **fields)


def _l2_pool(net: Network, choice: Choice) -> int:
    padding = SAME if choice["padding"] == "same" else VALID
    x = net.input(choice["shape"])
    return net.pool(x, choice["kernel"], "p", kind="L2_POOL_2D", stride=choice["stride"], padding=padding,
                    activation=ACTIVATIONS[choice["activation"]])  # fmt: skip


_SQUARES: Callable[[Choice], bool] = lambda choice: choice["alpha"] in ((1, 1, choice["shape"][-1]), (1, 1, 1))  # noqa: E731

OPERATORS = [
    _binary("ADD"), _binary("SUB"), _binary("MUL"),
    _binary("SQUARED_DIFFERENCE", fused=False),
    _binary("MAXIMUM", options="MaximumMinimumOptions", fused=False, same=True),
    _binary("MINIMUM", options="MaximumMinimumOptions", fused=False, same=True),
    *(_comparison(name) for name in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")),
    tflite_operator("SOFTMAX", _softmax, shape=_RANKS, beta=[1.0, 0.5, 2.0], dtype=["float32", "int8"]),
    tflite_operator("LOG_SOFTMAX", _log_softmax, shape=_RANKS, dtype=["float32", "int8"]),
    _reduction("MEAN", TYPES), _reduction("SUM", ("float32", "int8")),
    _reduction("REDUCE_MAX", ("float32", "int8")), _reduction("REDUCE_MIN", ("float32", "int8")),
    _arg("ARG_MAX"), _arg("ARG_MIN"),
    tflite_operator(
        "TRANSPOSE_CONV", _transposed, shape=[(1, 5, 4, 3), (2, 3, 3, 4), (1, 1, 6, 2)],
        kernel=[(3, 3), (2, 2), (1, 1), (4, 3)], stride=[(1, 1), (2, 2), (1, 2), (3, 2)], padding=["same", "valid"],
        channels=[1, 5], bias=[True, False], dtype=TYPES,
        is_valid=lambda choice: choice["padding"] == "valid" or min(
            k - s for k, s in zip(choice["kernel"], choice["stride"], strict=True)) >= 0,
    ),
    tflite_operator(
        "BATCH_MATMUL", _matmul, sizes=[((1,), 4, 6, 5), ((2, 3), 2, 3, 4), ((1,), 1, 7, 1), ((3,), 5, 1, 2)],
        adj_x=[False, True], adj_y=[False, True], dtype=TYPES,
    ),
    tflite_operator("LEAKY_RELU", _leaky, shape=_RANKS, alpha=[0.0, 0.01, 0.3, 1.0, 1.5, -0.2], dtype=TYPES),
    tflite_operator(
        "PRELU", _prelu, shape=[(1, 4, 6, 5), (2, 3, 3, 1)], alpha=[(1, 1, 5), (1, 1, 1)], dtype=["float32", "int8"],
        is_valid=_SQUARES,
    ),
    *(_unary(name) for name in ("LOGISTIC", "TANH")),
    *(_unary(name, ("float32", "int8")) for name in ("RELU", "RELU6", "HARD_SWISH", "ELU", "L2_NORMALIZATION", "ABS")),
    *(_unary(name, ("float32",)) for name in ("EXP", "SQUARE", "NEG", "SIN", "COS", "FLOOR", "CEIL", "ROUND")),
    tflite_operator(
        "CUMSUM", _cumsum, shape=[(1, 4, 6, 5), (2, 3, 7), (9,)], axis=[-1, 0], exclusive=[False, True],
        reverse=[False, True], dtype=["float32", "int8"],
        unlike=lambda choice: "TensorFlow Lite Micro leaves the zero point out" if choice["dtype"] == "int8" else "",
    ),
    tflite_operator(
        "L2_POOL_2D", _l2_pool, shape=[(1, 9, 8, 4), (2, 6, 6, 5)], kernel=[(3, 3), (2, 3), (1, 1)],
        stride=[(1, 1), (2, 2), (1, 2)], padding=["same", "valid"], activation=list(ACTIVATIONS), dtype=["float32"],
    ),
]  # fmt: skip
