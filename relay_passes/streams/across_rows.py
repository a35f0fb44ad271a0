"""Rules of operators that compute a row of their result from other rows, or from several: slices, pads, windows."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from relay_passes.dataflow import array_of, op_name, static_shape
from relay_passes.streams.time_rule import Known, Rule, Slide, Unruly


def cut_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """strided_slice with constant bounds: over time a delay, over other axes the same for each row."""
    data = call.args[0]
    shape, axis = static_shape(data), known.axes[data]
    numbers = [_integers(arg) for arg in call.args[1:]]
    if any(found is None for found in numbers):
        return Unruly(reason="its bounds are computed by the model")
    over, begins, ends, *rest = (list(found) for found in numbers if found is not None)
    steps = rest[0] if rest else [1] * len(over)
    over = [one % len(shape) for one in over]
    if any(step < 1 for step in steps):
        return Unruly(reason="goes backwards")
    begin, step = 0, 1
    others: list[tuple[int, int, int, int]] = []
    for one, first, end, each in zip(over, begins, ends, steps, strict=True):
        extent = shape[one]
        low, high = (min(max(bound + extent if bound < 0 else bound, 0), extent) for bound in (first, end))
        if one == axis:
            begin, step = low, each
        else:
            others.append((one, low, high, each))

    def make(arguments: Sequence[relax.Expr], slide: Slide, _padding: tuple[int, int]) -> relax.Expr:
        rows = static_shape(arguments[0])[axis]
        listed = [*others, (axis, 0, rows, slide.stride)]
        columns = [list(column) for column in zip(*listed, strict=True)]
        return relax.op.strided_slice(arguments[0], *columns)

    rows = static_shape(call)[axis]
    return Rule(operands=(0,), axis=axis, rows=rows, slide=Slide(stride=step, first=begin), make=make)


def _integers(expr: relax.Expr) -> list[int] | None:
    """The numbers of a tuple of integers; None where the model computes them."""
    fields = list(expr.fields) if isinstance(expr, relax.Tuple) else []
    return [int(field) for field in fields] if all(isinstance(field, tvm.tirx.IntImm) for field in fields) else None


def padded_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Pads of a constant: over time rows that a window has at its ends, over other axes the same for each row."""
    data = call.args[0]
    axis, widths = known.axes[data], [int(one) for one in call.attrs.pad_width]
    value = array_of(call.args[1]) if len(call.args) > 1 else None
    if str(call.attrs.pad_mode) != "constant" or (len(call.args) > 1 and value is None) or min(widths) < 0:
        return Unruly(reason=f"pads in mode {call.attrs.pad_mode}")
    number = 0.0 if value is None else float(value.reshape(-1)[0])

    def make(arguments: Sequence[relax.Expr], _slide: Slide, padding: tuple[int, int]) -> relax.Expr:
        width = [*widths[: 2 * axis], *padding, *widths[2 * axis + 2 :]]
        if not any(width):
            return arguments[0]
        return _with_width(call, arguments[0], width)

    slide = Slide(first=-widths[2 * axis])
    return Rule(operands=(0,), axis=axis, rows=static_shape(call)[axis], slide=slide, make=make, fill=number)


def _with_width(call: relax.Call, data: relax.Expr, width: list[int]) -> relax.Expr:
    again = relax.op.nn.pad(data, width)
    return relax.Call(again.op, [data, *call.args[1:]], again.attrs, again.ty_args, call.span)


def windowed_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Convolutions and pools: time is one of the axes over which the window slides."""
    data, attrs = call.args[0], call.attrs
    layout = str(getattr(attrs, "data_layout", None) or attrs.layout)
    places = [layout.index(letter) for letter in "DHW" if letter in layout]
    axis = known.axes[data]
    if axis not in places:
        return Unruly(reason="sums over time as over channels")
    if not all(map(known.is_constant, call.args[1:])):
        return Unruly(reason="has weights that the model computes")
    if bool(getattr(attrs, "ceil_mode", False)):
        return Unruly(reason="rounds its length up (ceil_mode)")
    place, count = places.index(axis), len(places)
    strides, dilation = ([int(one) for one in values] for values in (attrs.strides, attrs.dilation))
    padding = _both_sides([int(one) for one in attrs.padding], count)
    kernel = _kernel(call, layout, count)
    slide = Slide(stride=strides[place], first=-padding[place], taps=kernel[place], dilation=dilation[place])

    def make(arguments: Sequence[relax.Expr], other: Slide, ends: tuple[int, int]) -> relax.Expr:
        changed = {
            "strides": [*strides[:place], other.stride, *strides[place + 1 :]],
            "dilation": [*dilation[:place], other.dilation, *dilation[place + 1 :]],
            "padding": [
                *padding[:place], ends[0], *padding[place + 1 : count + place], ends[1], *padding[count + place + 1 :]
            ],
        }  # fmt: skip
        return _slid(call, arguments[0], changed)

    return Rule(operands=(0,), axis=axis, rows=static_shape(call)[axis], slide=slide, make=make)


def _both_sides(padding: list[int], count: int) -> list[int]:
    """Widths before all axes, then behind all."""
    return padding if len(padding) == 2 * count else padding * 2 if len(padding) == count else padding * (2 * count)


def _kernel(call: relax.Call, layout: str, count: int) -> list[int]:
    if hasattr(call.attrs, "pool_size"):
        return [int(one) for one in call.attrs.pool_size]
    order = str(call.attrs.kernel_layout)
    shape = static_shape(call.args[1])
    return [shape[order.index(letter)] for letter in "DHW" if letter in order]


def _slid(call: relax.Call, data: relax.Expr, changed: dict[str, list[int]]) -> relax.Expr:
    """The same convolution or pool of other rows."""
    attrs, name = call.attrs, (op_name(call) or "").rsplit(".", 1)[-1]
    function = getattr(relax.op.nn, name)
    if hasattr(attrs, "pool_size"):
        made = function(
            data, pool_size=list(attrs.pool_size), **changed, ceil_mode=False,
            count_include_pad=bool(attrs.count_include_pad), layout=str(attrs.layout), out_layout=str(attrs.out_layout),
        )  # fmt: skip
    else:
        made = function(
            data, call.args[1], **changed, groups=int(attrs.groups), data_layout=str(attrs.data_layout),
            kernel_layout=str(attrs.kernel_layout), out_layout=str(attrs.out_layout),
            out_dtype=str(attrs.out_dtype) if attrs.out_dtype else None,
        )  # fmt: skip
    return relax.Call(made.op, [data, *call.args[1:]], made.attrs, made.ty_args, call.span)
