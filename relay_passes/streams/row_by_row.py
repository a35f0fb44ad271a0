"""Rules of operators that compute each row of their result from the same row of their operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from relay_passes.dataflow import static_shape
from relay_passes.streams.time_rule import Known, Rule, Slide, Unruly, same_call


def same_rows_rule(call: relax.Call, known: Known, *, is_view: bool = False) -> Rule | Unruly:
    """Each row from the same row; further arguments, such as scales, are constants that do not differ over time."""
    axis, rank = known.axes[call.args[0]], len(static_shape(call.args[0]))
    for place, other in enumerate(call.args[1:], 1):
        along = int(call.attrs.axis) % rank if hasattr(call.attrs, "axis") else rank - 1
        if not known.is_constant(other):
            return Unruly(reason=f"argument {place} is computed by the model")
        if isinstance(other.ty, relax.TensorType) and int(np.prod(static_shape(other))) > 1 and along == axis:
            return Unruly(reason="its parameters differ over time")
    rows = static_shape(call.args[0])[axis]
    return Rule(operands=(0,), axis=axis, rows=rows, slide=Slide(), make=same_call(call), is_view=is_view)


def joined_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Element by element of several values; those that are not over time are constants that do not differ over it."""
    shape = static_shape(call)
    places = tuple(place for place, arg in enumerate(call.args) if arg in known.axes)
    from_end = {known.axes[call.args[place]] - len(static_shape(call.args[place])) for place in places}
    if len(from_end) != 1:
        return Unruly(reason="joins values whose axes of time do not meet")
    axis = len(shape) + from_end.pop()
    for arg in call.args:
        own = static_shape(arg)
        along = axis - (len(shape) - len(own))
        extent = own[along] if along >= 0 else 1
        if arg in known.axes:
            if extent != shape[axis]:
                return Unruly(reason="joins values of different lengths over time")
        elif not known.is_constant(arg):
            return Unruly(reason="joins what is over time with what is not, and may differ from run to run")
        elif extent != 1:
            return Unruly(reason="joins a constant that differs over time")
    return Rule(operands=places, axis=axis, rows=shape[axis], slide=Slide(), make=same_call(call))


def along_channels_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Normalizations and softmax over axes other than that of time."""
    data = call.args[0]
    rank, axis = len(static_shape(data)), known.axes[data]
    over = [call.attrs.axis] if hasattr(call.attrs, "axis") else call.attrs.axes
    if axis in {int(one) % rank for one in over}:
        return Unruly(reason="is taken over time")
    if not all(map(known.is_constant, call.args[1:])):
        return Unruly(reason="its parameters are computed by the model")
    return Rule(operands=(0,), axis=axis, rows=static_shape(data)[axis], slide=Slide(), make=same_call(call))


def reduced_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Means, sums and extremes over axes other than that of time."""
    data = call.args[0]
    rank, axis = len(static_shape(data)), known.axes[data]
    over = set(range(rank)) if call.attrs.axis is None else {int(one) % rank for one in call.attrs.axis}
    if axis in over:
        return Unruly(reason="is taken over time")
    left = axis if call.attrs.keepdims else axis - sum(one < axis for one in over)
    return Rule(operands=(0,), axis=left, rows=static_shape(data)[axis], slide=Slide(), make=same_call(call))


def permuted_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Axes in another order, with that of time among them."""
    rank = len(static_shape(call))
    order = list(range(rank))[::-1] if call.attrs.axes is None else [int(one) % rank for one in call.attrs.axes]
    axis = order.index(known.axes[call.args[0]])
    rows = static_shape(call)[axis]
    return Rule(operands=(0,), axis=axis, rows=rows, slide=Slide(), make=same_call(call), is_view=True)


def reshaped_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """A reshape that leaves the axis of time whole: as many elements before it, and behind it, as there were."""
    before, after, axis = static_shape(call.args[0]), static_shape(call), known.axes[call.args[0]]
    first = int(np.prod(before[:axis]))
    places = [
        place for place, extent in enumerate(after) if extent == before[axis] and int(np.prod(after[:place])) == first
    ]
    if not places:
        return Unruly(reason="mixes time with other axes")
    (place, *_) = places

    def make(arguments: Sequence[relax.Expr], _slide: Slide, _padding: tuple[int, int]) -> relax.Expr:
        rows = static_shape(arguments[0])[axis]
        return relax.op.reshape(arguments[0], [*after[:place], rows, *after[place + 1 :]])

    return Rule(operands=(0,), axis=place, rows=after[place], slide=Slide(), make=make, is_view=True)


def multiplied_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """A matrix product with constant weights, of which time is no axis that is summed over."""
    data, weights = call.args
    if data not in known.axes or not known.is_constant(weights) or len(static_shape(weights)) != 2:
        return Unruly(reason="is a product of values that the model computes")
    if known.axes[data] == len(static_shape(data)) - 1:
        return Unruly(reason="is summed over time")
    axis = known.axes[data]
    return Rule(operands=(0,), axis=axis, rows=static_shape(call)[axis], slide=Slide(), make=same_call(call))


def concatenated_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Values over time beside each other along another axis."""
    fields = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
    rank = len(static_shape(call))
    along = int(call.attrs.axis or 0) % rank
    own = {known.axes.get(field) for field in fields}
    if len(own) != 1 or None in own:
        return Unruly(reason="joins what is over time with what is not")
    (axis,) = own
    if axis is None or axis == along:
        return Unruly(reason="joins values one after the other in time")

    def make(arguments: Sequence[relax.Expr], _slide: Slide, _padding: tuple[int, int]) -> relax.Expr:
        return relax.op.concat(list(arguments), along)

    operands = tuple(range(len(fields)))
    return Rule(operands=operands, axis=axis, rows=static_shape(call)[axis], slide=Slide(), make=make)
