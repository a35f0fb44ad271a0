"""ONNX operators that compute one element at a time, casts, comparisons, quantization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.pairing.onnx_form import onnx_model
from benchmarks.pairing.operator_case import Choice, Input, Model, Operator

_SHAPES = ((2, 3, 4, 5), (3, 1, 5), (1, 7), (6,), (), (1, 2, 1, 3, 2), (1,))
_FLOATS = ("float32", "float64", "float16")
_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


def _unary(
    kind: str,
    dtypes: Sequence[str] = _FLOATS,
    *,
    result: str = "",
    domain: str = "",
    positive: bool = False,
    scale: float = 1.0,
    offset: float = 0.0,
    **attributes: Sequence[Any],
) -> Operator:
    """An operator of one input; attributes: the values of each."""

    def make(choice: Choice) -> Model:
        spec = Input(shape=choice["shape"], dtype=choice["dtype"], positive=positive, scale=scale, offset=offset)
        given = {name: choice[name] for name in attributes}
        return onnx_model(kind, {"x": spec}, outputs=[result or choice["dtype"]], attributes=given, domain=domain)

    factors = {"shape": list(_SHAPES), "dtype": list(dtypes), **attributes}
    title = f"{domain}.{kind}" if domain else kind
    return Operator(form="onnx", name=title, factors=factors, make=make)


_PLAIN = {
    **{key: {"scale": 0.3} for key in "Acos Asin Atanh".split()},
    **{key: {"positive": True} for key in "Log Sqrt Reciprocal".split()},
    "Acosh": {"positive": True, "offset": 1.1},
}
_NAMES = """
Abs Acos Acosh Asin Asinh Atan Atanh
Ceil Cos Cosh Erf Exp Floor HardSwish Log
Mish Neg Reciprocal Relu Round Sigmoid Sign Sin
Sinh Softplus Softsign Sqrt Tan Tanh Identity
"""

_BROADCASTS = (
    ((2, 3, 4, 5), (2, 3, 4, 5)),
    ((2, 3, 4, 5), (5,)),
    ((2, 3, 4, 5), (3, 1, 1)),
    ((4, 1), (2, 1, 5)),
    ((), (3, 4)),
    ((3, 4), ()),
    ((1, 6), (1, 1)),
    ((5,), (2, 3, 1)),
    ((1, 3, 1, 5, 2), (2, 1, 4, 1, 1)),
)


def _binary(
    kind: str,
    dtypes: Sequence[str],
    *,
    result: str = "",
    positive: bool = False,
    divides: bool = False,
    **attributes: Sequence[Any],
) -> Operator:
    """An operator of two inputs; `second`: an input, a constant, or the first again."""

    def make(choice: Choice) -> Model:
        dtype, (a, b) = choice["dtype"], choice["shapes"]
        first = Input(shape=a, dtype=dtype, positive=positive, low=-20 if not positive else 0)
        spec = Input(shape=b, dtype=dtype, positive=positive or divides, low=1 if positive or divides else -20, high=8)
        second: Any = spec
        if choice["second"] == "constant":
            second = spec.draw(np.random.default_rng(len(kind)))
        given = {name: choice[name] for name in attributes}
        return onnx_model(kind, {"a": first, "b": second}, outputs=[result or dtype], attributes=given)

    def is_valid(choice: Choice) -> bool:
        return kind != "Mod" or not (choice["fmod"] in (None, 0) and "float" in choice["dtype"])

    factors = {"shapes": list(_BROADCASTS), "dtype": list(dtypes), "second": ["input", "constant"], **attributes}
    return Operator(form="onnx", name=kind, factors=factors, make=make, is_valid=is_valid)


def _several(kind: str) -> Operator:
    def make(choice: Choice) -> Model:
        shapes = [choice["shape"], *_partial(choice["shape"])][: choice["count"]]
        inputs = {f"x{index}": Input(shape=shape, dtype=choice["dtype"]) for index, shape in enumerate(shapes)}
        return onnx_model(kind, inputs, outputs=[choice["dtype"]])

    dtypes = ["float32", "float64", "float16"] if kind in ("Mean", "Sum") else ["float32", "int32", "int8", "uint16"]
    factors = {"shape": list(_SHAPES), "dtype": dtypes, "count": [1, 2, 3]}
    return Operator(form="onnx", name=f"{kind} of several", factors=factors, make=make)


def _partial(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Return shapes that broadcast to a shape: its last axis alone, and with every other axis 1."""
    return [tuple(shape[-1:]), tuple(1 if axis % 2 else extent for axis, extent in enumerate(shape))]


def _clip() -> Operator:
    def make(choice: Choice) -> Model:
        dtype = choice["dtype"]
        bounds: dict[str, Any] = {}
        for name, value in (("low", -1), ("high", 2)):
            how = choice[name]
            array = np.array(value if np.dtype(dtype).kind != "u" else value + 1, dtype)
            bounds[name] = None if how is None else array if how == "constant" else Input(shape=(), dtype=dtype)
        return onnx_model("Clip", {"x": Input(shape=choice["shape"], dtype=dtype), **bounds}, outputs=[dtype])

    def is_valid(choice: Choice) -> bool:
        return (choice["low"], choice["high"]) != ("input", "input")

    values = [None, "constant", "input"]
    factors = {
        "shape": list(_SHAPES),
        "dtype": ["float32", "float64", "int8", "int32", "uint8", "int64"],
        "low": values,
        "high": values,
    }
    return Operator(form="onnx", name="Clip", factors=factors, make=make, is_valid=is_valid)


def _cast() -> Operator:
    def make(choice: Choice) -> Model:
        spec = Input(shape=choice["shape"], dtype=choice["from"], scale=9.0)
        attributes = {"to": _element(choice["to"])}
        return onnx_model("Cast", {"x": spec}, outputs=[choice["to"]], attributes=attributes)

    dtypes = [*_FLOATS, *_SIGNED, *_UNSIGNED, "bool"]
    factors = {"shape": [(2, 3, 4), (), (1, 5)], "from": dtypes, "to": dtypes}
    return Operator(form="onnx", name="Cast", factors=factors, make=make)


def _element(dtype: str) -> int:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _where() -> Operator:
    def make(choice: Choice) -> Model:
        a, b = choice["shapes"]
        condition = np.broadcast_shapes(a, b) if choice["condition"] == "whole" else a
        inputs = {
            "c": Input(shape=condition, dtype="bool"),
            "x": Input(shape=a, dtype=choice["dtype"]),
            "y": Input(shape=b, dtype=choice["dtype"]),
        }
        return onnx_model("Where", inputs, outputs=[choice["dtype"]])

    factors = {
        "shapes": list(_BROADCASTS),
        "dtype": ["float32", "int8", "int64", "uint8"],
        "condition": ["whole", "first"],
    }
    return Operator(form="onnx", name="Where", factors=factors, make=make)


def _prelu() -> Operator:
    def make(choice: Choice) -> Model:
        slope: Any = Input(shape=choice["slope"])
        if choice["constant"]:
            slope = slope.draw(np.random.default_rng(1))
        return onnx_model("PRelu", {"x": Input(shape=choice["shape"]), "slope": slope})

    def is_valid(choice: Choice) -> bool:
        try:
            return np.broadcast_shapes(choice["shape"], choice["slope"]) == choice["shape"]
        except ValueError:
            return False

    factors = {
        "shape": [(2, 3, 4, 5), (1, 3, 4, 5), (3, 5), (5,), (1, 3, 5)],
        "slope": [(1,), (), (5,), (3, 1, 1), (3, 1), (4, 5), (3, 5)],
        "constant": [True, False],
    }
    return Operator(form="onnx", name="PRelu", factors=factors, make=make, is_valid=is_valid)


def _quantize(kind: str) -> Operator:
    def make(choice: Choice) -> Model:
        shape, dtype = choice["shape"], choice["dtype"]
        by_axis = choice["scales"] == "axis"
        axis = choice["axis"] if choice["axis"] is not None else 1
        count = shape[axis] if by_axis else 1
        scale = np.linspace(0.02, 0.2, count).astype(np.float32)
        zero = np.arange(count).astype(dtype) + (np.array(3, dtype) if np.dtype(dtype).kind == "u" else 0)
        given: dict[str, Any] = {
            "scale": scale if by_axis else scale[0],
            "zero": zero.astype(dtype) if by_axis else zero[0],
        }
        given = {name: np.asarray(value) for name, value in given.items()}
        if choice["zero_point"] is None:
            given["zero"] = None
        attributes: Mapping[str, Any] = {"axis": choice["axis"]}
        if kind == "QuantizeLinear":
            if choice["zero_point"] is None:
                attributes = {**attributes, "output_dtype": _element(dtype)}
            return onnx_model(
                kind, {"x": Input(shape=shape, scale=5.0), **given}, outputs=[dtype], attributes=attributes
            )
        spec = Input(shape=shape, dtype=dtype, low=-128, high=256)
        return onnx_model(kind, {"x": spec, **given}, attributes=attributes)

    def is_valid(choice: Choice) -> bool:
        rank = len(choice["shape"])
        axis = 1 if choice["axis"] is None else choice["axis"]
        return choice["scales"] != "axis" or -rank <= axis < rank

    factors = {
        "shape": [(2, 3, 4, 5), (3, 4), (6,), (1, 3, 1), ()],
        "dtype": ["int8", "uint8", "int16", "uint16"],
        "axis": [None, 0, -1, 2],
        "scales": ["one", "axis"],
        "zero_point": [None, "given"],
    }
    return Operator(form="onnx", name=kind, factors=factors, make=make, is_valid=is_valid)


def _dynamic() -> Operator:
    def make(choice: Choice) -> Model:
        spec = Input(shape=choice["shape"], scale=choice["scale"], offset=choice["offset"])
        return onnx_model("DynamicQuantizeLinear", {"x": spec}, outputs=["uint8", "float32", "uint8"])

    factors = {"shape": list(_SHAPES), "scale": [1.0, 0.01, 100.0], "offset": [0.0, 5.0, -300.0]}
    return Operator(form="onnx", name="DynamicQuantizeLinear", factors=factors, make=make)


def _shifts() -> Operator:
    def make(choice: Choice) -> Model:
        dtype, (a, b) = choice["dtype"], choice["shapes"]
        inputs = {"a": Input(shape=a, dtype=dtype, low=0, high=200), "b": Input(shape=b, dtype=dtype, low=0, high=8)}
        return onnx_model("BitShift", inputs, outputs=[dtype], attributes={"direction": choice["direction"]})

    factors = {"shapes": list(_BROADCASTS), "dtype": list(_UNSIGNED), "direction": ["LEFT", "RIGHT"]}
    return Operator(form="onnx", name="BitShift", factors=factors, make=make)


_NUMBERS = ("float32", "float64", "float16", "int8", "int32", "int64", "uint8", "uint32")

OPERATORS = [
    *(_unary(name, **_PLAIN.get(name, {})) for name in _NAMES.split()),
    _unary("BitwiseNot", (*_SIGNED, *_UNSIGNED)),
    _unary("Not", ("bool",)),
    _unary("IsNaN", result="bool"),
    _unary("IsInf", ("float32", "float64"), result="bool", detect_negative=[None, 0], detect_positive=[None, 0]),
    _unary("Elu", alpha=[None, 0.5, 2.0]),
    _unary("Celu", ("float32",), alpha=[None, 0.5, 2.0]),
    _unary("Selu", alpha=[None, 1.2], gamma=[None, 0.7]),
    _unary("LeakyRelu", alpha=[None, 0.3, -0.2, 1.5]),
    _unary("ThresholdedRelu", alpha=[None, 0.3, 0.0]),
    _unary("HardSigmoid", alpha=[None, 0.5], beta=[None, 0.1]),
    _unary("Shrink", bias=[None, 0.2], lambd=[None, 0.1, 1.0]),
    _unary("Gelu", approximate=[None, "none", "tanh"]),
    *(_unary(kind, ("float32",), domain="com.microsoft") for kind in ("Gelu", "QuickGelu", "FastGelu")),
    *(_binary(kind, _NUMBERS) for kind in ("Add", "Sub", "Mul")),
    _binary("Div", _NUMBERS, divides=True),
    _binary("Mod", ("int8", "int32", "int64", "uint8", "uint32", "float32"), divides=True, fmod=[None, 0, 1]),
    _binary("Pow", ("float32", "float64"), positive=True),
    *(_binary(kind, ("float32", "int8", "int32", "int64", "uint8", "uint16")) for kind in ("Max", "Min")),
    *(
        _binary(kind, ("float32", "float64", "int32", "int64", "uint8"), result="bool")
        for kind in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    ),
    *(_binary(kind, ("bool",), result="bool") for kind in ("And", "Or", "Xor")),
    *(_binary(kind, (*_SIGNED, *_UNSIGNED)) for kind in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(_several(kind) for kind in ("Max", "Min", "Mean", "Sum")),
    _clip(),
    _cast(),
    _where(),
    _prelu(),
    _quantize("QuantizeLinear"),
    _quantize("DequantizeLinear"),
    _dynamic(),
    _shifts(),
]
