"""Operators whose elements follow from places: EyeLike, AffineGrid, MaxUnpool."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.onnx.element_types import dtype_of
from tvm_ext.frontends.onnx.operators.emitter import Emitter, dtype_name, known_ints
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


class EyeLike(OnnxOpConverter):
    """Ones on a diagonal, in the shape of a matrix of which nothing else is read."""

    @classmethod
    def _impl_v9(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        dtype = dtype_of(attr["dtype"]) if "dtype" in attr else dtype_name(inputs[0])
        return constant(np.eye(*static_shape(inputs[0]), k=int(attr.get("k", 0))).astype(dtype))


class AffineGrid(OnnxOpConverter):
    """Coordinates of a regular grid over [-1, 1], last axis of the image first, times a matrix for each image."""

    @classmethod
    def _impl_v20(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, theta, size = Emitter(bb), inputs[0], known_ints(inputs[1])
        extents, dtype = size[2:], dtype_name(theta)
        axes = [_coordinates(extent, is_corner=bool(attr.get("align_corners", 0))) for extent in extents]
        mesh = np.meshgrid(*axes, indexing="ij")[::-1]
        places = np.stack([*mesh, np.ones(extents)], axis=-1).reshape(1, -1, len(extents) + 1)
        grid = emit.matmul(constant(places.astype(dtype)), emit.transposed(theta, [0, 2, 1]))
        return emit.reshaped(grid, (static_shape(theta)[0], *extents, len(extents)))


def _coordinates(extent: int, *, is_corner: bool) -> np.ndarray:
    """Places along an axis: from corner to corner, or the middles of its pixels."""
    return np.linspace(-1, 1, extent) if is_corner else (2 * np.arange(extent) + 1) / extent - 1


class MaxUnpool(OnnxOpConverter):
    """Each element at the place that MaxPool found it at, zeros elsewhere."""

    @classmethod
    def _impl_v9(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x, places = Emitter(bb), *inputs[:2]
        shape, kernel = static_shape(x), attr["kernel_shape"]
        strides, pads = attr.get("strides") or [1] * len(kernel), attr.get("pads") or [0] * 2 * len(kernel)
        extents = [
            (extent - 1) * stride - pads[axis] - pads[axis + len(kernel)] + window
            for axis, (extent, stride, window) in enumerate(zip(shape[2:], strides, kernel, strict=True))
        ]
        whole = (*shape[:2], *extents)
        wanted = whole if len(inputs) < 3 or inputs[2] is None else known_ints(inputs[2])
        if wanted != whole:
            # The standard's own code counts places in the shape that follows, onnxruntime in the one that is asked for.
            raise Refused(f"output_shape {list(wanted)} where {list(whole)} follows from the windows; runtimes differ")
        zeros, count = constant(np.zeros(math.prod(whole), dtype_name(x))), math.prod(shape)
        flat = emit.scatter_elements(zeros, emit.reshaped(places, (count,)), emit.reshaped(x, (count,)), axis=0)
        return emit.reshaped(flat, whole)


CONVERTERS = {
    ("", "EyeLike"): EyeLike,
    ("", "AffineGrid"): AffineGrid,
    ("", "MaxUnpool"): MaxUnpool,
}
