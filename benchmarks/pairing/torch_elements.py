"""PyTorch functions on elements, axes and positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.pairing.operator_case import Choice, Input, Operator
from benchmarks.pairing.torch_form import function

_SHAPES = ((2, 3, 4, 5), (3, 1, 4), (2, 6), (5,), ())
_FLOATS = ("float32", "float64")
_WHOLE = ("int32", "int64", "int8", "uint8")


def _x(choice: Choice, **named: Any) -> list[Input]:
    return [Input(shape=choice["shape"], dtype=choice.get("dtype", "float32"), **named)]


def _unary(name: str, *, dtypes: Sequence[str] = _FLOATS, positive: bool = False, scale: float = 1.0) -> Operator:
    def call(_: Choice) -> Any:
        import torch

        return getattr(torch, name)

    def inputs(choice: Choice) -> list[Input]:
        return _x(choice, positive=positive, scale=scale)

    return function(name, call, inputs, {"shape": list(_SHAPES), "dtype": list(dtypes)})


def _activation(name: str, **named: Sequence[Any]) -> Operator:
    """A module of torch.nn; named: values of its arguments, those that are None left out."""

    def call(choice: Choice) -> Any:
        from torch import nn

        return getattr(nn, name)(**{key: choice[key] for key in named if choice[key] is not None})

    return function(name, call, _x, {"shape": list(_SHAPES), "dtype": list(_FLOATS), **named})


_BROADCASTS = (
    ((2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (3, 1)),
    ((4, 1), (2, 1, 5)),
    ((), (3, 4)),
    ((1, 6), (1, 1)),
)


def _binary(
    name: str,
    dtypes: Sequence[str],
    *,
    divides: bool = False,
    positive: bool = False,
    scalars: Sequence[Any] = (None, 2, -1.5),
    **named: Sequence[Any],
) -> Operator:
    """A function of two tensors, or of a tensor and a number; named: values of its keyword arguments."""

    def call(choice: Choice) -> Any:
        import torch

        given = {key: choice[key] for key in named if choice[key] is not None}
        act = getattr(torch, name)
        if choice["scalar"] is None:
            return lambda a, b: act(a, b, **given)
        return lambda a: act(a, choice["scalar"], **given)

    def inputs(choice: Choice) -> list[Input]:
        a, b = choice["shapes"]
        first = Input(shape=a, dtype=choice["dtype"], positive=positive)
        second = Input(shape=b, dtype=choice["dtype"], positive=positive or divides, low=1 if divides else -20, high=9)
        return [first, second] if choice["scalar"] is None else [first]

    def is_valid(choice: Choice) -> bool:
        if isinstance(choice["scalar"], float) and "float" not in choice["dtype"]:
            return False
        given = [choice[key] for key in named]
        return not (name == "div" and "float" not in choice["dtype"] and "trunc" in given)

    factors = {"shapes": list(_BROADCASTS), "dtype": list(dtypes), "scalar": list(scalars), **named}
    return function(name, call, inputs, factors, is_valid)


def _reduced(name: str, dtypes: Sequence[str] = ("float32",), **named: Sequence[Any]) -> Operator:
    """A reduction: over all, over one axis, over several where `dims` has tuples."""
    several = name in ("sum", "mean", "amax", "amin", "var", "std", "norm", "logsumexp")

    def call(choice: Choice) -> Any:
        import torch

        given = {key: choice[key] for key in named if choice[key] is not None}
        act = torch.linalg.vector_norm if name == "norm" else getattr(torch, name)
        if choice["dim"] is None:
            return lambda x: act(x, **given)
        if choice["keepdim"] is not None:
            given["keepdim"] = choice["keepdim"]
        return lambda x: tuple(_leaves(act(x, dim=choice["dim"], **given)))

    def is_valid(choice: Choice) -> bool:
        rank, dim = len(choice["shape"]), choice["dim"]
        dims = dim if isinstance(dim, tuple) else (dim,) if dim is not None else ()
        if dim is None and (name in ("logsumexp", "cumsum", "cumprod", "softmax") or choice["keepdim"] is not None):
            return False
        return all(-rank <= axis < rank for axis in dims) and len({axis % rank for axis in dims}) == len(dims)

    dims: list[Any] = [None, 0, -1, 1, *([(0, 1), (-1, 0), (2, 3)] if several else [])]
    factors = {
        "shape": [(2, 3, 4, 5), (3, 1, 4), (2, 6), (5,)],
        "dtype": list(dtypes),
        "dim": dims,
        "keepdim": [None, True, False],
        **named,
    }
    return function(name, call, _x, factors, is_valid)


def _leaves(result: Any) -> list[Any]:
    import torch

    return torch.utils._pytree.tree_leaves(tuple(result) if isinstance(result, tuple) else result)


def _along(name: str, act: Callable[[Any, int], Any], dtypes: Sequence[str] = ("float32",)) -> Operator:
    """A function along one axis that keeps the shape."""

    def call(choice: Choice) -> Any:
        return lambda x: act(x, choice["dim"])

    def is_valid(choice: Choice) -> bool:
        return -len(choice["shape"]) <= choice["dim"] < len(choice["shape"])

    shapes = [shape for shape in _SHAPES if shape]
    return function(name, call, _x, {"shape": shapes, "dim": [0, 1, -1, -2, 2], "dtype": list(dtypes)}, is_valid)


def _method(
    name: str,
    arguments: Sequence[Any],
    is_valid: Callable[[Choice], bool],
    dtypes: Sequence[str] = ("float32", "int64"),
    shapes: Sequence[Any] = _SHAPES,
) -> Operator:
    """A method of tensors with these tuples of arguments."""

    def call(choice: Choice) -> Any:
        def of(x: Any) -> Any:
            result = getattr(x, name)(*choice["arguments"])
            return tuple(result) if isinstance(result, tuple | list) else result + 0

        return of

    factors = {"shape": list(shapes), "arguments": list(arguments), "dtype": list(dtypes)}
    return function(name, call, _x, factors, is_valid)


def _axes_fit(choice: Choice) -> bool:
    rank = len(choice["shape"])
    flat = [a for part in choice["arguments"] for a in (part if isinstance(part, tuple | list) else (part,))]
    return all(-rank <= axis < rank for axis in flat) and len({axis % max(rank, 1) for axis in flat}) == len(flat)


def _first_axis_fits(choice: Choice) -> bool:
    rank = len(choice["shape"])
    return -rank <= choice["arguments"][-1] < rank


def _permutes(choice: Choice) -> bool:
    return len(choice["arguments"][0]) == len(choice["shape"])


def _slices() -> Operator:
    import builtins

    cut = builtins.slice
    keys = {
        "1:": (cut(1, None),),
        "::2": (cut(None, None, 2),),
        "...,-1": (Ellipsis, -1),
        ":,1:3": (cut(None), cut(1, 3)),
        "-2:": (cut(-2, None),),
        "0": (0,),
        "None": (None,),
        "...,1:-1": (Ellipsis, cut(1, -1)),
        "list": ([1, 0],),
        ":,list": (cut(None), [0, -1]),
    }

    def call(choice: Choice) -> Any:
        return lambda x: x[keys[choice["key"]]] + 0

    def is_valid(choice: Choice) -> bool:
        rank, needed = len(choice["shape"]), {"None": 0, ":,1:3": 2, ":,list": 2}.get(choice["key"], 1)
        return rank >= needed and (rank == 0 or min(choice["shape"]) > 1 or "list" not in choice["key"])

    factors = {"shape": list(_SHAPES), "key": list(keys), "dtype": ["float32", "int64", "bool"]}
    return function("index", call, _x, factors, lambda c: is_valid(c) and c["dtype"] != "bool")


def _gathers() -> list[Operator]:
    def index_select(choice: Choice) -> Any:
        import torch

        return lambda x, i: torch.index_select(x, choice["dim"], i)

    def gather(choice: Choice) -> Any:
        import torch

        return lambda x, i: torch.gather(x, choice["dim"], i)

    def fits(choice: Choice) -> bool:
        return -len(choice["shape"]) <= choice["dim"] < len(choice["shape"])

    shapes = [shape for shape in _SHAPES if shape]
    return [
        function(
            "index_select",
            index_select,
            lambda c: [*_x(c), Input(shape=(3,), dtype="int64", low=0, high=c["shape"][c["dim"]])],
            {"shape": shapes, "dim": [0, 1, -1, -2], "dtype": ["float32", "int64"]},
            fits,
        ),
        function(
            "gather",
            gather,
            lambda c: [*_x(c), Input(shape=c["shape"], dtype="int64", low=0, high=c["shape"][c["dim"]])],
            {"shape": shapes, "dim": [0, 1, -1, -2], "dtype": ["float32", "int64"]},
            fits,
        ),
    ]


def _joins() -> list[Operator]:
    def call(name: str) -> Callable[[Choice], Any]:
        def of(choice: Choice) -> Any:
            import torch

            return lambda a, b, c: getattr(torch, name)([*[a, b, c][: choice["count"]], a], dim=choice["dim"])

        return of

    def inputs(choice: Choice) -> list[Input]:
        return [Input(shape=choice["shape"], dtype=choice["dtype"])] * 3

    def fits(choice: Choice) -> bool:
        return -len(choice["shape"]) <= choice["dim"] < len(choice["shape"])

    factors = {
        "shape": [s for s in _SHAPES if s],
        "dim": [0, 1, -1, -2],
        "count": [1, 3],
        "dtype": ["float32", "int64"],
    }
    return [function(name, call(name), inputs, factors, fits) for name in ("cat", "stack")]


def _where() -> Operator:
    def call(_: Choice) -> Any:
        import torch

        return torch.where

    def inputs(choice: Choice) -> list[Input]:
        a, b = choice["shapes"]
        return [
            Input(shape=a, dtype="bool"),
            Input(shape=a, dtype=choice["dtype"]),
            Input(shape=b, dtype=choice["dtype"]),
        ]

    return function("where", call, inputs, {"shapes": list(_BROADCASTS), "dtype": ["float32", "int64", "int32"]})


def _masked_fill() -> Operator:
    def call(choice: Choice) -> Any:
        return lambda x, mask: x.masked_fill(mask, choice["value"])

    def inputs(choice: Choice) -> list[Input]:
        a, b = choice["shapes"]
        return [Input(shape=a), Input(shape=b, dtype="bool")]

    shapes = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((3, 4), (3, 1))]
    return function("masked_fill", call, inputs, {"shapes": shapes, "value": [0.0, -1e4, float("-inf"), 3]})


def _clamp() -> Operator:
    def call(choice: Choice) -> Any:
        return lambda x: x.clamp(min=choice["min"], max=choice["max"])

    factors = {
        "shape": list(_SHAPES),
        "dtype": ["float32", "int32", "int64"],
        "min": [None, -1, 0.5],
        "max": [None, 1, 0.75],
    }
    return function("clamp", call, _x, factors, lambda c: (c["min"], c["max"]) != (None, None))


def _topk() -> Operator:
    def call(choice: Choice) -> Any:
        return lambda x: tuple(x.topk(choice["k"], dim=choice["dim"], largest=choice["largest"]))

    def fits(choice: Choice) -> bool:
        rank = len(choice["shape"])
        return -rank <= choice["dim"] < rank and choice["k"] <= choice["shape"][choice["dim"]]

    return function(
        "topk",
        call,
        _x,
        {"shape": [s for s in _SHAPES if s], "dim": [0, -1, 1], "k": [1, 2], "largest": [True, False]},
        fits,
    )


def _softmaxes() -> list[Operator]:
    def act(name: str) -> Callable[[Any, int], Any]:
        def of(x: Any, dim: int) -> Any:
            import torch

            return getattr(torch, name)(x, dim)

        return of

    return [
        *(_along(name, act(name), ("float32", "float64")) for name in ("softmax", "log_softmax", "logsumexp")),
        *(_along(name, act(name), ("float32", "int64")) for name in ("cumsum", "cumprod")),
        _along("normalize", _normalized),
        _along("glu", lambda x, dim: __import__("torch").nn.functional.glu(x, dim)),
    ]


def _normalized(x: Any, dim: int) -> Any:
    from torch.nn.functional import normalize

    return normalize(x, dim=dim)


def _casts() -> Operator:
    def call(choice: Choice) -> Any:
        import torch

        return lambda x: x.to(getattr(torch, choice["to"]))

    dtypes = ["float32", "float64", "int8", "int32", "int64", "uint8", "bool", "float16"]
    return function(
        "to",
        call,
        lambda c: _x(c, scale=5.0),
        {"shape": [(2, 3), ()], "dtype": dtypes, "to": dtypes},
        lambda c: c["dtype"] != c["to"],
    )


_SIGNED = "abs neg sign"
_PLAIN = """
ceil floor round trunc cos sin tan sinh cosh tanh asinh
atan exp expm1 erf sigmoid isnan isinf isfinite square frac
"""
_ACTIVATIONS = """
ReLU ReLU6 SiLU Mish Tanh Sigmoid LogSigmoid Softsign Tanhshrink Hardswish Hardsigmoid SELU
"""
_POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal"

OPERATORS = [
    *(_unary(name) for name in _PLAIN.split()),
    *(_unary(name, positive=True) for name in _POSITIVE.split()),
    *(_unary(name, scale=0.3) for name in ("acos", "asin", "atanh")),
    *(_unary(name, dtypes=("float32", "int32", "int8", "int64")) for name in _SIGNED.split()),
    _unary("bitwise_not", dtypes=("int32", "int8", "bool")),
    _unary("logical_not", dtypes=("float32", "bool", "int32")),
    *(_activation(name) for name in _ACTIVATIONS.split()),
    _activation("CELU", alpha=[None, 0.5, 2.0]),
    _activation("ELU", alpha=[None, 0.5, 2.0]),
    _activation("LeakyReLU", negative_slope=[None, 0.3, -0.2]),
    _activation("GELU", approximate=[None, "tanh"]),
    _activation("Hardtanh", min_val=[None, -0.5], max_val=[None, 0.7]),
    _activation("Hardshrink", lambd=[None, 0.2]),
    _activation("Softshrink", lambd=[None, 0.2]),
    _activation("Softplus", beta=[None, 2.0], threshold=[None, 1.0]),
    _activation("Threshold", threshold=[0.1, -0.3], value=[0.5, -2.0]),
    _activation("PReLU", init=[None, 0.4]),
    _binary("add", ("float32", "int32", "int64", "uint8"), alpha=[None, 2]),
    _binary("sub", ("float32", "int32", "int64"), alpha=[None, 2]),
    _binary("rsub", ("float32", "int64"), alpha=[None, 2]),
    _binary("mul", ("float32", "int32", "int64", "uint8")),
    _binary("div", ("float32", "int32", "int64"), divides=True, rounding_mode=[None, "floor", "trunc"]),
    _binary("floor_divide", ("float32", "int32", "int64"), divides=True),
    _binary("remainder", ("float32", "int32", "int64"), divides=True),
    _binary("fmod", ("float32", "int32", "int64"), divides=True),
    _binary("pow", ("float32", "float64"), positive=True),
    *(_binary(name, ("float32", "int32", "int64"), scalars=(None,)) for name in ("maximum", "minimum")),
    *(_binary(name, ("float32", "float64"), scalars=(None,)) for name in ("atan2", "logaddexp", "fmax", "hypot")),
    *(_binary(name, ("float32", "int32", "int64")) for name in ("eq", "ne", "gt", "ge", "lt", "le")),
    *(
        _binary(name, ("bool", "int32", "int8"), scalars=(None,))
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    *(
        _binary(name, ("bool", "float32", "int32"), scalars=(None,))
        for name in ("logical_and", "logical_or", "logical_xor")
    ),
    *(_reduced(name, ("float32", "int64")) for name in ("sum", "prod", "any", "all")),
    _reduced("mean"),
    *(_reduced(name, correction=[None, 0, 1]) for name in ("var", "std")),
    _reduced("norm", ord=[None, 1, 2, 3, float("inf")]),
    *(_reduced(name, ("float32", "int64", "int32")) for name in ("amax", "amin", "argmax", "argmin", "max", "min")),
    _reduced("median"),
    *_softmaxes(),
    _slices(),
    *_gathers(),
    *_joins(),
    _where(),
    _masked_fill(),
    _clamp(),
    _topk(),
    _casts(),
    _method("permute", [((1, 0),), ((2, 0, 1),), ((0, 2, 3, 1),), ((0, 3, 1, 2),), ((0, 2, 1),)], _permutes),
    _method("transpose", [(0, 1), (-1, -2), (1, 2), (0, -1)], _axes_fit),
    _method("flip", [((0,),), ((1,),), ((-1, 0),)], _axes_fit),
    _method("roll", [(1, 0), (-2, 1), (3, -1), (5, 0)], _first_axis_fits),
    _method("flatten", [(), (1,), (0, 1), (-2,)], _axes_fit),
    _method("squeeze", [(), (1,), (-2,)], _axes_fit),
    _method("unsqueeze", [(0,), (1,), (-1,)], lambda c: c["arguments"][0] <= len(c["shape"])),
    _method("repeat", [(2, 1, 1, 3), (1, 2, 1, 1, 1)], lambda c: len(c["arguments"]) >= len(c["shape"])),
    _method(
        "split",
        [(2, 0), (1, -1), ([1, 1], 0), (3, 1)],
        lambda c: _first_axis_fits(c) and (not isinstance(c["arguments"][0], list) or c["shape"][0] == 2),
    ),
    _method("chunk", [(2, 0), (3, -1), (2, 1)], _first_axis_fits),
    _method("unbind", [(0,), (-1,), (1,)], _axes_fit),
    _method(
        "narrow", [(0, 1, 1), (-1, 0, 2)], lambda c: len(c["shape"]) > 0 and min(c["shape"][0], c["shape"][-1]) >= 2
    ),
    _method("select", [(0, 1), (-1, 0), (1, -1)], lambda c: -len(c["shape"]) <= c["arguments"][0] < len(c["shape"])),
    _method("tril", [(), (1,), (-1,)], lambda c: len(c["shape"]) > 1),
    _method("triu", [(), (1,), (-1,)], lambda c: len(c["shape"]) > 1),
    _method("diagonal", [(), (1,), (-1, 0, 1)], lambda c: len(c["shape"]) > 1),
    _method("unflatten", [(-1, (2, -1))], lambda c: len(c["shape"]) > 0 and c["shape"][-1] % 2 == 0),
    _method(
        "expand",
        [(-1, -1, -1, -1), (3, 4, 4), (2, -1, -1)],
        lambda c: (
            len(c["shape"]) == len(c["arguments"])
            and all(a in (-1, e) or e == 1 for a, e in zip(c["arguments"], c["shape"], strict=True))
        ),
    ),
    _method("sort", [(0,), (-1,), (-1, True)], lambda c: len(c["shape"]) > 0, ("float32",)),
    _method(
        "reshape",
        [((-1,),), ((2, -1),), ((1, -1, 2),)],
        lambda c: len(c["shape"]) > 0 and __import__("math").prod(c["shape"]) % 2 == 0,
    ),
]
