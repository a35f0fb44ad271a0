"""Operators that compute each element from those in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.tflite_cases.case import SHAPE, TYPES, Case, ints, one_result, same_scales
from tests.support.tflite_file import Quantized
from tests.support.tflite_models import RELU, RELU6, Network

_FLOAT = ("float32",)


def _unary(name: str, options: str = "", scales: str = "own", **fields: object) -> Case:
    positive = name in ("LOG", "SQRT", "RSQRT")
    return Case(name=name, make=one_result(name, options, scales=scales, **fields), positive=positive)


def two_inputs(
    operator: str, options: str = "", *, shapes: Sequence[Sequence[int]] = (SHAPE, SHAPE), is_constant: bool = False,
    scales: str = "own", dtype: str = "", given: str = "", **fields: object,
) -> Callable[[Network], list[int]]:  # fmt: skip
    """A writer of an operator on two inputs. is_constant: the second one stands in the file. given: their type."""

    def make(net: Network) -> list[int]:
        a = net.input(shapes[0], "a") if not given else net.writer.input("a", shapes[0], given)
        same = same_scales(net, a) if scales == "same" else net.scales()
        if is_constant:
            array = net.random.normal(0, 1, shapes[1]).astype(np.float32)
            if net.dtype != "float32":
                array = net.random.integers(-100, 101, shapes[1]).astype(net.dtype)
            b = net.writer.constant("b", array, same)
        else:
            b = net.writer.input("b", shapes[1], given or net.dtype, None if given else same)
        result = tuple(np.broadcast_shapes(tuple(shapes[0]), tuple(shapes[1])))
        wanted = None if dtype else same if scales == "same" else net.scales(8.0)
        y = net.writer.tensor("y", result, dtype or net.dtype, wanted)
        return [net.writer.operator(operator, [a, b], y, options, **fields)]

    return make


def _arithmetic(name: str, scales: str = "own", *, fused: bool = True) -> list[Case]:
    """The same shape, the second repeated, the first repeated, a constant, a fused activation."""
    options = "".join(part.capitalize() for part in name.split("_")) + "Options"
    if name in ("MAXIMUM", "MINIMUM"):
        options = "MaximumMinimumOptions"
    many = {
        "same shape": {}, "second repeated": {"shapes": (SHAPE, (1, 1, 1, 5))},
        "first repeated": {"shapes": ((1, 1, 6, 1), SHAPE)}, "constant": {"is_constant": True},
        "one number": {"is_constant": True, "shapes": (SHAPE, ())},
    }  # fmt: skip
    cases = [
        Case(
            name=f"{name} {label}", make=two_inputs(name, options, scales=scales, **how), positive=name == "DIV",
            real=np.divide if name == "DIV" else None,
        )
        for label, how in many.items()
    ]  # fmt: skip
    for activation, label in ((RELU, "relu"), (RELU6, "relu6")) if fused else ():
        make = two_inputs(name, options, scales=scales, FusedActivationFunction=activation)
        types = _FLOAT if name == "DIV" else TYPES
        cases.append(Case(name=f"{name} {label}", make=make, positive=name == "DIV", types=types))
    return cases


def _comparison(name: str) -> list[Case]:
    options = "".join(part.capitalize() for part in name.split("_")) + "Options"
    return [
        Case(name=name, make=two_inputs(name, options, dtype="bool")),
        Case(name=f"{name} repeated", make=two_inputs(name, options, dtype="bool", shapes=(SHAPE, (1, 1, 6, 1)))),
        Case(name=f"{name} one scale", make=two_inputs(name, options, dtype="bool", scales="same")),
    ]


def _logical(name: str) -> Case:
    options = "".join(part.capitalize() for part in name.split("_")) + "Options"
    return Case(name=name, make=two_inputs(name, options, dtype="bool", given="bool"), types=_FLOAT)


def _logical_not(net: Network) -> list[int]:
    x = net.writer.input("x", SHAPE, "bool")
    return [net.writer.operator("LOGICAL_NOT", [x], net.writer.tensor("y", SHAPE, "bool"), "LogicalNotOptions")]


def _prelu(net: Network) -> list[int]:
    x = net.input(SHAPE)
    if net.dtype == "float32":
        alpha = net.writer.constant("alpha", net.random.normal(0, 0.3, (1, 1, 5)).astype(np.float32))
    else:
        scales = Quantized(scale=0.004, zero_point=0 if net.int16 else 7)
        alpha = net.writer.constant("alpha", net.random.integers(-128, 128, (1, 1, 5)).astype(np.int8), scales)
    return [net.writer.operator("PRELU", [x, alpha], net.output("y", SHAPE))]


def _add_n(net: Network) -> list[int]:
    inputs = [net.input(SHAPE, f"x{index}") for index in range(3)]
    for index in inputs:
        net.writer.tensors[index].quantized = same_scales(net, inputs[0])
    return [net.writer.operator("ADD_N", inputs, net.output("y", SHAPE, net.scales(12.0)), "AddNOptions")]


def _select(net: Network) -> list[int]:
    where = net.writer.input("where", SHAPE, "bool")
    a, b = net.input(SHAPE, "a"), net.input(SHAPE, "b")
    net.writer.tensors[b].quantized = same_scales(net, a)
    return [
        net.writer.operator("SELECT_V2", [where, a, b], net.output("y", SHAPE, same_scales(net, a)), "SelectV2Options")
    ]


def _rsqrt(net: Network) -> list[int]:
    """RSQRT whose zero point is the least element: it is refused for elements below."""
    x = net.writer.input("x", SHAPE, "int8", Quantized(scale=0.05, zero_point=-128))
    return [net.writer.operator("RSQRT", [x], net.output("y", SHAPE))]


def _quantize(wanted: str, scale: float, zero_point: int) -> Callable[[Network], list[int]]:
    def make(net: Network) -> list[int]:
        x, scales = net.input(SHAPE), Quantized(scale=scale, zero_point=zero_point)
        return [net.writer.operator("QUANTIZE", [x], net.writer.tensor("y", SHAPE, wanted, scales), "QuantizeOptions")]

    return make


def _cast(wanted: str, given: str = "") -> Callable[[Network], list[int]]:
    """CAST, whose tensors have no scale."""

    def make(net: Network) -> list[int]:
        x = net.writer.input("x", SHAPE, given or net.dtype)
        return [net.writer.operator("CAST", [x], net.writer.tensor("y", SHAPE, wanted), "CastOptions")]

    return make


def _whole(name: str) -> Case:
    """An operator on int32, whose second input is above zero."""
    options = "".join(part.capitalize() for part in name.split("_")) + "Options"

    def make(net: Network) -> list[int]:
        a = net.writer.input("a", SHAPE, "int32")
        b = net.writer.constant("b", ints(*range(1, 6)))
        return [net.writer.operator(name, [a, b], net.writer.tensor("y", SHAPE, "int32"), options)]

    return Case(name=f"{name} int32", make=make, types=_FLOAT)


CASES: dict[str, list[Case]] = {
    **{name: [_unary(name)] for name in "CEIL COS ELU FLOOR HARD_SWISH LOG RELU ROUND SIN SQRT".split()},
    "RELU6": [_unary("RELU6", scales="same")],
    "RSQRT": [_unary("RSQRT"), Case(name="RSQRT above zero", make=_rsqrt, types=("int8",))],
    "ABS": [_unary("ABS", "AbsOptions"), Case(name="ABS one scale", make=one_result("ABS", scales="same"))],
    "EXP": [_unary("EXP", "ExpOptions")],
    "NEG": [_unary("NEG", "NegOptions"), Case(name="NEG one scale", make=one_result("NEG", scales="same"))],
    "SQUARE": [_unary("SQUARE", "SquareOptions")],
    "ZEROS_LIKE": [_unary("ZEROS_LIKE", "ZerosLikeOptions", "none")],
    "LOGISTIC": [
        Case(name="LOGISTIC", make=one_result("LOGISTIC", scales="256,-128"), types=("float32", "int8")),
        Case(name="LOGISTIC of int16", make=one_result("LOGISTIC", scales="128,0"), types=("int16x8",)),
    ],
    "TANH": [_unary("TANH", scales="128,0")],
    "LEAKY_RELU": [_unary("LEAKY_RELU", "LeakyReluOptions", Alpha=alpha) for alpha in (0.1, -0.3, 1.5)],
    "PRELU": [Case(name="PRELU", make=_prelu)],
    "ADD": _arithmetic("ADD"), "SUB": _arithmetic("SUB"), "MUL": _arithmetic("MUL"),
    "DIV": _arithmetic("DIV"),
    "SQUARED_DIFFERENCE": _arithmetic("SQUARED_DIFFERENCE", fused=False),
    "MAXIMUM": _arithmetic("MAXIMUM", "same", fused=False), "MINIMUM": _arithmetic("MINIMUM", "same", fused=False),
    "FLOOR_DIV": [*_arithmetic("FLOOR_DIV", fused=False)[:2], _whole("FLOOR_DIV")],
    "FLOOR_MOD": [*_arithmetic("FLOOR_MOD", fused=False)[:2], _whole("FLOOR_MOD")],
    **{name: _comparison(name) for name in "EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL".split()},
    "LOGICAL_AND": [_logical("LOGICAL_AND")], "LOGICAL_OR": [_logical("LOGICAL_OR")],
    "LOGICAL_NOT": [Case(name="LOGICAL_NOT", make=_logical_not, types=_FLOAT)],
    "ADD_N": [Case(name="ADD_N", make=_add_n, real=lambda *tensors: sum(tensors, np.zeros(())))],
    "SELECT_V2": [Case(name="SELECT_V2", make=_select)],
    "QUANTIZE": [
        Case(name="QUANTIZE to int8", make=_quantize("int8", 0.03, 5)),
        Case(name="QUANTIZE to int16", make=_quantize("int16", 0.0002, 0)),
        Case(name="QUANTIZE to int32", make=_quantize("int32", 1e-5, 0), types=("int8", "int16x8")),
    ],
    "DEQUANTIZE": [
        Case(name="DEQUANTIZE", types=("int8", "int16x8"),
             make=one_result("DEQUANTIZE", "DequantizeOptions", scales="none", dtype="float32"))
    ],
    "CAST": [
        *(Case(name=f"CAST to {wanted}", make=_cast(wanted)) for wanted in ("float32", "int32", "int8", "int16")),
        Case(name="CAST int32 to float32", make=_cast("float32", "int32"), types=_FLOAT),
        Case(name="CAST bool to float32", make=_cast("float32", "bool"), types=_FLOAT),
    ],
}  # fmt: skip
