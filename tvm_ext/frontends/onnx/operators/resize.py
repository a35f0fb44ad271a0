"""Converters of Resize and Upsample in all modes: one axis at a time, with indices and weights from compile time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.frontends.emitter import Emitter, dtype_name, known_ints, number
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.sampling import Axis, Interpolation, Taps, gathered, interpolated, is_identity, taps

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


class Resize(OnnxOpConverter):
    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        """In opset 10 the inputs are x and scales, with asymmetric coordinates that are rounded down."""
        return _upsampled(Emitter(bb), inputs[0], _floats(inputs[1], "scales"), attr)

    @classmethod
    def _impl_v11(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        x, roi, scales, sizes = (*inputs[:4], *[None] * (4 - len(inputs[:4])))
        how = Interpolation(
            mode=_text(attr, "mode", "nearest"),
            coordinates=_text(attr, "coordinate_transformation_mode", "half_pixel"),
            nearest_mode=_text(attr, "nearest_mode", "round_prefer_floor"),
            cubic_coeff_a=float(attr.get("cubic_coeff_a", -0.75)),
            exclude_outside=bool(attr.get("exclude_outside", 0)),
            antialias=bool(attr.get("antialias", 0)),
        )
        axes = _axes(static_shape(x), attr, scales, sizes)
        if how.coordinates == "tf_crop_and_resize":
            corners = _floats(roi, "roi")
            pairs = zip(corners[: len(axes)], corners[len(axes) :], strict=True)
            axes = {index: replace(axis, roi=pair) for (index, axis), pair in zip(axes.items(), pairs, strict=True)}
        return _resized(Emitter(bb), x, axes, how, float(attr.get("extrapolation_value", 0.0)))


class Upsample(OnnxOpConverter):
    """Resize of opset 10 under its older name. In opset 7 the scales are an attribute."""

    @classmethod
    def _impl_v7(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _upsampled(Emitter(bb), inputs[0], list(attr["scales"]), attr)

    @classmethod
    def _impl_v9(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _upsampled(Emitter(bb), inputs[0], _floats(inputs[1], "scales"), attr)


def _upsampled(emit: Emitter, x: relax.Expr, scales: Sequence[float], attr: Attributes) -> relax.Expr:
    how = Interpolation(mode=_text(attr, "mode", "nearest"), coordinates="asymmetric", nearest_mode="floor")
    return _resized(emit, x, _scaled(static_shape(x), range(len(scales)), scales), how, 0.0)


def _text(attr: Attributes, name: str, default: str) -> str:
    value = attr.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def _floats(x: relax.Expr | None, what: str) -> list[float]:
    array = None if x is None else array_of(x)
    if array is None:
        raise Refused(f"its {what} depend on data")
    return [float(value) for value in array.reshape(-1)]


def _axes(
    shape: Sequence[int], attr: Attributes, scales: relax.Expr | None, sizes: relax.Expr | None
) -> dict[int, Axis]:
    """Return the axes that the operator names, in its order."""
    chosen = [axis % len(shape) for axis in attr.get("axes") or range(len(shape))]
    if scales is not None and static_shape(scales) != (0,):
        return _scaled(shape, chosen, _floats(scales, "scales"))
    wanted = known_ints(sizes)
    policy = _text(attr, "keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return {
            axis: Axis(source=shape[axis], target=size, scale=size / shape[axis])
            for axis, size in zip(chosen, wanted, strict=True)
        }
    ratios = [size / shape[axis] for axis, size in zip(chosen, wanted, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return {
        axis: Axis(source=shape[axis], target=int(np.floor(scale * shape[axis] + 0.5)), scale=scale) for axis in chosen
    }


def _scaled(shape: Sequence[int], axes: Sequence[int], scales: Sequence[float]) -> dict[int, Axis]:
    return {
        axis: Axis(source=shape[axis], target=int(np.floor(np.float32(shape[axis]) * np.float32(scale))), scale=scale)
        for axis, scale in zip(axes, scales, strict=True)
    }


def _resized(
    emit: Emitter, x: relax.Expr, axes: Mapping[int, Axis], how: Interpolation, extrapolation_value: float
) -> relax.Expr:
    if all(axis.source == axis.target for axis in axes.values()) and how.coordinates != "tf_crop_and_resize":
        return x  # onnxruntime does the same, even if a factor is slightly above 1
    tables = {index: taps(axis, how) for index, axis in axes.items()}
    tables = {index: table for index, table in tables.items() if not is_identity(table, axes[index])}
    if not tables:
        return x
    if dtype_name(x) not in ("float32", "float64") and (how.mode != "nearest" or _extrapolates(tables)):
        raise Refused(f"interpolation of {dtype_name(x)}")
    result = gathered(emit.builder, x, tables) if how.mode == "nearest" else interpolated(emit.builder, x, axes, tables)
    if not _extrapolates(tables):
        return result
    outside = np.zeros(static_shape(result), "bool")
    for index, table in tables.items():
        outside |= table.outside.reshape([-1 if axis == index else 1 for axis in range(outside.ndim)])
    return emit.where(constant(outside), number(extrapolation_value, dtype_name(x)), result)


def _extrapolates(tables: Mapping[int, Taps]) -> bool:
    return any(table.outside.any() for table in tables.values())


CONVERTERS = {("", "Resize"): Resize, ("", "Upsample"): Upsample}
