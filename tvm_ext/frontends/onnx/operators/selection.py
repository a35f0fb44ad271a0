"""Converters of TopK, OneHot, Compress by a known condition, TensorScatter, CumSum, CumProd and Det."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.frontends.emitter import Emitter, dtype_name, ints_of, known_ints, number
from tvm_ext.frontends.ranks import ranked_indices
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]

_MAX_DETERMINANT = 4
_MAX_DEPTH = 1 << 20


class TopK(OnnxOpConverter):
    """Converter of TopK: the k largest or smallest elements in order. Equal elements keep their order."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _top(Emitter(bb), inputs[0], int(attr["k"]), attr)

    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        count = known_ints(inputs[1])
        return _top(Emitter(bb), inputs[0], count[0], attr)


def _top(emit: Emitter, x: relax.Expr, k: int, attr: Attributes) -> relax.Expr:
    shape, rank = static_shape(x), len(static_shape(x))
    axis, is_largest = int(attr.get("axis", -1)) % rank, bool(attr.get("largest", 1))
    chosen = emit.te(
        lambda source: ranked_indices(source, shape, axis, (0, k), largest_first=is_largest), x, name="top_k"
    )
    return relax.Tuple([emit.gather_elements(x, chosen, axis=axis), chosen])


class OneHot(OnnxOpConverter):
    """Converter of OneHot. Negative indices count from the depth; indices outside the depth set no element."""

    @classmethod
    def _impl_v9(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (indices, depth, values) = Emitter(bb), inputs[:3]
        given = array_of(depth)
        if given is None:
            raise Refused("the shape of its output depends on data")
        count, dtype = int(np.asarray(given).reshape(-1)[0]), dtype_name(indices)
        if not 0 < count <= _MAX_DEPTH:
            raise Refused(f"a depth of {count}; 1 to {_MAX_DEPTH} can be compiled")
        axis = int(attr.get("axis", -1)) % (len(static_shape(indices)) + 1)
        wrapped = emit.where(emit.less(indices, number(0, dtype)), emit.add(indices, number(count, dtype)), indices)
        shape = [count if index == axis else 1 for index in range(len(static_shape(indices)) + 1)]
        places = constant(np.arange(count).astype(dtype).reshape(shape))
        hit = emit.equal(emit.expand_dims(wrapped, axis=axis), places)
        off, on = (emit.reshaped(emit.slice(values, 0, i, i + 1), ()) for i in (0, 1))
        return emit.where(hit, on, off)


class Compress(OnnxOpConverter):
    @classmethod
    def _impl_v9(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (x, condition) = Emitter(bb), inputs[:2]
        known = array_of(condition)
        if known is None:
            raise Refused("the shape of its output depends on data")
        if attr.get("axis") is None:
            x = emit.reshaped(x, (math.prod(static_shape(x)),))
        axis = int(attr.get("axis") or 0) % len(static_shape(x))
        return emit.take(x, constant(np.nonzero(known)[0].astype("int64")), axis=axis)


class TensorScatter(OnnxOpConverter):
    """Converter of TensorScatter: write an update into a cache, at one index per batch. Circular caches wrap around."""

    @classmethod
    def _impl_v24(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        cache, update, begins = (*inputs[:3], *[None] * (3 - len(inputs[:3])))
        shape, extent = static_shape(cache), static_shape(update)
        axis = int(attr.get("axis", -2)) % len(shape)
        circular = attr.get("mode", b"linear") == b"circular"
        begins = constant(np.zeros(shape[0], "int64")) if begins is None else begins

        def compute(old: te.Tensor, new: te.Tensor, begin: te.Tensor) -> te.Tensor:
            def element(*at: tirx.Var) -> tirx.Expr:
                offset = tirx.Cast("int64", at[axis]) - begin[at[0]]
                if circular:
                    offset = tirx.floormod(offset, tirx.const(shape[axis], "int64"))
                written = tirx.And(offset >= 0, offset < extent[axis])
                place = [offset if index == axis else i for index, i in enumerate(at)]
                return tirx.if_then_else(written, new(*place), old(*at))

            return te.compute(shape, element, "scatter")

        return Emitter(bb).te(compute, cache, update, begins, name="tensor_scatter")


def _running(name: str, operator: str) -> type[OnnxOpConverter]:
    """Return a converter for running sums or products along an axis.

    Exclusive excludes the element itself, and reverse starts at the end.
    """

    def convert(cls: type, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x, axes = Emitter(bb), inputs[0], ints_of(inputs[1])
        rank = len(static_shape(x))
        if axes is None and rank > 1:
            raise Refused("its axis depends on data")
        axis, backward = axes[0] % rank if axes else 0, bool(attr.get("reverse", 0))
        source = emit.reversed(x, axis) if backward else x
        result = getattr(emit, operator)(source, axis=axis, exclusive=bool(attr.get("exclusive", 0)))
        return emit.reversed(result, axis) if backward else result

    return type(name, (OnnxOpConverter,), {"_impl_v11": classmethod(convert)})


class Det(OnnxOpConverter):
    """Converter of Det: determinants of small matrices, by the minors of the first row."""

    @classmethod
    def _impl_v11(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        shape = static_shape(x)
        if shape[-1] > _MAX_DETERMINANT:
            raise Refused(f"determinants of more than {_MAX_DETERMINANT} rows")

        def entry(row: int, column: int) -> relax.Expr:
            picked = emit.slice(emit.slice(x, len(shape) - 2, row, row + 1), len(shape) - 1, column, column + 1)
            return emit.reshaped(picked, shape[:-2])

        def minor(row: int, columns: Sequence[int]) -> relax.Expr:
            if len(columns) == 1:
                return entry(row, columns[0])
            total = None
            for index, column in enumerate(columns):
                rest = [other for other in columns if other != column]
                product = emit.multiply(entry(row, column), minor(row + 1, rest))
                signed = emit.negative(product) if index % 2 else product
                total = signed if total is None else emit.add(total, signed)
            return total

        return minor(0, range(shape[-1]))


CONVERTERS = {
    ("", "TopK"): TopK,
    ("", "OneHot"): OneHot,
    ("", "Compress"): Compress,
    ("", "TensorScatter"): TensorScatter,
    ("", "CumSum"): _running("CumSum", "cumsum"),
    ("", "CumProd"): _running("CumProd", "cumprod"),
    ("", "Det"): Det,
}
