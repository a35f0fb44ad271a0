"""Operators of TOSA that combine or move elements of a tensor: sums of products, pools, reductions, moves.

They compute integers exactly as the specification says, with loops of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tosa.elements import Elements, cast, clipped, limits_of, number_array, single_number, wide
from tvm_ext.frontends.tosa.read_file import TosaNode


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """An operator with the values of its inputs.

    shape: of the result. type_name, dtype: element type of the result, in TOSA and in C.
    """

    node: TosaNode
    values: tuple[relax.Expr, ...]
    types: tuple[str, ...]
    shape: tuple[int, ...]
    type_name: str
    dtype: str
    builder: relax.BlockBuilder

    def attribute(self, name: str) -> Any:
        return self.node.attributes[name]

    def operand(self, place: int) -> Elements:
        return Elements.of(self.values[place], self.types[place])

    def numbers(self, place: int, what: str) -> list[int]:
        return [int(number) for number in number_array(self.operand(place), what).reshape(-1)]

    def zero_point(self, place: int) -> int:
        return single_number(self.operand(place), "zero points")

    def call(self, compute: Callable[..., te.Tensor], *places: int) -> relax.Expr:
        values = [self.values[place] for place in places]
        return self.builder.call_te(compute, *values, primfunc_name_hint=self.node.operator.lower())


Convert = Callable[[Layer], relax.Expr]


def _products(layer: Layer, *, depthwise: bool = False) -> relax.Expr:
    """Convert CONV2D with weights [K, R, S, C], CONV3D with [K, D, R, S, C], DEPTHWISE_CONV2D with [R, S, C, M].

    Elements outside of the input are left out of the sum, as if they were its zero point.
    """
    source, weights = static_shape(layer.values[0]), static_shape(layer.values[1])
    pad, stride, dilation = (layer.attribute(name) for name in ("pad", "stride", "dilation"))
    rank = len(source) - 2
    if (len(pad), len(stride), len(dilation)) != (2 * rank, rank, rank) or min(*stride, *dilation) < 1 or min(pad) < 0:
        raise Refused("its pads, strides or dilations are not those of a convolution")
    kernel = weights[:rank] if depthwise else weights[1:-1]
    multiplier = weights[-1]
    factors = _Factors.of(layer)

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
        axes = [te.reduce_axis((0, extent), f"r{place}") for place, extent in enumerate(kernel)]
        depth = [] if depthwise else [te.reduce_axis((0, source[-1]), "c")]

        def product(n: tirx.Var, *inner: tirx.Var) -> tirx.Expr:
            *places, k = inner
            taps = [axis.var for axis in axes]
            at = [
                place * step + tap * apart - before
                for place, step, tap, apart, before in zip(places, stride, taps, dilation, pad[::2], strict=True)
            ]
            channel = tirx.floordiv(k, multiplier) if depthwise else depth[0].var
            factor = weight(*taps, channel, tirx.floormod(k, multiplier)) if depthwise else weight(k, *taps, channel)
            inside = [
                test for place, extent in zip(at, source[1:-1], strict=True) for test in (place >= 0, place < extent)
            ]
            return te.sum(factors.inside(inside, data(n, *at, channel), factor), [*axes, *depth])

        return factors.biased(te.compute(layer.shape, product, "sums"), bias)

    return layer.call(compute, 0, 1, 2)


def _transposed(layer: Layer) -> relax.Expr:
    """Convert TRANSPOSE_CONV2D with weights [K, R, S, C]: each input element is spread over a window of the output."""
    source, weights = static_shape(layer.values[0]), static_shape(layer.values[1])
    pad, stride = layer.attribute("out_pad"), layer.attribute("stride")
    if (len(pad), len(stride)) != (4, 2) or min(stride) < 1:
        raise Refused("its pads or strides are not those of a transposed convolution")
    factors = _Factors.of(layer)

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
        axes = [te.reduce_axis((0, extent), name) for extent, name in zip(weights[1:], "rsc", strict=True)]

        def product(n: tirx.Var, y: tirx.Var, x: tirx.Var, k: tirx.Var) -> tirx.Expr:
            spread = [y - axes[0].var - pad[0], x - axes[1].var - pad[2]]
            at = [tirx.floordiv(place, step) for place, step in zip(spread, stride, strict=True)]
            inside = [
                test
                for place, step, index, extent in zip(spread, stride, at, source[1:3], strict=True)
                for test in (tirx.EQ(tirx.floormod(place, step), 0), index >= 0, index < extent)
            ]
            tap = weight(k, *(axis.var for axis in axes))
            return te.sum(factors.inside(inside, data(n, *at, axes[2].var), tap), axes)

        return factors.biased(te.compute(layer.shape, product, "sums"), bias)

    return layer.call(compute, 0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class _Factors:
    """The zero points of a convolution's input and weights, and the element type of its sums."""

    input_zp: int
    weight_zp: int
    dtype: str
    has_one_bias: bool

    @classmethod
    def of(cls, layer: Layer) -> _Factors:
        is_single = static_shape(layer.values[2]) == (1,)
        zero_points = layer.zero_point(3), layer.zero_point(4)
        return cls(input_zp=zero_points[0], weight_zp=zero_points[1], dtype=layer.dtype, has_one_bias=is_single)

    def inside(self, tests: Sequence[tirx.Expr], element: tirx.Expr, weight: tirx.Expr) -> tirx.Expr:
        """Return the product of an element and a weight if all tests hold, else zero."""
        first = cast(element, self.dtype) - tirx.const(self.input_zp, self.dtype)
        second = cast(weight, self.dtype) - tirx.const(self.weight_zp, self.dtype)
        return tirx.if_then_else(tirx.all(*tests), first * second, tirx.const(0, self.dtype))

    def biased(self, sums: te.Tensor, bias: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            return sums(*at) + cast(bias(0 if self.has_one_bias else at[-1]), self.dtype)

        return te.compute(sums.shape, element, "biased")


def _matmul(layer: Layer) -> relax.Expr:
    depth, zero_points = static_shape(layer.values[0])[2], (layer.zero_point(2), layer.zero_point(3))

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        axis = te.reduce_axis((0, depth), "c")

        def product(n: tirx.Var, h: tirx.Var, w: tirx.Var) -> tirx.Expr:
            first = cast(a(n, h, axis.var), layer.dtype) - tirx.const(zero_points[0], layer.dtype)
            second = cast(b(n, axis.var, w), layer.dtype) - tirx.const(zero_points[1], layer.dtype)
            return te.sum(first * second, axis)

        return te.compute(layer.shape, product, "product")

    return layer.call(compute, 0, 1)


def _windows(layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    kernel, stride, pad = (layer.attribute(name) for name in ("kernel", "stride", "pad"))
    if (len(kernel), len(stride), len(pad)) != (2, 2, 4) or min(*kernel, *stride) < 1 or min(pad) < 0:
        raise Refused("its kernel, strides or pads are not those of a pool")
    return kernel, stride, pad


def _max_pool(layer: Layer) -> relax.Expr:
    kernel, stride, pad = _windows(layer)
    source, least = static_shape(layer.values[0]), int(np.iinfo(layer.dtype).min)

    def compute(data: te.Tensor) -> te.Tensor:
        axes = [te.reduce_axis((0, extent), name) for extent, name in zip(kernel, "rs", strict=True)]

        def element(n: tirx.Var, y: tirx.Var, x: tirx.Var, c: tirx.Var) -> tirx.Expr:
            row, column = y * stride[0] + axes[0].var - pad[0], x * stride[1] + axes[1].var - pad[2]
            inside = tirx.all(row >= 0, row < source[1], column >= 0, column < source[2])
            value = tirx.if_then_else(inside, data(n, row, column, c), tirx.const(least, layer.dtype))
            return te.max(value, axes)

        return te.compute(layer.shape, element, "largest")

    return layer.call(compute, 0)


def reciprocal(count: int) -> tuple[int, int]:
    """Return the multiplier and the shift by which AVG_POOL2D divides a sum of `count` elements."""
    bits = (count - 1).bit_length()
    return ((1 << 30) + 1 << bits) // count, 30 + bits


def _average_pool(layer: Layer) -> relax.Expr:
    """Convert AVG_POOL2D, which divides by the number of elements of a window that lie inside the input."""
    kernel, stride, pad = _windows(layer)
    source, (input_zp, output_zp) = static_shape(layer.values[0]), (layer.zero_point(1), layer.zero_point(2))
    counts = [
        [
            min(at * stride[axis] - pad[2 * axis] + kernel[axis], source[axis + 1])
            - max(at * stride[axis] - pad[2 * axis], 0)
            for at in range(layer.shape[axis + 1])
        ]
        for axis in (0, 1)
    ]
    if min(min(axis, default=1) for axis in counts) < 1:
        raise Refused("a window lies outside of its input")
    pairs = [[reciprocal(row * column) for column in counts[1]] for row in counts[0]]
    multipliers, shifts = (
        constant(np.array([[pair[part] for pair in row] for row in pairs], np.int32)) for part in (0, 1)
    )

    def compute(data: te.Tensor, multiplier: te.Tensor, shift: te.Tensor) -> te.Tensor:
        axes = [te.reduce_axis((0, extent), name) for extent, name in zip(kernel, "rs", strict=True)]

        def element(n: tirx.Var, y: tirx.Var, x: tirx.Var, c: tirx.Var) -> tirx.Expr:
            row, column = y * stride[0] + axes[0].var - pad[0], x * stride[1] + axes[1].var - pad[2]
            inside = tirx.all(row >= 0, row < source[1], column >= 0, column < source[2])
            steps = cast(data(n, row, column, c), "int32") - tirx.const(input_zp, "int32")
            return te.sum(tirx.if_then_else(inside, steps, tirx.const(0, "int32")), axes)

        def finished(n: tirx.Var, y: tirx.Var, x: tirx.Var, c: tirx.Var) -> tirx.Expr:
            by = wide(shift(y, x))
            scaled = (wide(sums(n, y, x, c)) * wide(multiplier(y, x)) + (wide(1) << (by - wide(1)))) >> by
            return cast(clipped(scaled + wide(output_zp), *limits_of(layer.type_name)), layer.dtype)

        sums = te.compute(layer.shape, element, "sums")
        return te.compute(layer.shape, finished, "average")

    values = (layer.values[0], multipliers, shifts)
    return layer.builder.call_te(compute, *values, primfunc_name_hint="avg_pool2d")


def _pad(layer: Layer) -> relax.Expr:
    """Convert PAD, whose pads are (before, after) for each axis, with the constant of its last input."""
    pads, source = layer.numbers(1, "pads"), static_shape(layer.values[0])
    number = layer.operand(2).constant
    if number is None or number.size != 1 or len(pads) != 2 * len(source) or min(pads, default=0) < 0:
        raise Refused("its pads or its constant depend on data or do not fit its input")
    filler = tirx.const(number.reshape(-1)[0].item(), layer.dtype)

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            own = [index - pads[2 * axis] for axis, index in enumerate(at)]
            bounds = [test for index, extent in zip(own, source, strict=True) for test in (index >= 0, index < extent)]
            return tirx.if_then_else(tirx.all(*bounds), data(*own), filler) if bounds else data()

        return te.compute(layer.shape, element, "padded")

    return layer.call(compute, 0)


def _slice(layer: Layer) -> relax.Expr:
    begin, size = layer.numbers(1, "begin"), layer.numbers(2, "size")
    if not begin:
        return layer.values[0]
    # Converters write -1 for the size of an axis that the model leaves open: all that follows.
    end = [
        extent if count == -1 else first + count
        for first, count, extent in zip(begin, size, static_shape(layer.values[0]), strict=True)
    ]
    if any(not 0 <= a <= b <= extent for a, b, extent in zip(begin, end, static_shape(layer.values[0]), strict=True)):
        raise Refused("it reads outside of its input")
    return relax.op.strided_slice(layer.values[0], list(range(len(begin))), begin, end)


def _reduced(operator: Callable[..., Any]) -> Convert:
    def convert(layer: Layer) -> relax.Expr:
        axis, source = layer.attribute("axis"), static_shape(layer.values[0])
        if not 0 <= axis < len(source):
            raise Refused(f"its axis {axis} is not one of its input")

        def compute(data: te.Tensor) -> te.Tensor:
            inner = te.reduce_axis((0, source[axis]), "k")

            def element(*at: tirx.Var) -> tirx.Expr:
                own = [inner.var if place == axis else index for place, index in enumerate(at)]
                return operator(data(*own), inner)

            return te.compute(layer.shape, element, "reduced")

        return layer.call(compute, 0)

    return convert


def _all_of(value: tirx.Expr, axis: Any) -> tirx.Expr:
    return te.min(cast(value, "int8"), axis)


def _any_of(value: tirx.Expr, axis: Any) -> tirx.Expr:
    return te.max(cast(value, "int8"), axis)


def _booleans(operator: Callable[..., Any]) -> Convert:
    reduced = _reduced(operator)
    return lambda layer: relax.op.astype(layer.builder.emit(reduced(layer)), "bool")


def _argmax(layer: Layer) -> relax.Expr:
    found = layer.builder.emit(relax.op.argmax(layer.values[0], layer.attribute("axis")))
    return relax.op.astype(found, "int32")


def _gather(layer: Layer) -> relax.Expr:
    """Convert GATHER of rows: values [N, K, C] and indices [N, W]. An index out of range reads the nearest row."""
    rows = static_shape(layer.values[0])[1]

    def compute(values: te.Tensor, indices: te.Tensor) -> te.Tensor:
        def element(n: tirx.Var, w: tirx.Var, c: tirx.Var) -> tirx.Expr:
            index = tirx.max(tirx.min(indices(n, w), tirx.const(rows - 1, "int32")), tirx.const(0, "int32"))
            return values(n, index, c)

        return te.compute(layer.shape, element, "gathered")

    return layer.call(compute, 0, 1)


def _scatter(layer: Layer) -> relax.Expr:
    """Convert SCATTER: rows of values [N, K, C] are replaced by rows of [N, W, C] at indices [N, W].

    An index out of range replaces no row. Each row looks for the last index that names it, so that no index of a run
    is an address.
    """
    count = static_shape(layer.values[1])[1]

    def compute(values: te.Tensor, indices: te.Tensor, given: te.Tensor) -> te.Tensor:
        axis = te.reduce_axis((0, count), "w")

        def last(n: tirx.Var, k: tirx.Var) -> tirx.Expr:
            found = tirx.EQ(indices(n, axis.var), cast(k, "int32"))
            return te.max(tirx.Select(found, cast(axis.var, "int32"), tirx.const(-1, "int32")), axis)

        chosen = te.compute(layer.shape[:2], last, "chosen")

        def element(n: tirx.Var, k: tirx.Var, c: tirx.Var) -> tirx.Expr:
            row = tirx.max(chosen(n, k), tirx.const(0, "int32"))
            return tirx.if_then_else(chosen(n, k) < tirx.const(0, "int32"), values(n, k, c), given(n, row, c))

        return te.compute(layer.shape, element, "scattered")

    return layer.call(compute, 0, 1, 2)


def _resize(layer: Layer) -> relax.Expr:
    """Convert RESIZE of images. BILINEAR results are sums of four pixels, in units of the product of both scales."""
    scale, offset = layer.numbers(1, "scales"), layer.numbers(2, "offsets")
    source, mode = static_shape(layer.values[0]), layer.attribute("mode")
    if len(scale) != 4 or len(offset) != 2 or min(scale) < 1 or mode not in ("NEAREST", "BILINEAR"):
        raise Refused("its scales, offsets or mode are not those of a resize")
    places = [
        _Places.of(layer.shape[1 + axis], source[1 + axis], *scale[2 * axis :][:2], offset[axis]) for axis in (0, 1)
    ]
    arrays = [constant(array) for place in places for array in (place.first, place.second, place.weight)]

    def nearest(data: te.Tensor, *given: te.Tensor) -> te.Tensor:
        rows, columns = (given[0], given[3])
        return te.compute(layer.shape, lambda n, y, x, c: data(n, rows(y), columns(x), c), "nearest")

    def bilinear(data: te.Tensor, *given: te.Tensor) -> te.Tensor:
        (top, bottom, down), (left, right, across) = given[:3], given[3:]
        unit_y, unit_x = (tirx.const(scale[place], layer.dtype) for place in (0, 2))

        def element(n: tirx.Var, y: tirx.Var, x: tirx.Var, c: tirx.Var) -> tirx.Expr:
            dy, dx = cast(down(y), layer.dtype), cast(across(x), layer.dtype)
            lines = [
                cast(data(n, row, left(x), c), layer.dtype) * (unit_x - dx)
                + cast(data(n, row, right(x), c), layer.dtype) * dx
                for row in (top(y), bottom(y))
            ]
            return lines[0] * (unit_y - dy) + lines[1] * dy

        return te.compute(layer.shape, element, "bilinear")

    if mode == "NEAREST":
        arrays = [constant(place.nearest) for place in places for _ in range(3)]
    values = (layer.values[0], *arrays)
    return layer.builder.call_te(nearest if mode == "NEAREST" else bilinear, *values, primfunc_name_hint="resize")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Places:
    """Two neighbouring pixels along an axis for each element of a result, int32 each, and the weight of the second.

    scale: the sum of both weights.
    """

    first: np.ndarray
    second: np.ndarray
    weight: np.ndarray
    scale: int

    @classmethod
    def of(cls, extent: int, given: int, scale: int, step: int, offset: int) -> _Places:
        at = np.arange(extent, dtype=np.int64) * step + offset
        whole = at // scale
        first, second = (np.clip(whole + after, 0, given - 1).astype(np.int32) for after in (0, 1))
        return cls(first=first, second=second, weight=(at - whole * scale).astype(np.int32), scale=scale)

    @property
    def nearest(self) -> np.ndarray:
        return np.where(2 * self.weight >= self.scale, self.second, self.first)


def _concat(layer: Layer) -> relax.Expr:
    return relax.op.concat(layer.values, axis=layer.attribute("axis"))


CONVERTERS: dict[str, Convert] = {
    "ARGMAX": _argmax,
    "AVG_POOL2D": _average_pool,
    "CONCAT": _concat,
    "CONV2D": _products,
    "CONV3D": _products,
    "DEPTHWISE_CONV2D": lambda layer: _products(layer, depthwise=True),
    "GATHER": _gather,
    "MATMUL": _matmul,
    "MAX_POOL2D": _max_pool,
    "PAD": _pad,
    "REDUCE_ALL": _booleans(_all_of),
    "REDUCE_ANY": _booleans(_any_of),
    "REDUCE_MAX": _reduced(te.max),
    "REDUCE_MIN": _reduced(te.min),
    "REDUCE_SUM": _reduced(te.sum),
    "RESIZE": _resize,
    "RESHAPE": lambda layer: relax.op.reshape(layer.values[0], layer.shape),
    "REVERSE": lambda layer: relax.op.flip(layer.values[0], layer.attribute("axis")),
    "SCATTER": _scatter,
    "SLICE": _slice,
    "TILE": lambda layer: relax.op.tile(layer.values[0], layer.numbers(1, "multiples")),
    "TRANSPOSE": lambda layer: relax.op.permute_dims(layer.values[0], list(layer.attribute("perms"))),
    "TRANSPOSE_CONV2D": _transposed,
}
"""Converters of all other operators, by name."""
