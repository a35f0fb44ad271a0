"""ONNX operators that move, select or make elements; quantized layers of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.pairing.onnx_form import onnx_model
from benchmarks.pairing.operator_case import Choice, Input, Model, Operator

_SHAPES = ((2, 3, 4, 5), (3, 1, 4), (2, 6), (5,), (1, 1, 2, 3, 2))
_DTYPES = ("float32", "int8", "int64", "bool", "float16")


def _axis_fits(choice: Choice) -> bool:
    rank = len(choice["shape"])
    return choice["axis"] is None or -rank <= choice["axis"] < rank


def _moved(choice: Choice) -> Input:
    return Input(shape=choice["shape"], dtype=choice["dtype"])


def _simple(
    kind: str,
    factors: dict[str, Sequence[Any]],
    inputs: Any,
    attributes: Any = lambda _: {},
    is_valid: Any = None,
    *,
    shapes: Sequence[Any] = _SHAPES,
    dtypes: Sequence[str] = _DTYPES,
    result: str = "",
    opset: int = 22,
    count: Any = lambda _: 1,
) -> Operator:
    """An operator on one tensor. inputs, attributes, count: the rest of a choice's inputs, and so on."""

    def make(choice: Choice) -> Model:
        given = {"x": _moved(choice), **inputs(choice)}
        outputs = [result or choice["dtype"]] * count(choice)
        return onnx_model(kind, given, outputs=outputs, attributes=attributes(choice), opset=choice.get("opset", opset))

    every = {"shape": list(shapes), "dtype": list(dtypes), **factors}
    return Operator(form="onnx", name=kind, factors=every, make=make, is_valid=is_valid or (lambda _: True))


def _concat() -> Operator:
    def make(choice: Choice) -> Model:
        shape, axis = choice["shape"], choice["axis"]
        inputs: dict[str, Any] = {}
        for index in range(choice["count"]):
            extents = list(shape)
            extents[axis] = extents[axis] + index if choice["uneven"] else extents[axis]
            inputs[f"x{index}"] = Input(shape=tuple(extents), dtype=choice["dtype"])
        if choice["constant"] and choice["count"] > 1:
            inputs["x1"] = inputs["x1"].draw(np.random.default_rng(3))
        return onnx_model("Concat", inputs, outputs=[choice["dtype"]], attributes={"axis": axis})

    factors = {
        "shape": list(_SHAPES),
        "dtype": list(_DTYPES),
        "axis": [0, 1, -1, 2, -2],
        "count": [1, 2, 3],
        "uneven": [False, True],
        "constant": [False, True],
    }
    return Operator(form="onnx", name="Concat", factors=factors, make=make, is_valid=_axis_fits)


def _slice() -> Operator:
    ranges = [
        (0, 2, 1),
        (1, 100, 1),
        (-1, -100, -1),
        (100, 0, -2),
        (-2, 100, 1),
        (0, 100, 2),
        (1, -1, 1),
        (0, 1, 3),
        (-100, 100, 3),
    ]

    def inputs(choice: Choice) -> dict[str, Any]:
        axes = choice["axes"]
        count = len(choice["shape"]) if axes is None else len(axes)
        begin, end, step = choice["range"]
        dtype = choice["indices"]
        return {
            "starts": np.full(count, begin, dtype),
            "ends": np.full(count, end, dtype),
            "axes": None if axes is None else np.array(axes, dtype),
            "steps": np.full(count, step, dtype) if choice["steps"] or step != 1 else None,
        }

    def is_valid(choice: Choice) -> bool:
        rank, axes = len(choice["shape"]), choice["axes"] or (0,)
        if choice["axes"] is None and choice["range"][2] != 1:
            return True
        return all(-rank <= axis < rank for axis in axes) and len({axis % rank for axis in axes}) == len(axes)

    factors = {
        "range": ranges,
        "axes": [None, (0,), (-1,), (1,), (0, 1), (-2, -1)],
        "steps": [False, True],
        "indices": ["int64", "int32"],
    }
    return _simple("Slice", factors, inputs, is_valid=is_valid)


def _pad() -> Operator:
    widths = {"ends": (0, 1), "begins": (2, 0), "both": (1, 2), "crops": (-1, 1), "none": (0, 0)}

    def inputs(choice: Choice) -> dict[str, Any]:
        rank = len(choice["shape"])
        axes = choice["axes"]
        count = rank if axes is None else len(axes)
        before, after = widths[choice["widths"]]
        value = None if choice["value"] is None else np.array(choice["value"]).astype(choice["dtype"])
        return {
            "pads": np.array([before] * count + [after] * count, np.int64),
            "value": value,
            "axes": None if axes is None else np.array(axes, np.int64),
        }

    def is_valid(choice: Choice) -> bool:
        rank, axes = len(choice["shape"]), choice["axes"]
        if axes is not None and not all(-rank <= axis < rank for axis in axes):
            return False
        if choice["value"] is not None and choice["mode"] not in (None, "constant"):
            return False
        touched = range(rank) if axes is None else [axis % rank for axis in axes]
        most = max(abs(width) for width in widths[choice["widths"]])
        least = min(choice["shape"][axis] for axis in touched)
        return least > most or (choice["mode"] in (None, "constant", "edge") and choice["widths"] != "crops")

    factors = {
        "mode": [None, "constant", "edge", "reflect", "wrap"],
        "widths": list(widths),
        "value": [None, 1, -2],
        "axes": [None, (-1,), (0,), (1, -1)],
    }
    return _simple(
        "Pad",
        factors,
        inputs,
        lambda c: {"mode": c["mode"]},
        is_valid,
        shapes=[*_SHAPES, (1, 3, 5, 4)],
        dtypes=("float32", "int8", "int64", "uint8"),
    )


def _gather(kind: str) -> Operator:
    def make(choice: Choice) -> Model:
        shape, axis = choice["shape"], choice["axis"]
        extent = shape[(axis or 0)]
        if kind == "Gather":
            places: tuple[int, ...] = choice["places"]
        else:
            places = tuple(max(1, e - 1) if choice["places"] else e for e in shape)
        low = -extent if choice["negative"] else 0
        spec: Any = Input(shape=places, dtype=choice["indices"], low=low, high=extent)
        indices = spec.draw(np.random.default_rng(4)) if choice["constant"] else spec
        inputs = {"x": _moved(choice), "i": indices}
        return onnx_model(kind, inputs, outputs=[choice["dtype"]], attributes={"axis": axis})

    factors = {
        "shape": list(_SHAPES),
        "dtype": list(_DTYPES),
        "axis": [None, 0, 1, -1, 2, -2],
        "places": [(), (1,), (3,), (2, 2)],
        "negative": [False, True],
        "constant": [True, False],
        "indices": ["int64", "int32"],
    }
    return Operator(form="onnx", name=kind, factors=factors, make=make, is_valid=_axis_fits)


def _gather_nd() -> Operator:
    def make(choice: Choice) -> Model:
        shape, batch, depth = choice["shape"], choice["batch_dims"] or 0, choice["depth"]
        places = (*shape[:batch], *choice["places"], depth)
        least = min(shape[batch : batch + depth])
        spec: Any = Input(shape=places, dtype="int64", low=-least if choice["negative"] else 0, high=least)
        indices = spec.draw(np.random.default_rng(5)) if choice["constant"] else spec
        inputs = {"x": _moved(choice), "i": indices}
        return onnx_model(
            "GatherND", inputs, outputs=[choice["dtype"]], attributes={"batch_dims": choice["batch_dims"]}
        )

    def is_valid(choice: Choice) -> bool:
        return (choice["batch_dims"] or 0) + choice["depth"] <= len(choice["shape"])

    factors = {
        "shape": list(_SHAPES),
        "dtype": ["float32", "int8", "int64"],
        "batch_dims": [None, 1, 2],
        "depth": [1, 2, 3],
        "places": [(), (2,), (2, 3)],
        "negative": [False, True],
        "constant": [True, False],
    }
    return Operator(form="onnx", name="GatherND", factors=factors, make=make, is_valid=is_valid)


def _scatter_elements() -> Operator:
    def make(choice: Choice) -> Model:
        shape, axis = choice["shape"], choice["axis"] or 0
        extent = shape[axis]
        places = tuple(e if choice["whole"] else max(1, e - 1) for e in shape)
        order = np.argsort(np.random.default_rng(6).random(places), axis=axis)  # no index twice
        order = order if choice["negative"] is False else order - extent
        indices: Any = order.astype(np.int64)
        inputs = {"x": _moved(choice), "i": indices, "u": Input(shape=places, dtype=choice["dtype"])}
        attributes = {"axis": choice["axis"], "reduction": choice["reduction"]}
        return onnx_model("ScatterElements", inputs, outputs=[choice["dtype"]], attributes=attributes)

    factors = {
        "shape": list(_SHAPES),
        "dtype": ["float32", "int32", "int64"],
        "axis": [None, 0, 1, -1, 2],
        "reduction": [None, "none", "add", "mul", "max", "min"],
        "whole": [True, False],
        "negative": [False, True],
    }
    return Operator(form="onnx", name="ScatterElements", factors=factors, make=make, is_valid=_axis_fits)


def _scatter_nd() -> Operator:
    def make(choice: Choice) -> Model:
        shape, depth = choice["shape"], choice["depth"]
        flat = np.random.default_rng(7).permutation(int(np.prod(shape[:depth])))[: choice["count"]]
        indices = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(np.int64)
        updates = Input(shape=(len(flat), *shape[depth:]), dtype=choice["dtype"])
        inputs = {"x": _moved(choice), "i": indices, "u": updates}
        return onnx_model("ScatterND", inputs, outputs=[choice["dtype"]], attributes={"reduction": choice["reduction"]})

    factors = {
        "shape": list(_SHAPES),
        "dtype": ["float32", "int32", "int64"],
        "depth": [1, 2, 3],
        "count": [1, 2],
        "reduction": [None, "none", "add", "mul", "max", "min"],
    }
    return Operator(
        form="onnx",
        name="ScatterND",
        factors=factors,
        make=make,
        is_valid=lambda choice: choice["depth"] <= len(choice["shape"]),
    )


def _split() -> Operator:
    def inputs(choice: Choice) -> dict[str, Any]:
        extent = choice["shape"][choice["axis"] or 0]
        parts = {"given": [1, extent - 1], "three": [1, 1, extent - 2]}.get(choice["parts"])
        return {"split": None if parts is None else np.array(parts, np.int64)}

    def attributes(choice: Choice) -> dict[str, Any]:
        return {"axis": choice["axis"], "num_outputs": 2 if choice["parts"] == "number" else None}

    def is_valid(choice: Choice) -> bool:
        return _axis_fits(choice) and choice["shape"][choice["axis"] or 0] >= 3

    return _simple(
        "Split",
        {"axis": [None, 0, 1, -1, -2], "parts": ["number", "given", "three"]},
        inputs,
        attributes,
        is_valid,
        shapes=((4, 3, 4, 5), (3, 7, 4), (6, 3), (5,)),
        count=lambda c: 3 if c["parts"] == "three" else 2,
    )


def _one_hot() -> Operator:
    def make(choice: Choice) -> Model:
        shape, depth = choice["shape"], choice["depth"]
        inputs = {
            "i": Input(shape=shape, dtype=choice["indices"], low=-depth if choice["negative"] else 0, high=depth + 2),
            "depth": np.array(depth, np.int64),
            "values": np.array([-1, 5], choice["dtype"]),
        }
        return onnx_model("OneHot", inputs, outputs=[choice["dtype"]], attributes={"axis": choice["axis"]})

    def is_valid(choice: Choice) -> bool:
        rank = len(choice["shape"])
        return choice["axis"] is None or -rank - 1 <= choice["axis"] <= rank

    factors = {
        "shape": [(3,), (2, 3), (1, 2, 2), ()],
        "indices": ["int64", "int32", "float32"],
        "depth": [1, 4],
        "axis": [None, 0, 1, -1, -2],
        "dtype": ["float32", "int32", "int64"],
        "negative": [False, True],
    }
    return Operator(form="onnx", name="OneHot", factors=factors, make=make, is_valid=is_valid)


def _top_k() -> Operator:
    def make(choice: Choice) -> Model:
        spec = Input(shape=choice["shape"], dtype=choice["dtype"], low=-100, high=100)
        inputs = {"x": spec, "k": np.array([choice["k"]], np.int64)}
        attributes = {name: choice[name] for name in ("axis", "largest", "sorted")}
        return onnx_model("TopK", inputs, outputs=[choice["dtype"], "int64"], attributes=attributes)

    def is_valid(choice: Choice) -> bool:
        axis = -1 if choice["axis"] is None else choice["axis"]
        return _axis_fits(choice) and choice["k"] <= choice["shape"][axis] and choice["sorted"] != 0

    factors = {
        "shape": list(_SHAPES),
        "dtype": ["float32", "float64", "int64", "int32"],
        "axis": [None, 0, 1, -1, -2],
        "k": [1, 2, 3],
        "largest": [None, 0, 1],
        "sorted": [None, 1],
    }
    return Operator(form="onnx", name="TopK", factors=factors, make=make, is_valid=is_valid)


def _reshape() -> Operator:
    targets = {
        "-1": lambda s: [-1],
        "0,-1": lambda s: [0, -1],
        "keeps": lambda s: list(s),
        "1s": lambda s: [1, *s, 1],
        "joined": lambda s: [s[0], -1] if len(s) > 1 else [-1, 1],
    }

    def inputs(choice: Choice) -> dict[str, Any]:
        return {"shape": np.array(targets[choice["target"]](choice["shape"]), np.int64)}

    return _simple(
        "Reshape", {"target": list(targets), "allowzero": [None, 0]}, inputs, lambda c: {"allowzero": c["allowzero"]}
    )


def _axes_of(choice: Choice) -> dict[str, Any]:
    return {"axes": None if choice["axes"] is None else np.array(choice["axes"], np.int64)}


def _squeezable(choice: Choice) -> bool:
    rank, axes = len(choice["shape"]), choice["axes"]
    return axes is None or all(-rank <= axis < rank and choice["shape"][axis] == 1 for axis in axes)


def _unsqueezable(choice: Choice) -> bool:
    rank = len(choice["shape"]) + len(choice["axes"])
    axes = choice["axes"]
    return all(-rank <= axis < rank for axis in axes) and len({axis % rank for axis in axes}) == len(axes)


def _transpose_fits(choice: Choice) -> bool:
    return choice["perm"] is None or len(choice["perm"]) == len(choice["shape"])


def _expand(choice: Choice) -> dict[str, Any]:
    grown = [extent if extent > 1 else 3 for extent in choice["shape"]]
    target = {"same": list(choice["shape"]), "grown": grown, "more axes": [2, *grown], "ones": [1] * len(grown)}
    return {"shape": np.array(target[choice["target"]], np.int64)}


def _eye() -> Operator:
    return _simple(
        "EyeLike",
        {"k": [None, 1, -2], "to": [None, "float32", "int32"]},
        lambda _: {},
        lambda c: {"k": c["k"], "dtype": None if c["to"] is None else {"float32": 1, "int32": 6}[c["to"]]},
        shapes=((3, 4), (4, 4), (5, 2)),
        dtypes=("float32",),
    )


def _trilu_inputs(choice: Choice) -> dict[str, Any]:
    return {"k": None if choice["k"] is None else np.array(choice["k"], np.int64)}


def _reverse(choice: Choice) -> dict[str, Any]:
    batch, time = choice["axes"]
    return {"lens": np.array([1 + index % choice["shape"][time] for index in range(choice["shape"][batch])], np.int64)}


def _qlinear_conv() -> Operator:
    def make(choice: Choice) -> Model:
        channels, group, out = choice["shape"][1], choice["group"] or 1, 4
        random = np.random.default_rng(8)
        w_type, x_type = choice["weight"], choice["dtype"]
        limits = np.iinfo(w_type)
        w = random.integers(limits.min, limits.max + 1, (out, channels // group, *choice["kernel"])).astype(w_type)
        count = out if choice["by_channel"] else 1
        zero = np.full(count, 0 if w_type == "int8" else 120, w_type)
        scale = np.linspace(0.01, 0.02, count).astype(np.float32)
        one = (lambda array: array) if choice["by_channel"] else (lambda array: array[0])
        inputs: dict[str, Any] = {
            "x": Input(shape=choice["shape"], dtype=x_type, low=-128, high=256),
            "xs": np.float32(0.03),
            "xz": np.array(7, x_type),
            "w": w,
            "ws": one(scale),
            "wz": one(zero),
            "ys": np.float32(0.4),
            "yz": np.array(100 if x_type == "uint8" else -3, x_type),
            "b": random.integers(-500, 500, out).astype(np.int32) if choice["bias"] else None,
        }
        inputs = {name: np.asarray(v) if isinstance(v, np.generic) else v for name, v in inputs.items()}
        attributes = {name: choice[name] for name in ("strides", "pads", "dilations", "group", "auto_pad")}
        attributes["kernel_shape"] = list(choice["kernel"])
        return onnx_model("QLinearConv", inputs, outputs=[x_type], attributes=attributes)

    def is_valid(choice: Choice) -> bool:
        return choice["auto_pad"] in (None, "NOTSET") or choice["pads"] is None

    factors = {
        "shape": [(1, 4, 7, 8), (2, 4, 5, 9)],
        "kernel": [(3, 3), (1, 1), (2, 3)],
        "strides": [None, (2, 2), (1, 2)],
        "pads": [None, (1, 1, 1, 1), (0, 1, 1, 0)],
        "dilations": [None, (2, 1)],
        "group": [None, 2, 4],
        "auto_pad": [None, "SAME_UPPER", "SAME_LOWER", "VALID"],
        "by_channel": [False, True],
        "bias": [False, True],
        "dtype": ["uint8", "int8"],
        "weight": ["int8", "uint8"],
    }
    return Operator(form="onnx", name="QLinearConv", factors=factors, make=make, is_valid=is_valid)


def _matmul_integer() -> Operator:
    def make(choice: Choice) -> Model:
        a, b = choice["shapes"]
        inputs: dict[str, Any] = {
            "a": Input(shape=a, dtype=choice["a"], low=-128, high=256),
            "b": Input(shape=b, dtype=choice["b"], low=-128, high=256),
            "az": None if choice["zero"] == "" else np.array(9, choice["a"]),
            "bz": np.array(5, choice["b"]) if choice["zero"] == "both" else None,
        }
        if choice["constant"]:
            inputs["b"] = inputs["b"].draw(np.random.default_rng(9))
        return onnx_model("MatMulInteger", inputs, outputs=["int32"])

    factors = {
        "shapes": [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((1, 1), (1, 1))],
        "a": ["uint8", "int8"],
        "b": ["uint8", "int8"],
        "zero": ["", "a", "both"],
        "constant": [False, True],
    }
    return Operator(form="onnx", name="MatMulInteger", factors=factors, make=make)


OPERATORS = [
    _concat(),
    _slice(),
    _pad(),
    _gather("Gather"),
    _gather("GatherElements"),
    _gather_nd(),
    _scatter_elements(),
    _scatter_nd(),
    _split(),
    _one_hot(),
    _top_k(),
    _reshape(),
    _simple(
        "Transpose",
        {"perm": [None, (1, 0), (0, 2, 1), (2, 0, 1), (0, 3, 1, 2), (0, 2, 3, 1), (3, 2, 1, 0), (4, 0, 2, 1, 3)]},
        lambda _: {},
        lambda c: {"perm": c["perm"]},
        _transpose_fits,
    ),
    _simple("Flatten", {"axis": [None, 0, 1, -1, 2]}, lambda _: {}, lambda c: {"axis": c["axis"]}, _axis_fits),
    _simple("Squeeze", {"axes": [None, (1,), (0,), (-2,), (0, 1)]}, _axes_of, is_valid=_squeezable),
    _simple("Unsqueeze", {"axes": [(0,), (1,), (-1,), (0, 2), (-1, 1), (3, 0)]}, _axes_of, is_valid=_unsqueezable),
    _simple("Expand", {"target": ["same", "grown", "more axes", "ones"]}, _expand),
    _simple(
        "Tile",
        {"repeats": [1, 2, 3]},
        lambda c: {"repeats": np.array([c["repeats"] if i % 2 else 1 for i in range(len(c["shape"]))], np.int64)},
    ),
    _simple(
        "Trilu",
        {"k": [None, 0, 1, -1, 5], "upper": [None, 0]},
        _trilu_inputs,
        lambda c: {"upper": c["upper"]},
        shapes=((3, 4), (2, 4, 4), (1, 2, 3, 5)),
        dtypes=("float32", "int64", "int32"),
    ),
    _simple(
        "ReverseSequence",
        {"axes": [(0, 1), (1, 0)]},
        _reverse,
        lambda c: {"batch_axis": c["axes"][0], "time_axis": c["axes"][1]},
        shapes=((3, 4, 2), (2, 5), (1, 3, 2, 2)),
        dtypes=("float32", "int64"),
    ),
    _simple(
        "Shape",
        {"start": [None, 1, -2], "end": [None, 2, -1]},
        lambda _: {},
        lambda c: {"start": c["start"], "end": c["end"]},
        result="int64",
    ),
    _simple("Size", {}, lambda _: {}, result="int64"),
    _eye(),
    _qlinear_conv(),
    _matmul_integer(),
]
