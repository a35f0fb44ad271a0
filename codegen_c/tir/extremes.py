"""Largest elements of padded windows; index of the largest or smallest element along an axis.

The index is that which onnxruntime and TensorFlow Lite find.

The first element stands until another lies beyond it. So an element that is NaN is never chosen unless it is the
first, which then stays; and the result is always an index, also where all elements are infinite.
"""

from __future__ import annotations

import math

import tvm
from tvm import relax, te, tirx, topi
from tvm.relax.transform.legalize_ops.common import LegalizeFunc
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T


def arg_extreme(x: te.Tensor, axis: int | None, *, keepdims: bool, is_max: bool, last: bool = False) -> te.Tensor:
    """int64 places along `axis` (None: in the flattened tensor), of the first or the last of equal extremes."""
    shape = [int(extent) for extent in x.shape]
    begin, end = (0, len(shape)) if axis is None else (axis % len(shape), axis % len(shape) + 1)
    extent, inner = math.prod(shape[begin:end]), math.prod(shape[end:])
    kept = [1] * (end - begin) if keepdims else []
    result = [*shape[:begin], *kept, *shape[end:]]

    def loops(source: tirx.Buffer, found: tirx.Buffer) -> tirx.Stmt:
        with IRBuilder() as builder:
            elements, places = T.buffer_proxy(source), T.buffer_proxy(found)
            with T.serial(0, math.prod(shape[:begin])) as i, T.serial(0, inner) as j:
                row, place = i * (extent * inner) + j, i * inner + j
                best = _variable("best", str(source.ty.dtype), elements[row])
                at = _variable("at", "int32", 0)
                with T.serial(0, extent - 1) as k:
                    element = elements[row + (k + 1) * inner]
                    with T.If(_beyond(element, best[0], is_max=is_max, last=last)), T.Then():
                        best[0] = element
                        at[0] = k + 1
                places[place] = tirx.Cast("int64", at[0])
        return builder.get()

    found = te.extern(
        [result or [1]], [x], lambda ins, outs: loops(ins[0], outs[0]),
        dtype="int64", name="arg_max" if is_max else "arg_min",
    )  # fmt: skip
    return found if result else topi.reshape(found, [])


def _variable(name: str, dtype: str, value: tirx.Expr | int) -> T.buffer_proxy:
    """A buffer of one element, and what it holds at first."""
    variable = T.buffer_proxy(IRBuilder.name(name, T.alloc_buffer((1,), dtype)))
    variable[0] = value
    return variable


def _beyond(element: tirx.Expr, best: tirx.Expr, *, is_max: bool, last: bool) -> tirx.Expr:
    if is_max:
        return element >= best if last else element > best
    return element <= best if last else element < best


def _legalize(*, is_max: bool) -> LegalizeFunc:
    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        axis = None if call.attrs.axis is None else int(call.attrs.axis)
        return bb.call_te(arg_extreme, call.args[0], axis, keepdims=bool(call.attrs.keepdims), is_max=is_max)

    return legalize


def _legalize_pool(rank: int) -> LegalizeFunc:
    """TVM fills padding with the least finite number: a window of padding alone, or beside minus infinity, is that."""
    name, pool = f"relax.nn.max_pool{rank}d", getattr(topi.nn, f"pool{rank}d")

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        x, attrs = call.args[0], call.attrs
        dtype, pads = str(x.ty.dtype), [int(width) for width in attrs.padding]
        if not dtype.startswith("float") or not any(pads) or str(attrs.layout) != str(attrs.out_layout):
            return tvm.ir.Op.get(name).get_attr("FLegalize")(bb, call)
        axes = [index for index, letter in enumerate(str(attrs.layout)) if letter in "DHW"]
        before, after = [0] * len(x.ty.shape), [0] * len(x.ty.shape)
        for place, axis in enumerate(axes):
            before[axis], after[axis] = pads[place], pads[rank + place]

        def padded(source: te.Tensor) -> te.Tensor:
            filled = topi.nn.pad(source, before, after, tirx.const(-math.inf, dtype))
            return pool(
                filled, attrs.pool_size, attrs.strides, attrs.dilation, [0] * (2 * rank), "max", attrs.ceil_mode,
                str(attrs.layout),
            )  # fmt: skip

        return bb.call_te(padded, x, primfunc_name_hint=f"max_pool{rank}d")

    return legalize


LEGALIZE = {
    "relax.argmax": _legalize(is_max=True),
    "relax.argmin": _legalize(is_max=False),
    **{f"relax.nn.max_pool{rank}d": _legalize_pool(rank) for rank in (1, 2, 3)},
}
