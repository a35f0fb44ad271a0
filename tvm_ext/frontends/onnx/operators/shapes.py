"""Operators that say the shape of their result by an operand: it must be known at import."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.onnx.operators.emitter import Emitter, known_ints
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


def _known(inputs: Inputs, index: int) -> tuple[int, ...] | None:
    """The numbers of an optional operand; None where it is not given. Raises Refused."""
    if len(inputs) <= index or inputs[index] is None:
        return None
    if static_shape(inputs[index]) == (0,):
        return ()
    return known_ints(inputs[index])


class Reshape(OnnxOpConverter):
    """0 keeps an extent (unless allowzero), -1 takes what is left."""

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
    """Broadcasting both ways: an extent of the input may be larger than the one asked for."""

    @classmethod
    def _impl_v8(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        given, wanted = static_shape(inputs[0]), tuple(_known(inputs, 1) or ())
        pairs = list(zip_longest(given[::-1], wanted[::-1], fillvalue=1))
        if any(a != b and 1 not in (a, b) for a, b in pairs):
            raise Refused(f"{list(given)} cannot be broadcast to {list(wanted)}")
        return Emitter(bb).broadcast_to(inputs[0], [b if a == 1 else a for a, b in pairs][::-1])


class Split(OnnxOpConverter):
    """Sizes as given; without them equal parts, of which the last may be smaller."""

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


CONVERTERS = {
    ("", "Reshape"): Reshape,
    ("", "Unsqueeze"): Unsqueeze,
    ("", "Squeeze"): Squeeze,
    ("", "Expand"): Expand,
    ("", "Split"): Split,
}
