"""Rules of operators over time: the input rows that each output row needs.

A row is one position along the axis of time. Row r of a result reads rows r * stride + first + tap * dilation of an
operand, for each of `taps`. Rows outside the operand are the operator's own padding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import array_of, op_name, static_shape
from relay_passes.streams.attentions import Reach, TimeAttention


@dataclass(frozen=True, kw_only=True)
class Slide:
    """The rows that each row of a result reads, which are the same for every operand over time."""

    stride: int = 1
    first: int = 0
    taps: int = 1
    dilation: int = 1

    def begin(self, row: int) -> int:
        return row * self.stride + self.first

    def end(self, row: int) -> int:
        """Return the index after the last row that a row of the result reads."""
        return self.begin(row) + (self.taps - 1) * self.dilation + 1


Make = Callable[[Sequence[relax.Expr], Slide, tuple[int, int]], relax.Expr]
"""Writes the operator for other rows.

The arguments are the operands, the slide over them (stride and dilation), and the padding at both ends.
"""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An operator over time.

    operands: positions of its arguments that are over time.
    arguments: its arguments, which are the fields of a tuple where a tuple comes first.
    axis: the axis of time in the result.
    rows: rows of the result over the whole window.
    make: writes the operator for some rows.
    attention, reach: for an attention of the arguments queries, keys and values, which `make` does not write.
    fill: the value of its own padding, where rows may consist of padding alone; None where they may not.
    pads_with: the value that rows outside its operand have for it; None where it leaves such rows out of its result.
    is_view: whether the operator may be repeated wherever its result is read.
    """

    operands: tuple[int, ...]
    axis: int
    rows: int
    slide: Slide
    make: Make
    fill: float | None = None
    pads_with: float | None = None
    is_view: bool = False
    arguments: Sequence[relax.Expr] = ()
    attention: TimeAttention | None = None
    reach: Reach | None = None

    @property
    def sources(self) -> list[relax.Var]:
        """The operands that are over time, by `operands`."""
        return [self.arguments[place] for place in self.operands]

    def slide_over(self, place: int) -> Slide:
        """Return the rows that each row reads of the argument at a position."""
        if self.reach is None or place == 0:
            return self.slide
        offset = static_shape(self.arguments[2])[-2] - self.rows
        return Slide(first=offset - self.reach.first, taps=self.reach.count)


@dataclass(frozen=True, kw_only=True)
class Unruly:
    """The reason why an operator cannot be computed by rows of time.

    It is then computed for the whole window in each run.
    """

    reason: str


@dataclass(frozen=True, kw_only=True)
class Known:
    """Facts about values.

    axes: the axis of time of each value over time.
    constants: the values that are computed from constants alone.
    """

    axes: Mapping[relax.Var, int]
    constants: Set[relax.Var]

    def is_constant(self, expr: relax.Expr) -> bool:
        return array_of(expr) is not None or isinstance(expr, tvm.ir.expr.Constant) or expr in self.constants


def same_call(call: relax.Call) -> Make:
    """Apply the operator unchanged to other operands. It ignores both the slide and the padding."""

    def make(arguments: Sequence[relax.Expr], _slide: Slide, _padding: tuple[int, int]) -> relax.Expr:
        return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)

    return make


def same_rows_rule(call: relax.Call, known: Known, *, is_view: bool = False) -> Rule | Unruly:
    """Compute each row from the same row.

    Further arguments, such as scales, are constants that do not differ over time.
    """
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
    """Compute several values element by element. Operands that are not over time are constants without a time axis."""
    shape = static_shape(call)
    places = tuple(place for place, arg in enumerate(call.args) if arg in known.axes)
    from_end = {known.axes[call.args[place]] - len(static_shape(call.args[place])) for place in places}
    if len(from_end) != 1:
        return Unruly(reason="combines values whose time axes do not match")
    axis = len(shape) + from_end.pop()
    for arg in call.args:
        own = static_shape(arg)
        along = axis - (len(shape) - len(own))
        extent = own[along] if along >= 0 else 1
        if arg in known.axes:
            if extent != shape[axis]:
                return Unruly(reason="combines values of different lengths over time")
        elif not known.is_constant(arg):
            return Unruly(reason="joins what is over time with what is not, and may differ from run to run")
        elif extent != 1:
            return Unruly(reason="combines a value with a constant that differs over time")
    return Rule(operands=places, axis=axis, rows=shape[axis], slide=Slide(), make=same_call(call))


def along_channels_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Normalize, or apply softmax, over axes other than time."""
    data = call.args[0]
    rank, axis = len(static_shape(data)), known.axes[data]
    over = [call.attrs.axis] if hasattr(call.attrs, "axis") else call.attrs.axes
    if axis in {int(one) % rank for one in over}:
        return Unruly(reason="is taken over time")
    if not all(map(known.is_constant, call.args[1:])):
        return Unruly(reason="its parameters are computed by the model")
    return Rule(operands=(0,), axis=axis, rows=static_shape(data)[axis], slide=Slide(), make=same_call(call))


def reduced_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Compute means, sums and extremes over axes other than time."""
    data = call.args[0]
    rank, axis = len(static_shape(data)), known.axes[data]
    over = set(range(rank)) if call.attrs.axis is None else {int(one) % rank for one in call.attrs.axis}
    if axis in over:
        return Unruly(reason="is taken over time")
    left = axis if call.attrs.keepdims else axis - sum(one < axis for one in over)
    return Rule(operands=(0,), axis=left, rows=static_shape(data)[axis], slide=Slide(), make=same_call(call))


def permuted_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Permute axes, including the axis of time."""
    rank = len(static_shape(call))
    order = list(range(rank))[::-1] if call.attrs.axes is None else [int(one) % rank for one in call.attrs.axes]
    axis = order.index(known.axes[call.args[0]])
    rows = static_shape(call)[axis]
    return Rule(operands=(0,), axis=axis, rows=rows, slide=Slide(), make=same_call(call), is_view=True)


def reshaped_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Reshape without splitting or merging the axis of time: the number of elements ahead of it stays the same."""
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
    """Multiply by a constant weight matrix, where the product does not add up over time."""
    data, weights = call.args
    if data not in known.axes or not known.is_constant(weights) or len(static_shape(weights)) != 2:
        return Unruly(reason="is a product of values that the model computes")
    if known.axes[data] == len(static_shape(data)) - 1:
        return Unruly(reason="is summed over time")
    axis = known.axes[data]
    return Rule(operands=(0,), axis=axis, rows=static_shape(call)[axis], slide=Slide(), make=same_call(call))


def concatenated_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Concatenate values over time along another axis."""
    fields = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
    rank = len(static_shape(call))
    along = int(call.attrs.axis or 0) % rank
    own = {known.axes.get(field) for field in fields}
    if len(own) != 1 or None in own:
        return Unruly(reason="joins what is over time with what is not")
    (axis,) = own
    if axis is None or axis == along:
        return Unruly(reason="concatenates values in time")

    def make(arguments: Sequence[relax.Expr], _slide: Slide, _padding: tuple[int, int]) -> relax.Expr:
        return relax.op.concat(list(arguments), along)

    operands = tuple(range(len(fields)))
    return Rule(operands=operands, axis=axis, rows=static_shape(call)[axis], slide=Slide(), make=make)


def cut_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Slice with constant bounds: a delay along time, and the same slice for each row along other axes."""
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
    """Return the numbers of a tuple of integers, or None where the model computes them."""
    fields = list(expr.fields) if isinstance(expr, relax.Tuple) else []
    return [int(field) for field in fields] if all(isinstance(field, tvm.tirx.IntImm) for field in fields) else None


def padded_rule(call: relax.Call, known: Known) -> Rule | Unruly:
    """Pad with a constant: extra rows at both ends of the window along time, constant widths along other axes."""
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
    """Slide a window, as a convolution or a pool, along axes that include time."""
    data, attrs = call.args[0], call.attrs
    layout = str(getattr(attrs, "data_layout", None) or attrs.layout)
    places = [layout.index(letter) for letter in "DHW" if letter in layout]
    axis = known.axes[data]
    if axis not in places:
        return Unruly(reason="sums over time and channels together")
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

    is_sum = not hasattr(attrs, "pool_size") or bool(getattr(attrs, "count_include_pad", False))
    return Rule(
        operands=(0,), axis=axis, rows=static_shape(call)[axis], slide=slide, make=make,
        pads_with=0.0 if is_sum and "max_pool" not in (op_name(call) or "") else None,
    )  # fmt: skip


def _both_sides(padding: list[int], count: int) -> list[int]:
    """Return the widths ahead of all axes, then the widths after all axes."""
    return padding if len(padding) == 2 * count else padding * 2 if len(padding) == count else padding * (2 * count)


def _kernel(call: relax.Call, layout: str, count: int) -> list[int]:
    if hasattr(call.attrs, "pool_size"):
        return [int(one) for one in call.attrs.pool_size]
    order = str(call.attrs.kernel_layout)
    shape = static_shape(call.args[1])
    return [shape[order.index(letter)] for letter in "DHW" if letter in order]


def _slid(call: relax.Call, data: relax.Expr, changed: dict[str, list[int]]) -> relax.Expr:
    """Return the same convolution or pool on other rows."""
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


_UNARY = frozenset(
    "nn.relu nn.relu6 nn.leakyrelu nn.gelu nn.gelu_tanh nn.silu nn.selu clip sigmoid tanh exp log sqrt rsqrt negative "
    "abs square erf floor ceil round sign sin cos astype quantize dequantize nn.prelu".split()
)
_VIEWS = frozenset(["dequantize", "astype"])
_JOINING = frozenset("add subtract multiply divide power maximum minimum floor_divide mod where".split())
_RULES: Mapping[str, Callable[[Any, Known], Rule | Unruly]] = {
    "nn.softmax": along_channels_rule,
    "nn.log_softmax": along_channels_rule,
    "nn.layer_norm": along_channels_rule,
    "nn.rms_norm": along_channels_rule,
    "mean": reduced_rule,
    "sum": reduced_rule,
    "max": reduced_rule,
    "min": reduced_rule,
    "permute_dims": permuted_rule,
    "reshape": reshaped_rule,
    "expand_dims": reshaped_rule,
    "squeeze": reshaped_rule,
    "strided_slice": cut_rule,
    "nn.pad": padded_rule,
    "matmul": multiplied_rule,
    "concat": concatenated_rule,
    "nn.conv1d": windowed_rule,
    "nn.conv2d": windowed_rule,
    "nn.max_pool1d": windowed_rule,
    "nn.max_pool2d": windowed_rule,
    "nn.avg_pool1d": windowed_rule,
    "nn.avg_pool2d": windowed_rule,
}


def rule_of(call: relax.Expr, known: Known) -> Rule | Unruly:
    """Return the rule of a call that reads a value over time, or the reason why there is no rule."""
    name = (op_name(call) or "").removeprefix("relax.")
    if isinstance(call, relax.TupleGetItem):
        return Unruly(reason="is an element of a tuple")
    if name in _UNARY:
        return same_rows_rule(call, known, is_view=name in _VIEWS)
    if name in _JOINING:
        return joined_rule(call, known)
    found = _RULES.get(name)
    return found(call, known) if found else Unruly(reason=f"has no rule for {name or 'this expression'} over time")
