"""Converters of Reduce*, ArgMin and ArgMax, with axes as attribute or operand, empty axes and empty sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from codegen_c.tir.legalizations import arg_extreme
from relay_passes.dataflow import static_shape
from tvm_ext.frontends.emitter import Emitter, dtype_name, ints_of, number
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]
# x, axes, keepdims -> result
Reduction = Callable[[Emitter, "relax.Expr", list[int], bool], "relax.Expr"]


def _axes(inputs: Inputs, attr: Attributes, rank: int) -> list[int]:
    """Return the axes to reduce, or none if the operator should do nothing. Raises Refused."""
    given: Sequence[int] | None = attr.get("axes")
    if len(inputs) > 1 and inputs[1] is not None:
        given = () if static_shape(inputs[1]) == (0,) else ints_of(inputs[1])
        if given is None:
            raise Refused("its axes depend on data")
    if given:
        return sorted({axis % rank for axis in given})
    return [] if attr.get("noop_with_empty_axes", 0) else list(range(rank))


def _count(x: relax.Expr, axes: Sequence[int]) -> int:
    return int(np.prod([static_shape(x)[axis] for axis in axes], dtype=np.int64))


def _shape(x: relax.Expr, axes: Sequence[int], keepdims: bool) -> list[int]:
    kept = [1 if axis in axes else extent for axis, extent in enumerate(static_shape(x))]
    return kept if keepdims else [extent for axis, extent in enumerate(static_shape(x)) if axis not in axes]


def _sum(emit: Emitter, x: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
    return emit.sum(x, axis=axes, keepdims=keepdims) if axes else x


def _mean(emit: Emitter, x: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
    if not axes:
        return x
    if dtype_name(x).startswith("float"):
        return emit.mean(x, axis=axes, keepdims=keepdims)
    raise Refused(f"the mean of {dtype_name(x)}")


def _extreme(name: str) -> Reduction:
    def reduce(emit: Emitter, x: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
        dtype = dtype_name(x)
        if not axes:
            return x
        if _count(x, axes) == 0:
            return emit.full(_shape(x, axes, keepdims), number(_least_binding(dtype, name), dtype), dtype)
        if dtype == "bool":
            reduced = getattr(emit, name)(emit.cast(x, "uint8"), axis=axes, keepdims=keepdims)
            return emit.cast(reduced, "bool")
        return getattr(emit, name)(x, axis=axes, keepdims=keepdims)

    return reduce


def _least_binding(dtype: str, name: str) -> float:
    """Return the extreme of an empty set, which any element replaces."""
    if dtype == "bool":
        return name == "min"
    if dtype.startswith("float"):
        return np.inf if name == "min" else -np.inf
    limits = np.iinfo(dtype)
    return limits.max if name == "min" else limits.min


def _prod(emit: Emitter, x: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
    return emit.prod(x, axis=axes, keepdims=keepdims) if axes else x


def _log_sum(emit: Emitter, x: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
    return emit.log(_sum(emit, x, axes, keepdims))


def _log_sum_exp(emit: Emitter, x: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
    """Return log(sum(exp(x))), computed relative to the largest element unless that is infinite."""
    if not axes or _count(x, axes) == 0:
        return _log_sum(emit, emit.exp(x), axes, keepdims)
    largest = emit.max(x, axis=axes, keepdims=True)
    zero = number(0, dtype_name(x))
    shift = emit.where(emit.isfinite(largest), largest, zero)
    total = emit.log(emit.sum(emit.exp(emit.subtract(x, shift)), axis=axes, keepdims=keepdims))
    return emit.add(total, emit.reshaped(shift, _shape(x, axes, keepdims)))


def _sum_square(emit: Emitter, x: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
    return _sum(emit, emit.multiply(x, x), axes, keepdims)


def _l1(emit: Emitter, x: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
    return _sum(emit, emit.abs(x), axes, keepdims)


def _l2(emit: Emitter, x: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
    if not dtype_name(x).startswith("float"):
        raise Refused(f"the Euclidean norm of {dtype_name(x)}")
    return emit.sqrt(_sum_square(emit, x, axes, keepdims))


def _converter(name: str, reduction: Reduction) -> type[OnnxOpConverter]:
    def convert(cls: type, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        axes = _axes(inputs, attr, len(static_shape(inputs[0])))
        return reduction(Emitter(bb), inputs[0], axes, bool(attr.get("keepdims", 1)))

    return type(name, (OnnxOpConverter,), {"_impl_v1": classmethod(convert)})


def _arg_converter(name: str, operator: str) -> type[OnnxOpConverter]:
    def convert(cls: type, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        axis, keepdims = int(attr.get("axis", 0)) % len(static_shape(x)), bool(attr.get("keepdims", 1))
        if not attr.get("select_last_index", 0):
            return getattr(emit, operator)(x, axis=axis, keepdims=keepdims)
        is_max = operator == "argmax"
        find = partial(arg_extreme, axis=axis, keepdims=keepdims, is_max=is_max, last=True)
        return emit.te(find, x, name=f"{operator}_last")

    return type(name, (OnnxOpConverter,), {"_impl_v1": classmethod(convert)})


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceProd": _prod,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": _sum_square,
    "ReduceL1": _l1,
    "ReduceL2": _l2,
}

CONVERTERS = {
    **{("", name): _converter(name, reduction) for name, reduction in _REDUCTIONS.items()},
    ("", "ArgMax"): _arg_converter("ArgMax", "argmax"),
    ("", "ArgMin"): _arg_converter("ArgMin", "argmin"),
}
