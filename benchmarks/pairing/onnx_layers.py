"""ONNX operators with sums over axes: matrices, reductions, norms, softmax, recurrent layers, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.pairing.onnx_form import onnx_model
from benchmarks.pairing.onnx_windows import weights
from benchmarks.pairing.operator_case import Choice, Input, Model, Operator


def _constant_or_input(how: str, shape: Sequence[int], dtype: str = "float32") -> Any:
    spec = Input(shape=tuple(shape), dtype=dtype)
    return spec if how == "input" else spec.draw(np.random.default_rng(len(shape)))


def _matmul() -> Operator:
    pairs = [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 1, 3, 4), (1, 3, 4, 1)),
        ((1, 1), (1, 1)),
        ((3, 4), (2, 4, 5)),
        ((1, 7), (7, 1)),
    ]

    def make(choice: Choice) -> Model:
        a, b = choice["shapes"]
        inputs = {
            "a": _constant_or_input("constant" if choice["constant"] == "a" else "input", a, choice["dtype"]),
            "b": _constant_or_input("constant" if choice["constant"] == "b" else "input", b, choice["dtype"]),
        }
        return onnx_model("MatMul", inputs, outputs=[choice["dtype"]])

    factors = {"shapes": pairs, "constant": ["", "a", "b"], "dtype": ["float32", "float64", "int32", "float16"]}
    return Operator(form="onnx", name="MatMul", factors=factors, make=make)


def _gemm() -> Operator:
    def make(choice: Choice) -> Model:
        m, k, n = choice["size"]
        a = (k, m) if choice["transA"] else (m, k)
        b = (n, k) if choice["transB"] else (k, n)
        bias = {"": None, "n": (n,), "1n": (1, n), "m1": (m, 1), "mn": (m, n), "scalar": ()}[choice["bias"]]
        inputs: dict[str, Any] = {"a": Input(shape=a), "b": _constant_or_input(choice["weight"], b)}
        inputs["c"] = None if bias is None else _constant_or_input(choice["weight"], bias)
        attributes = {name: choice[name] for name in ("alpha", "beta", "transA", "transB")}
        return onnx_model("Gemm", inputs, attributes=attributes)

    factors = {
        "size": [(3, 4, 5), (1, 8, 6), (5, 1, 1), (1, 1, 7), (4, 4, 4)],
        "transA": [None, 0, 1],
        "transB": [None, 0, 1],
        "alpha": [None, 0.5, 2.0],
        "beta": [None, 0.0, -1.5],
        "bias": ["", "n", "1n", "m1", "mn", "scalar"],
        "weight": ["constant", "input"],
    }
    return Operator(form="onnx", name="Gemm", factors=factors, make=make)


def _einsum() -> Operator:
    equations = {
        "ij,jk->ik": ((3, 4), (4, 5)),
        "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
        "bhid,bhjd->bhij": ((1, 2, 3, 4), (1, 2, 5, 4)),
        "ij->ji": ((3, 4),),
        "ij->": ((3, 4),),
        "ii->i": ((4, 4),),
        "ij->i": ((3, 4),),
        "i,j->ij": ((3,), (4,)),
        "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)),
        "ij,ij->ij": ((3, 4), (3, 4)),
        "bchw,bkhw->bck": ((1, 2, 3, 4), (1, 3, 3, 4)),
        "ij,jk": ((3, 4), (4, 5)),
        "i,i->": ((4,), (4,)),
        "ijk,kl->ijl": ((2, 3, 4), (4, 2)),
    }

    def make(choice: Choice) -> Model:
        shapes = equations[choice["equation"]]
        inputs = {f"x{index}": Input(shape=shape) for index, shape in enumerate(shapes)}
        if choice["constant"] and len(shapes) > 1:
            inputs["x1"] = inputs["x1"].draw(np.random.default_rng(2))
        return onnx_model("Einsum", inputs, attributes={"equation": choice["equation"]})

    return Operator(
        form="onnx", name="Einsum", factors={"equation": list(equations), "constant": [False, True]}, make=make
    )


_RANKS = ((2, 3, 4, 5), (3, 1, 4), (2, 6), (5,), (1, 1, 2, 3, 2), ())


def _reduction(kind: str, dtypes: Sequence[str]) -> Operator:
    def make(choice: Choice) -> Model:
        shape, axes = choice["shape"], choice["axes"]
        is_input = kind == "ReduceSum" or choice["opset"] >= 18
        inputs: dict[str, Any] = {
            "x": Input(shape=shape, dtype=choice["dtype"], positive=kind == "ReduceLogSum", low=-4, high=5)
        }
        inputs["axes"] = np.array(axes, np.int64) if is_input and axes is not None else None
        attributes = {"keepdims": choice["keepdims"], "axes": None if is_input else axes}
        attributes["noop_with_empty_axes"] = choice["noop"] if is_input else None
        return onnx_model(kind, inputs, outputs=[choice["dtype"]], attributes=attributes, opset=choice["opset"])

    def is_valid(choice: Choice) -> bool:
        axes, rank = choice["axes"], len(choice["shape"])
        if axes is None:
            return True
        if not axes and (choice["opset"] < 18 and kind != "ReduceSum"):
            return False
        return all(-rank <= axis < rank for axis in axes) and len({axis % rank for axis in axes}) == len(axes)

    factors = {
        "shape": list(_RANKS),
        "axes": [None, (0,), (-1,), (1, 2), (0, -1), (2, 3), (0, 1), (1,), ()],
        "keepdims": [None, 0, 1],
        "noop": [None, 1],
        "dtype": list(dtypes),
        "opset": [18, 13],
    }
    return Operator(form="onnx", name=kind, factors=factors, make=make, is_valid=is_valid)


def _arg(kind: str) -> Operator:
    def make(choice: Choice) -> Model:
        attributes = {name: choice[name] for name in ("axis", "keepdims", "select_last_index")}
        spec = Input(shape=choice["shape"], dtype=choice["dtype"], low=-3, high=3)
        return onnx_model(kind, {"x": spec}, outputs=["int64"], attributes=attributes)

    def is_valid(choice: Choice) -> bool:
        rank = len(choice["shape"])
        return -rank <= (choice["axis"] or 0) < rank

    factors = {
        "shape": [shape for shape in _RANKS if shape],
        "axis": [None, 0, 1, -1, 2, -2],
        "keepdims": [None, 0, 1],
        "select_last_index": [None, 1],
        "dtype": ["float32", "int8", "int32", "uint8"],
    }
    return Operator(form="onnx", name=kind, factors=factors, make=make, is_valid=is_valid)


def _along_axis(kind: str, **attributes: Sequence[Any]) -> Operator:
    def make(choice: Choice) -> Model:
        given = {name: choice[name] for name in ("axis", *attributes)}
        return onnx_model(kind, {"x": Input(shape=choice["shape"])}, attributes=given, opset=choice["opset"])

    def is_valid(choice: Choice) -> bool:
        rank, axis = len(choice["shape"]), choice["axis"]
        return (axis is None and rank > 0) or (axis is not None and -rank <= axis < rank)

    factors = {
        "shape": [shape for shape in _RANKS if shape],
        "axis": [None, 0, 1, -1, 2, -2, 3],
        "opset": [13, 11],
        **attributes,
    }
    if kind == "LpNormalization":
        factors["opset"] = [22, 1]
    return Operator(form="onnx", name=kind, factors=factors, make=make, is_valid=is_valid)


def _cumulative(kind: str, opset: int) -> Operator:
    def make(choice: Choice) -> Model:
        inputs = {
            "x": Input(shape=choice["shape"], dtype=choice["dtype"], low=-3, high=4),
            "axis": np.array(choice["axis"]),
        }
        attributes = {name: choice[name] for name in ("exclusive", "reverse")}
        return onnx_model(kind, inputs, outputs=[choice["dtype"]], attributes=attributes, opset=opset)

    def is_valid(choice: Choice) -> bool:
        return -len(choice["shape"]) <= choice["axis"] < len(choice["shape"])

    factors = {
        "shape": [shape for shape in _RANKS if shape],
        "axis": [0, -1, 1, 2, -2],
        "exclusive": [None, 1],
        "reverse": [None, 1],
        "dtype": ["float32", "int32", "int64"],
    }
    return Operator(form="onnx", name=kind, factors=factors, make=make, is_valid=is_valid)


def _channel_norm(kind: str) -> Operator:
    def make(choice: Choice) -> Model:
        shape = choice["shape"]
        channels = shape[1]
        spec = Input(shape=shape, offset=choice["offset"])
        scale, bias = weights(channels) + 1, weights(channels)
        inputs: dict[str, Any] = {"x": spec, "scale": scale, "bias": bias}
        attributes: dict[str, Any] = {"epsilon": choice["epsilon"]}
        opset = 22
        if kind == "BatchNormalization":
            inputs |= {"mean": weights(channels), "var": np.abs(weights(channels)) + 0.2}
            opset = choice["opset"]
        elif kind == "GroupNormalization":
            attributes["num_groups"] = choice["num_groups"]
            opset = choice["opset"]
            if opset < 21:
                groups = choice["num_groups"]
                inputs |= {"scale": weights(groups) + 1, "bias": weights(groups)}
        return onnx_model(kind, inputs, attributes=attributes, opset=opset)

    def is_valid(choice: Choice) -> bool:
        return kind != "GroupNormalization" or choice["shape"][1] % choice["num_groups"] == 0

    factors: dict[str, Any] = {
        "shape": [(1, 4, 5, 6), (2, 4, 7), (2, 6, 3, 4), (1, 4, 3, 2, 5), (1, 4, 1, 9), (2, 6, 1)],
        "epsilon": [None, 1e-3, 0.5],
        "offset": [0.0, 30.0],
    }
    if kind == "BatchNormalization":
        factors |= {"shape": [*factors["shape"], (3, 5)], "opset": [15, 9]}
    if kind == "GroupNormalization":
        factors |= {"num_groups": [1, 2, 4, 3], "opset": [21, 18]}
    return Operator(form="onnx", name=kind, factors=factors, make=make, is_valid=is_valid)


def _layer_norm(kind: str) -> Operator:
    def make(choice: Choice) -> Model:
        shape, axis = choice["shape"], -1 if choice["axis"] is None else choice["axis"]
        inner = shape[axis % len(shape) :]
        if choice["weights"] == "last axis":
            inner = shape[-1:]
        inputs: dict[str, Any] = {"x": Input(shape=shape, offset=choice["offset"]), "scale": weights(*inner) + 1}
        outputs = ["float32"]
        if kind == "LayerNormalization":
            inputs["bias"] = weights(*inner) if choice["bias"] else None
            outputs += ["float32", "float32"][: choice["outputs"] - 1]
        attributes = {"axis": choice["axis"], "epsilon": choice["epsilon"]}
        opset = 17 if kind == "LayerNormalization" else 23
        return onnx_model(kind, inputs, outputs=outputs, attributes=attributes, opset=opset)

    def is_valid(choice: Choice) -> bool:
        rank, axis = len(choice["shape"]), -1 if choice["axis"] is None else choice["axis"]
        return -rank <= axis < rank

    factors: dict[str, Any] = {
        "shape": [(2, 3, 4, 5), (1, 6, 8), (3, 7), (9,), (2, 1, 6), (4, 1)],
        "axis": [None, -1, 1, -2, 0, 2],
        "epsilon": [None, 1e-2],
        "offset": [0.0, 20.0],
        "weights": ["whole", "last axis"],
    }
    if kind == "LayerNormalization":
        factors |= {"bias": [True, False], "outputs": [1, 2, 3]}
    return Operator(form="onnx", name=kind, factors=factors, make=make, is_valid=is_valid)


def _mvn() -> Operator:
    def make(choice: Choice) -> Model:
        spec = Input(shape=choice["shape"], offset=choice["offset"])
        return onnx_model("MeanVarianceNormalization", {"x": spec}, attributes={"axes": choice["axes"]}, opset=13)

    def is_valid(choice: Choice) -> bool:
        return all(axis < len(choice["shape"]) for axis in choice["axes"] or (3,))

    factors = {
        "shape": [(1, 4, 5, 6), (2, 3, 4, 1), (2, 3, 7)],
        "axes": [None, (0, 2, 3), (2,), (1, 2), (0, 1, 2)],
        "offset": [0.0, 30.0],
    }
    return Operator(form="onnx", name="MeanVarianceNormalization", factors=factors, make=make, is_valid=is_valid)


def _lrn() -> Operator:
    def make(choice: Choice) -> Model:
        attributes = {name: choice[name] for name in ("size", "alpha", "beta", "bias")}
        return onnx_model("LRN", {"x": Input(shape=choice["shape"], scale=3.0)}, attributes=attributes)

    factors = {
        "shape": [(1, 5, 3, 4), (2, 1, 4, 4), (1, 8, 2, 1), (1, 6, 7)],
        "size": [1, 3, 4, 5, 9],
        "alpha": [None, 0.5],
        "beta": [None, 0.5],
        "bias": [None, 2.0],
    }
    return Operator(form="onnx", name="LRN", factors=factors, make=make)


_ACTIVATIONS = {
    "RNN": ("Tanh", "Relu", "Sigmoid", "Softsign"),
    "GRU": (("Sigmoid", "Tanh"), ("HardSigmoid", "Softsign"), ("Tanh", "Relu")),
    "LSTM": (("Sigmoid", "Tanh", "Tanh"), ("HardSigmoid", "Relu", "Softsign"), ("Sigmoid", "Tanh", "Sigmoid")),
}


def _recurrent(kind: str) -> Operator:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]

    def make(choice: Choice) -> Model:
        steps, batch, size, hidden = choice["size"]
        directions = 2 if choice["direction"] == "bidirectional" else 1
        transposed = bool(choice["layout"])
        lead = (batch, directions) if transposed else (directions, batch)
        inputs: dict[str, Any] = {
            "x": Input(shape=(batch, steps, size) if transposed else (steps, batch, size)),
            "w": weights(directions, gates * hidden, size),
            "r": weights(directions, gates * hidden, hidden),
            "b": weights(directions, 2 * gates * hidden) if choice["bias"] else None,
            "lens": np.array([steps, 1, 2][:batch], np.int32) if choice["lens"] else None,
            "h": Input(shape=(*lead, hidden)) if choice["initial"] else None,
        }
        if kind == "LSTM":
            inputs["c"] = Input(shape=(*lead, hidden)) if choice["initial"] else None
            inputs["p"] = weights(directions, 3 * hidden) if choice["peepholes"] else None
        activations = choice["activations"]
        if activations is not None:
            activations = list([activations] if isinstance(activations, str) else activations) * directions
        attributes = {
            "hidden_size": hidden,
            "direction": choice["direction"],
            "clip": choice["clip"],
            "layout": choice["layout"],
            "activations": activations,
            "input_forget": choice.get("input_forget"),
            "linear_before_reset": choice.get("linear_before_reset"),
        }
        outputs = ["float32"] * (3 if kind == "LSTM" else 2)
        if choice["outputs"] == "last":
            outputs[0] = ""
        elif choice["outputs"] == "all":
            outputs = outputs[:1]
        return onnx_model(kind, inputs, outputs=outputs, attributes=attributes)

    factors: dict[str, Any] = {
        "size": [(4, 1, 3, 5), (3, 2, 4, 4), (1, 1, 1, 1), (5, 3, 2, 6)],
        "direction": [None, "forward", "reverse", "bidirectional"],
        "clip": [None, 0.4],
        "layout": [None, 1],
        "activations": [None, *_ACTIVATIONS[kind]],
        "bias": [True, False],
        "lens": [False, True],
        "initial": [False, True],
        "outputs": ["both", "all", "last"],
    }
    if kind == "LSTM":
        factors |= {"peepholes": [False, True], "input_forget": [None, 1]}
    if kind == "GRU":
        factors["linear_before_reset"] = [None, 1]
    return Operator(form="onnx", name=kind, factors=factors, make=make)


def _attention() -> Operator:
    def make(choice: Choice) -> Model:
        heads, kv_heads = choice["heads"]
        queries, keys, width = choice["size"]
        is_flat = choice["rank"] == 3
        shape = lambda rows, count: (1, rows, count * width) if is_flat else (1, count, rows, width)  # noqa: E731
        mask: Any = None
        if choice["mask"] == "float":
            mask = Input(shape=(queries, keys))
        elif choice["mask"] == "bool":
            mask = np.tril(np.ones((queries, keys), bool))
        inputs = {
            "q": Input(shape=shape(queries, heads)),
            "k": Input(shape=shape(keys, kv_heads)),
            "v": Input(shape=shape(keys, kv_heads)),
            "mask": mask,
        }
        attributes = {"is_causal": choice["is_causal"], "scale": choice["scale"], "softcap": choice["softcap"]}
        attributes |= {"q_num_heads": heads if is_flat else None, "kv_num_heads": kv_heads if is_flat else None}
        return onnx_model("Attention", inputs, attributes=attributes, opset=23)

    factors = {
        "heads": [(2, 2), (4, 2), (1, 1), (4, 1)],
        "size": [(4, 4, 8), (3, 5, 4), (1, 6, 4)],
        "rank": [4, 3],
        "mask": ["", "float", "bool"],
        "is_causal": [None, 1],
        "scale": [None, 0.3],
        "softcap": [None, 2.0],
    }
    return Operator(form="onnx", name="Attention", factors=factors, make=make)


_WHOLE = ("float32", "int32", "int64", "float64")

OPERATORS = [
    _matmul(),
    _gemm(),
    _einsum(),
    *(_reduction(kind, _WHOLE) for kind in ("ReduceSum", "ReduceL1", "ReduceSumSquare", "ReduceProd")),
    *(
        _reduction(kind, ("float32", "float64"))
        for kind in ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
    ),
    *(_reduction(kind, ("float32", "int32", "int8", "uint8")) for kind in ("ReduceMax", "ReduceMin")),
    _arg("ArgMax"),
    _arg("ArgMin"),
    *(_along_axis(kind) for kind in ("Softmax", "LogSoftmax", "Hardmax")),
    _along_axis("LpNormalization", p=[None, 1, 2]),
    _cumulative("CumSum", 14),
    _cumulative("CumProd", 26),
    *(_channel_norm(kind) for kind in ("BatchNormalization", "InstanceNormalization", "GroupNormalization")),
    _layer_norm("LayerNormalization"),
    _layer_norm("RMSNormalization"),
    _mvn(),
    _lrn(),
    _recurrent("RNN"),
    _recurrent("GRU"),
    _recurrent("LSTM"),
    _attention(),
]
