"""ONNX operators over windows: convolutions, pools, resizing."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.pairing.onnx_form import onnx_model
from benchmarks.pairing.operator_case import Choice, Input, Model, Operator

_IMAGES = {
    1: ((1, 4, 13), (2, 4, 7), (1, 4, 1)),
    2: ((1, 4, 9, 8), (2, 4, 7, 12), (1, 4, 1, 10), (1, 4, 5, 5)),
    3: ((1, 4, 5, 6, 7), (1, 4, 4, 1, 6)),
}
"""Images by the number of their spatial axes: odd and even extents, several in a batch, extents of 1."""
_AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def weights(*shape: int) -> np.ndarray:
    """Return small random weights, the same for the same shape."""
    fan_in = max(int(np.prod(shape[1:])), 1)
    random = np.random.default_rng(sum(i * extent for i, extent in enumerate(shape, 3)))
    return (random.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def _cycled(values: tuple[int, ...], count: int) -> list[int]:
    return [values[index % len(values)] for index in range(count)]


def _reach(choice: Choice, axis: int) -> int:
    kernel, dilations = choice["kernel"], choice.get("dilations") or (1,)
    return (kernel[axis % len(kernel)] - 1) * dilations[axis % len(dilations)] + 1


def _spatial(choice: Choice) -> int:
    return len(choice["shape"]) - 2


def _window_attributes(choice: Choice) -> dict[str, Any]:
    rank = _spatial(choice)
    pads = choice.get("pads")
    found: dict[str, Any] = {
        name: None if choice.get(factor) is None else _cycled(choice[factor], rank)
        for name, factor in (("kernel_shape", "kernel"), ("strides", "strides"), ("dilations", "dilations"))
    }
    found["pads"] = None if pads is None else _cycled(pads[0], rank) + _cycled(pads[1], rank)
    found["auto_pad"] = choice.get("auto_pad", None)
    return found


def _fits(choice: Choice) -> bool:
    """True for windows that fit into the padded image, whose pads are smaller than they are."""
    pads = choice.get("pads")
    if choice.get("auto_pad", "NOTSET") != "NOTSET" and pads is not None:
        return False
    for axis, extent in enumerate(choice["shape"][2:]):
        before, after = (side[axis % len(side)] for side in pads) if pads else (0, 0)
        if choice.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and _reach(choice, axis) > extent + before + after:
            return False
        kernel = choice["kernel"][axis % len(choice["kernel"])]
        if max(before, after) >= kernel:
            return False
    return True


def _pool(kind: str) -> Operator:
    def make(choice: Choice) -> Model:
        attributes = _window_attributes(choice)
        for name in ("ceil_mode", "count_include_pad", "p", "storage_order"):
            attributes[name] = choice.get(name)
        outputs = [choice["dtype"], *(["int64"] if choice.get("indices") else [])]
        return onnx_model(
            kind,
            {"x": Input(shape=choice["shape"], dtype=choice["dtype"], low=-128, high=128)},
            outputs=outputs,
            attributes=attributes,
        )

    factors: dict[str, Any] = {
        "shape": [shape for shapes in _IMAGES.values() for shape in shapes],
        "kernel": [(3,), (2,), (3, 2), (1,), (4, 5)],
        "strides": [None, (2,), (1, 2), (3,)],
        "dilations": [None, (2,), (1, 2)],
        "pads": [None, ((1,), (1,)), ((0, 1), (1, 0)), ((2,), (0,))],
        "auto_pad": list(_AUTO_PADS),
        "ceil_mode": [None, 1],
        "dtype": ["float32"],
    }
    if kind == "AveragePool":
        factors["count_include_pad"] = [None, 0, 1]
    elif kind == "MaxPool":
        factors |= {"dtype": ["float32", "int8", "uint8", "float64"], "indices": [False, True]}
        factors["storage_order"] = [None, 1]
    else:
        factors["p"] = [None, 1, 3]
    return Operator(form="onnx", name=kind, factors=factors, make=make, is_valid=_fits, unlike=_padding_alone)


def _padding_alone(choice: Choice) -> str:
    """Say that dilated windows of a maximum may hold padding alone, where the image is one element wide."""
    is_float = choice["dtype"].startswith("float") and "count_include_pad" not in choice and "p" not in choice
    may = is_float and 1 in choice["shape"][2:] and choice["dilations"] is not None and choice["pads"] is not None
    return "a window of padding alone is minus infinity" if may else ""


def _global_pool(kind: str) -> Operator:
    def make(choice: Choice) -> Model:
        attributes = {"p": choice.get("p")}
        return onnx_model(kind, {"x": Input(shape=choice["shape"])}, attributes=attributes)

    factors: dict[str, Any] = {"shape": [shape for shapes in _IMAGES.values() for shape in shapes]}
    if kind == "GlobalLpPool":
        factors["p"] = [None, 1, 3]
    return Operator(form="onnx", name=kind, factors=factors, make=make)


def _conv() -> Operator:
    def make(choice: Choice) -> Model:
        rank, channels = _spatial(choice), choice["shape"][1]
        group = choice["group"] or 1
        out = group * choice["multiplier"]
        kernel = _cycled(choice["kernel"], rank)
        weight = weights(out, channels // group, *kernel)
        given: dict[str, Any] = {"x": Input(shape=choice["shape"])}
        given["w"] = Input(shape=weight.shape, scale=0.3) if choice["weight"] == "input" else weight
        given["b"] = weights(out) if choice["bias"] else None
        attributes = _window_attributes(choice) | {"group": choice["group"]}
        if choice["weight"] == "no kernel_shape":
            del attributes["kernel_shape"]
        return onnx_model("Conv", given, attributes=attributes)

    factors = {
        "shape": [shape for shapes in _IMAGES.values() for shape in shapes],
        "kernel": [(3,), (2,), (3, 1), (1,), (4, 5)],
        "strides": [None, (2,), (1, 2), (3,)],
        "dilations": [None, (2,), (1, 2)],
        "pads": [None, ((1,), (1,)), ((0, 1), (1, 0)), ((2,), (0,))],
        "auto_pad": list(_AUTO_PADS),
        "group": [None, 2, 4],
        "multiplier": [1, 2, 3],
        "bias": [True, False],
        "weight": ["constant", "input", "no kernel_shape"],
    }
    return Operator(form="onnx", name="Conv", factors=factors, make=make, is_valid=_fits)


def _conv_transpose() -> Operator:
    def make(choice: Choice) -> Model:
        rank, channels = _spatial(choice), choice["shape"][1]
        group = choice["group"] or 1
        kernel = _cycled(choice["kernel"], rank)
        attributes = _window_attributes(choice) | {"group": choice["group"]}
        if choice["output"] == "padding":
            attributes["output_padding"] = [1] * rank
        elif choice["output"] == "shape":
            strides = attributes["strides"] or [1] * rank
            attributes["output_shape"] = [
                (extent - 1) * stride + _reach(choice, axis)
                for axis, (extent, stride) in enumerate(zip(choice["shape"][2:], strides, strict=True))
            ]
        given: dict[str, Any] = {
            "x": Input(shape=choice["shape"]),
            "w": weights(channels, choice["multiplier"], *kernel),
        }
        given["b"] = weights(group * choice["multiplier"]) if choice["bias"] else None
        return onnx_model("ConvTranspose", given, attributes=attributes)

    def is_valid(choice: Choice) -> bool:
        pads, strides, dilations = choice["pads"], choice["strides"] or (1,), choice["dilations"] or (1,)
        if choice["output"] == "padding" and max(min(strides), min(dilations)) < 2:
            return False
        if choice["auto_pad"] != "NOTSET" and (pads is not None or choice["output"] == "padding"):
            return False
        if pads is not None and choice["output"] == "shape":
            return False
        return pads is None or all(
            (extent - 1) * strides[axis % len(strides)] + _reach(choice, axis)
            > sum(side[axis % len(side)] for side in pads)
            for axis, extent in enumerate(choice["shape"][2:])
        )

    factors = {
        "shape": [shape for shapes in _IMAGES.values() for shape in shapes],
        "kernel": [(3,), (2,), (3, 1), (1,), (4, 5)],
        "strides": [None, (2,), (1, 2), (3,)],
        "dilations": [None, (2,), (1, 2)],
        "pads": [None, ((1,), (1,)), ((0, 1), (1, 0))],
        "auto_pad": list(_AUTO_PADS),
        "output": ["", "padding", "shape"],
        "group": [None, 2, 4],
        "multiplier": [1, 2],
        "bias": [True, False],
    }
    return Operator(form="onnx", name="ConvTranspose", factors=factors, make=make, is_valid=is_valid)


_COORDINATES = (
    None,
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)


def _resize() -> Operator:
    def make(choice: Choice) -> Model:
        shape, rank = choice["shape"], len(choice["shape"])
        spatial = 1 if rank == 1 else rank - 2
        axes = list(range(rank - spatial, rank)) if choice["axes"] else None
        factors = _cycled(choice["factors"], spatial)
        extents = shape[rank - spatial :]
        lead = 0 if axes else rank - spatial
        given: dict[str, Any] = {"x": Input(shape=shape, dtype=choice["dtype"])}
        crops = choice["coordinate_transformation_mode"] == "tf_crop_and_resize"
        corners = [0.0] * lead + [0.1] * spatial + [1.0] * lead + [0.9 if choice["exclude_outside"] else 1.3] * spatial
        given["roi"] = np.array(corners, np.float32) if crops else None
        given["scales"] = given["sizes"] = None
        policy = choice["keep_aspect_ratio_policy"]
        if choice["by"] == "scales":
            given["scales"] = np.array([1.0] * lead + factors, np.float32)
        else:
            sizes = [max(1, int(extent * factor)) for extent, factor in zip(extents, factors, strict=True)]
            given["sizes"] = np.array([*shape[:lead], *sizes], np.int64)
        attributes = {
            name: choice[name]
            for name in (
                "mode",
                "coordinate_transformation_mode",
                "nearest_mode",
                "cubic_coeff_a",
                "exclude_outside",
                "antialias",
                "extrapolation_value",
            )
        }
        attributes |= {"axes": axes, "keep_aspect_ratio_policy": policy}
        return onnx_model("Resize", given, outputs=[choice["dtype"]], attributes=attributes, opset=choice["opset"])

    def is_valid(choice: Choice) -> bool:
        if choice["opset"] < 19 and (choice["coordinate_transformation_mode"] == "half_pixel_symmetric"):
            return False
        if choice["opset"] < 18 and any(
            choice[name] is not None for name in ("axes", "antialias", "keep_aspect_ratio_policy")
        ):
            return False
        policy = choice["keep_aspect_ratio_policy"]
        if policy not in (None, "stretch") and (choice["by"] == "scales" or not choice["axes"]):
            return False
        return choice["antialias"] is None or choice["mode"] in ("linear", "cubic")

    factors = {
        "shape": [(1, 2, 6, 8), (2, 3, 5, 7), (1, 1, 1, 9), (1, 3, 8), (1, 2, 4, 5, 6), (1, 3, 9, 9)],
        "factors": [(2.0,), (0.5,), (1.6, 0.7), (0.6,), (1.0, 3.0), (2.5,)],
        "by": ["scales", "sizes"],
        "axes": [None, True],
        "mode": [None, "nearest", "linear", "cubic"],
        "coordinate_transformation_mode": list(_COORDINATES),
        "nearest_mode": [None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"],
        "cubic_coeff_a": [None, -0.5],
        "exclude_outside": [None, 1],
        "antialias": [None, 1],
        "extrapolation_value": [None, 3.0],
        "keep_aspect_ratio_policy": [None, "stretch", "not_larger", "not_smaller"],
        "dtype": ["float32", "float32", "uint8", "int8"],
        "opset": [19, 18, 13],
    }

    def unlike(choice: Choice) -> str:
        factors = _cycled(choice["factors"], len(choice["shape"]))
        is_fraction = any(extent * factor % 1 for extent in choice["shape"] for factor in factors)
        aligned = choice["coordinate_transformation_mode"] == "align_corners" and choice["by"] == "scales"
        return "corners are aligned to the fraction of an element" if aligned and is_fraction else ""

    return Operator(form="onnx", name="Resize", factors=factors, make=make, is_valid=is_valid, unlike=unlike)


def _grid_sample() -> Operator:
    def make(choice: Choice) -> Model:
        shape, rank = choice["shape"], len(choice["shape"]) - 2
        grid = Input(shape=(shape[0], *(3, 5, 2)[:rank], rank), scale=0.7)
        attributes = {name: choice[name] for name in ("mode", "padding_mode", "align_corners")}
        return onnx_model("GridSample", {"x": Input(shape=shape), "grid": grid}, attributes=attributes)

    factors = {
        "shape": [(1, 2, 6, 8), (2, 3, 5, 5), (1, 1, 1, 4), (1, 2, 3, 4, 5)],
        "mode": [None, "linear", "nearest", "cubic"],
        "padding_mode": [None, "zeros", "border", "reflection"],
        "align_corners": [None, 0, 1],
    }
    return Operator(form="onnx", name="GridSample", factors=factors, make=make)


def _roi(kind: str) -> Operator:
    def make(choice: Choice) -> Model:
        height, width = choice["output"]
        boxes = np.array([[0, 0, 6, 5], [1, 2, 8, 7], [3, 1, 4, 3]], np.float32)
        given: dict[str, Any] = {"x": Input(shape=choice["shape"])}
        if kind == "MaxRoiPool":
            batch = np.array([[0], [choice["shape"][0] - 1], [0]], np.float32)
            given["rois"] = np.concatenate([batch, boxes], 1)
            attributes = {"pooled_shape": [height, width], "spatial_scale": choice["spatial_scale"]}
        else:
            given["rois"] = boxes
            given["batch"] = np.array([0, choice["shape"][0] - 1, 0], np.int64)
            names = ("mode", "coordinate_transformation_mode", "sampling_ratio", "spatial_scale")
            attributes = {name: choice[name] for name in names}
            attributes |= {"output_height": height, "output_width": width}
        return onnx_model(kind, given, attributes=attributes)

    factors: dict[str, Any] = {
        "shape": [(1, 2, 9, 8), (2, 3, 10, 10)],
        "output": [(1, 1), (2, 3), (4, 2)],
        "spatial_scale": [None, 0.5],
    }
    if kind == "RoiAlign":
        factors |= {
            "mode": [None, "avg", "max"],
            "sampling_ratio": [None, 1, 2],
            "coordinate_transformation_mode": [None, "half_pixel", "output_half_pixel"],
        }
    return Operator(form="onnx", name=kind, factors=factors, make=make)


def _blocks(kind: str) -> Operator:
    def make(choice: Choice) -> Model:
        spec = Input(shape=choice["shape"], dtype=choice["dtype"])
        attributes = {"blocksize": choice["blocksize"], "mode": choice.get("mode")}
        return onnx_model(kind, {"x": spec}, outputs=[choice["dtype"]], attributes=attributes)

    def is_valid(choice: Choice) -> bool:
        block = choice["blocksize"]
        if kind == "DepthToSpace":
            return choice["shape"][1] % block**2 == 0
        return all(extent % block == 0 for extent in choice["shape"][2:])

    factors: dict[str, Any] = {
        "shape": [(1, 8, 4, 6), (2, 18, 6, 3), (1, 36, 1, 1), (1, 4, 12, 6)],
        "blocksize": [1, 2, 3],
        "dtype": ["float32", "int32", "uint8"],
    }
    if kind == "DepthToSpace":
        factors["mode"] = [None, "DCR", "CRD"]
    return Operator(form="onnx", name=kind, factors=factors, make=make, is_valid=is_valid)


OPERATORS = [
    _pool("AveragePool"),
    _pool("MaxPool"),
    _pool("LpPool"),
    *(_global_pool(kind) for kind in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")),
    _conv(),
    _conv_transpose(),
    _resize(),
    _grid_sample(),
    _roi("MaxRoiPool"),
    _roi("RoiAlign"),
    _blocks("DepthToSpace"),
    _blocks("SpaceToDepth"),
]
