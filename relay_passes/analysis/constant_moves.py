"""Operators that move, repeat or convert numbers, on constants: the part of `constant_value` without arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from relay_passes.dataflow import static_shape

Array = np.ndarray
Rule = Callable[[relax.Call, Sequence[Array]], "Array | None"]


def _ints(expr: relax.Tuple) -> list[int]:
    return [int(field.value) for field in expr.fields]


def _strided_slice(call: relax.Call, a: Sequence[Array]) -> Array:
    index = [slice(None)] * a[0].ndim
    axes, begins, ends = (_ints(arg) for arg in call.args[1:4])
    strides = _ints(call.args[4]) if len(call.args) > 4 else [1] * len(axes)
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        index[axis] = slice(begin, end, stride)
    return a[0][tuple(index)]


def _take(call: relax.Call, a: Sequence[Array]) -> Array | None:
    axis, data, indices = call.attrs.axis, a[0], a[1]
    extent = data.size if axis is None else data.shape[int(axis)]
    if indices.size and (indices.min() < 0 or indices.max() >= extent):
        return None
    return np.take(data, indices, axis=None if axis is None else int(axis))


def _gather_elements(call: relax.Call, a: Sequence[Array]) -> Array | None:
    axis = int(call.attrs.axis)
    if a[1].size and (a[1].min() < 0 or a[1].max() >= a[0].shape[axis]):
        return None
    return np.take_along_axis(a[0], a[1].astype("int64"), axis)


def _pad(call: relax.Call, a: Sequence[Array]) -> Array | None:
    width = [int(w) for w in call.attrs.pad_width]
    if call.attrs.pad_mode != "constant" or min(width, default=0) < 0:
        return None
    return np.pad(a[0], list(zip(width[::2], width[1::2], strict=True)), constant_values=call.attrs.pad_value)


def _astype(call: relax.Call, a: Sequence[Array]) -> Array | None:
    target = np.dtype(str(call.ty.dtype))
    if a[0].dtype.kind == "f" and target.kind in "iu" and a[0].size:
        whole, limits = np.trunc(a[0].astype("float64")), np.iinfo(target)
        # The largest 64-bit integers are no floats: stay clear of them rather than reason about the last bit.
        if not np.isfinite(whole).all() or whole.min() < limits.min or whole.max() >= float(limits.max) + 1:
            return None
    return a[0].astype(target)


def _arange(call: relax.Call, a: Sequence[Array]) -> Array | None:
    start, _, step = (arg.value for arg in call.args)
    if str(call.ty.dtype).startswith("float"):
        return None
    return start + step * np.arange(static_shape(call)[0], dtype="int64")


def _reshaped(call: relax.Call, a: Sequence[Array]) -> Array:
    return a[0].reshape(static_shape(call))


# Rules by the operator's name without `relax.`.
MOVES: dict[str, Rule] = {
    **dict.fromkeys(("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten"), _reshaped),
    "permute_dims": lambda call, a: a[0].transpose(call.attrs.axes and [int(x) for x in call.attrs.axes]),
    "broadcast_to": lambda call, a: np.broadcast_to(a[0], static_shape(call)),
    "concat": lambda call, a: np.concatenate(a, 0 if call.attrs.axis is None else int(call.attrs.axis)),
    "stack": lambda call, a: np.stack(a, 0 if call.attrs.axis is None else int(call.attrs.axis)),
    "strided_slice": _strided_slice,
    "take": _take,
    "gather_elements": _gather_elements,
    "tile": lambda call, a: np.tile(a[0], [int(r) for r in call.attrs.repeats]),
    "repeat": lambda call, a: np.repeat(a[0], int(call.attrs.repeats), call.attrs.axis),
    "flip": lambda call, a: np.flip(a[0], int(call.attrs.axis)),
    "nn.pad": _pad,
    "full": lambda call, a: np.full(static_shape(call), a[0].item(), str(call.ty.dtype)),
    "full_like": lambda call, a: np.full(static_shape(call), a[1].item(), str(call.ty.dtype)),
    **dict.fromkeys(("zeros", "zeros_like"), lambda call, a: np.zeros(static_shape(call), str(call.ty.dtype))),
    **dict.fromkeys(("ones", "ones_like"), lambda call, a: np.ones(static_shape(call), str(call.ty.dtype))),
    "arange": _arange,
    "where": lambda call, a: np.where(a[0], a[1], a[2]),
    "astype": _astype,
}
