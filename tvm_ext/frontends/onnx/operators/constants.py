"""Operators whose results, shapes or indices are known at import."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.frontends.emitter import Emitter, dtype_name, known_ints
from tvm_ext.frontends.onnx.element_types import dtype_of, in_bytes
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]

_MAX_ELEMENTS = 1 << 22
_SCALARS = {"value_float": "float32", "value_int": "int64", "value_floats": "float32", "value_ints": "int64"}


class Constant(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        if isinstance(attr.get("value"), onnx.TensorProto):
            return constant(in_bytes(numpy_helper.to_array(attr["value"])))
        for name, dtype in _SCALARS.items():
            if name in attr:
                return constant(np.asarray(attr[name], dtype))
        raise Refused("constants of strings and sparse constants")


class Shape(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        dims = static_shape(inputs[0])
        return constant(np.array(dims[attr.get("start", 0) : attr.get("end", len(dims))], "int64"))


class Size(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return constant(np.array(np.prod(static_shape(inputs[0]), dtype=np.int64)))


class NonZero(OnnxOpConverter):
    @classmethod
    def _impl_v9(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        data = array_of(inputs[0])
        if data is None:
            raise Refused("the shape of its output depends on data")
        if data.size > _MAX_ELEMENTS:
            raise Refused(f"the places of what is not zero among {data.size} elements; {_MAX_ELEMENTS} are looked at")
        return constant(np.array(np.nonzero(np.atleast_1d(data)), "int64"))


class DataDependent(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        raise Refused("the shape of its output depends on data")


class NonMaxSuppression(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        raise Refused(
            "it gives as many boxes as it keeps, which no shape says; take a TensorFlow Lite file with "
            "TFLite_Detection_PostProcess: it gives a fixed number of boxes and says how many of them count "
            "(docs/operators.md)"
        )


def _known(inputs: Inputs, index: int) -> tuple[int, ...] | None:
    """Return the numbers of an optional operand, or None where it is not given. Raises Refused."""
    if len(inputs) <= index or inputs[index] is None:
        return None
    if static_shape(inputs[index]) == (0,):
        return ()
    return known_ints(inputs[index])


class Reshape(OnnxOpConverter):
    """Reshape, where 0 keeps an extent (unless allowzero is set) and -1 takes the remaining elements."""

    @classmethod
    def _impl_v5(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        shape, wanted = static_shape(inputs[0]), list(_known(inputs, 1) or ())
        if not attr.get("allowzero", 0):
            wanted = [shape[axis] if extent == 0 else extent for axis, extent in enumerate(wanted)]
        if -1 in wanted:
            rest = math.prod(extent for extent in wanted if extent != -1)
            wanted[wanted.index(-1)] = math.prod(shape) // rest if rest else 0
        if math.prod(wanted) != math.prod(shape):
            raise Refused(f"{list(shape)} cannot be seen as {wanted}")
        return Emitter(bb).reshaped(inputs[0], wanted)


class Unsqueeze(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _unsqueezed(Emitter(bb), inputs[0], attr["axes"])

    @classmethod
    def _impl_v13(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _unsqueezed(Emitter(bb), inputs[0], _known(inputs, 1) or ())


def _unsqueezed(emit: Emitter, x: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    rank = len(static_shape(x)) + len(axes)
    extents, added = iter(static_shape(x)), {axis % rank for axis in axes}
    return emit.reshaped(x, [1 if axis in added else next(extents) for axis in range(rank)])


class Squeeze(OnnxOpConverter):
    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _squeezed(Emitter(bb), inputs[0], attr.get("axes"))

    @classmethod
    def _impl_v13(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _squeezed(Emitter(bb), inputs[0], _known(inputs, 1))


def _squeezed(emit: Emitter, x: relax.Expr, axes: Sequence[int] | None) -> relax.Expr:
    shape = static_shape(x)
    dropped = {axis for axis, extent in enumerate(shape) if extent == 1}
    if axes:
        wanted = {axis % len(shape) for axis in axes}
        if not wanted <= dropped:
            raise Refused(f"axes {sorted(wanted - dropped)} of {list(shape)} are longer than 1")
        dropped = wanted
    return emit.reshaped(x, [extent for axis, extent in enumerate(shape) if axis not in dropped])


class Expand(OnnxOpConverter):
    """Broadcast in both directions: an extent of the input may be larger than the requested extent."""

    @classmethod
    def _impl_v8(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        given, wanted = static_shape(inputs[0]), tuple(_known(inputs, 1) or ())
        pairs = list(zip_longest(given[::-1], wanted[::-1], fillvalue=1))
        if any(a != b and 1 not in (a, b) for a, b in pairs):
            raise Refused(f"{list(given)} cannot be broadcast to {list(wanted)}")
        return Emitter(bb).broadcast_to(inputs[0], [b if a == 1 else a for a, b in pairs][::-1])


class Split(OnnxOpConverter):
    """Split into the given sizes, or into equal parts of which the last may be smaller."""

    @classmethod
    def _impl_v2(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _split(Emitter(bb), inputs[0], attr.get("split"), attr)

    @classmethod
    def _impl_v13(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _split(Emitter(bb), inputs[0], _known(inputs, 1), attr)


def _split(emit: Emitter, x: relax.Expr, sizes: Sequence[int] | None, attr: Attributes) -> relax.Expr:
    shape = static_shape(x)
    axis, count = int(attr.get("axis", 0)) % len(shape), attr["tvm_custom"]["num_outputs"]
    if not sizes:
        part = -(-shape[axis] // count)
        sizes = [min(part, max(0, shape[axis] - index * part)) for index in range(count)]
    if sum(sizes) != shape[axis]:
        raise Refused(f"parts of {list(sizes)} do not make up the {shape[axis]} elements of axis {axis}")
    ends = np.cumsum(sizes).tolist()
    if len(sizes) == 1 or 0 in sizes:
        begins = [0, *ends[:-1]]
        return relax.Tuple([emit.slice(x, axis, begin, end) for begin, end in zip(begins, ends, strict=True)])
    return emit.split(x, ends[:-1], axis=axis)


class EyeLike(OnnxOpConverter):
    """Ones on a diagonal, in the shape of a matrix whose elements are not read."""

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
    """Return the coordinates along an axis: from corner to corner, or the centres of its pixels."""
    return np.linspace(-1, 1, extent) if is_corner else (2 * np.arange(extent) + 1) / extent - 1


class MaxUnpool(OnnxOpConverter):
    """Each element at the index at which MaxPool found it, and zeros elsewhere."""

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
            # The standard's own code counts indices in the inferred shape, onnxruntime in the requested shape.
            raise Refused(f"output_shape {list(wanted)} where {list(whole)} follows from the windows; runtimes differ")
        zeros, count = constant(np.zeros(math.prod(whole), dtype_name(x))), math.prod(shape)
        flat = emit.scatter_elements(zeros, emit.reshaped(places, (count,)), emit.reshaped(x, (count,)), axis=0)
        return emit.reshaped(flat, whole)


CONVERTERS = {
    ("", "Constant"): Constant,
    ("", "Shape"): Shape,
    ("", "Size"): Size,
    ("", "NonZero"): NonZero,
    ("", "Unique"): DataDependent,
    **dict.fromkeys([("", "NonMaxSuppression"), ("com.microsoft", "AllClassNMS")], NonMaxSuppression),
    ("", "Reshape"): Reshape,
    ("", "Unsqueeze"): Unsqueeze,
    ("", "Squeeze"): Squeeze,
    ("", "Expand"): Expand,
    ("", "Split"): Split,
    ("", "EyeLike"): EyeLike,
    ("", "AffineGrid"): AffineGrid,
    ("", "MaxUnpool"): MaxUnpool,
}
