"""Pooling windows over the last axes of a tensor: padding, strides, dilations, rounded-up sizes, sums and averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import te, tirx

from tvm_ext.frontends.refusals import Refused

_MAX_TAPS = 1024


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Windows over the last axes of a tensor, with one entry for each axis.

    begins, ends: padding before and after the axis. output: number of windows.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    output: tuple[int, ...]

    def place(self, at: Sequence[tirx.Expr], tap: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        """Return the input indices of a tap of the window at an output index. They may be outside of the input."""
        each = zip(at, tap, self.strides, self.dilations, self.begins, strict=True)
        return [i * stride + k * dilation - begin for i, k, stride, dilation, begin in each]


def count_of_windows(extent: int, reach: int, stride: int, pads: tuple[int, int], *, rounds_up: bool) -> int:
    """Return the number of windows along an axis, without a window that begins after the input and its left padding.

    reach: elements from the first to the last of a window. pads: before and after the input.
    """
    span, last = extent + sum(pads) - reach, extent + pads[0]
    if not rounds_up:
        return span // stride + 1
    count = -(-span // stride) + 1
    return count - 1 if (count - 1) * stride >= last else count


def reduced(
    shape: Sequence[int], how: Windows, element: Callable[[list[tirx.Expr], list[tirx.Expr], tirx.Expr], tirx.Expr],
    reduce: Callable[..., tirx.Expr],
) -> te.Tensor:  # fmt: skip
    """Return a tensor with one reduction for each window.

    element: function of the output index, the input index, and a condition that the input index is inside.
    """
    num_leading = len(shape) - len(how.kernel)
    taps = [te.reduce_axis((0, extent), f"k{axis}") for axis, extent in enumerate(how.kernel)]

    def compute(*at: tirx.Var) -> tirx.Expr:
        place = how.place(at[num_leading:], taps)
        inside = [tirx.And(i >= 0, i < extent) for i, extent in zip(place, shape[num_leading:], strict=True)]
        return reduce(element(list(at), [*at[:num_leading], *place], tirx.all(*inside)), axis=taps)

    return te.compute([*shape[:num_leading], *how.output], compute, "pool")


def largest_of(source: te.Tensor, shape: Sequence[int], how: Windows) -> te.Tensor:
    """Return the largest element of each window."""
    dtype = str(source.dtype)
    least = tirx.const(-math.inf, dtype) if dtype.startswith("float") else tirx.min_value(dtype)
    return reduced(shape, how, lambda at, place, inside: tirx.if_then_else(inside, source(*place), least), te.max)


def places_of_largest(
    source: te.Tensor, largest: te.Tensor, shape: Sequence[int], how: Windows, strides: Sequence[int]
) -> te.Tensor:
    """Return the flat index of the largest element of each window, the first by rows among equal elements.

    strides: what one step along each axis of the input adds to the index; 0 for axes that do not count.
    """
    beyond = tirx.max_value("int64")

    def element(at: list[tirx.Expr], place: list[tirx.Expr], inside: tirx.Expr) -> tirx.Expr:
        flat = sum(tirx.Cast("int64", i) * stride for i, stride in zip(place, strides, strict=True) if stride)
        value, most = source(*place), largest(*at)
        equal = value == most
        if str(source.dtype).startswith("float"):
            equal = tirx.Or(equal, tirx.And(tirx.isnan(value), tirx.isnan(most)))
        is_largest = tirx.if_then_else(inside, equal, tirx.const(False, "bool"))
        return tirx.if_then_else(is_largest, flat, beyond)

    return reduced(shape, how, element, te.min)


def averaged(
    source: te.Tensor, shape: Sequence[int], how: Windows, *, counts_padding: bool, divisor: int | None = None
) -> te.Tensor:
    """Return the average of each window. Raises Refused for windows that are too long to be written out.

    counts_padding: True if elements of the padding count as zeros, False if only elements of the input count.
    divisor: number that divides each sum instead of the count.
    """
    if max(how.kernel) > _MAX_TAPS:
        raise Refused(f"a window of {max(how.kernel)} elements along an axis; at most {_MAX_TAPS} are written out")
    num_leading, dtype = len(shape) - len(how.kernel), str(source.dtype)
    zero = tirx.const(0, dtype)
    total = reduced(shape, how, lambda at, place, inside: tirx.if_then_else(inside, source(*place), zero), te.sum)

    def mean(*at: tirx.Var) -> tirx.Expr:
        count = tirx.const(divisor or 1, "int32")
        for axis, i in enumerate(at[num_leading:] if divisor is None else ()):
            begin, extent = how.begins[axis], shape[num_leading + axis]
            taps = [i * how.strides[axis] - begin + k * how.dilations[axis] for k in range(how.kernel[axis])]
            low, high = (-begin, extent + how.ends[axis]) if counts_padding else (0, extent)
            inside = [tirx.Cast("int32", tirx.all(tap >= low, tap < high)) for tap in taps]
            count = count * sum(inside[1:], inside[0])
        return total(*at) / tirx.Cast(dtype, count)

    return te.compute(total.shape, mean, "average")
