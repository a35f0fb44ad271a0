"""Operators of TOSA that combine or move elements of a tensor: sums of products, pools, reductions, moves.

They compute integers exactly as the specification says, with loops of their own.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _products(layer: Layer, *, depthwise: bool) -> relax.Expr:
    """Convert CONV2D with weights [K, R, S, C], or DEPTHWISE_CONV2D with weights [R, S, C, M].

    Elements outside of the input are left out of the sum, as if they were its zero point.
    """
    source, weights = static_shape(layer.values[0]), static_shape(layer.values[1])
    pad, stride, dilation = (layer.attribute(name) for name in ("pad", "stride", "dilation"))
    if (len(pad), len(stride), len(dilation)) != (4, 2, 2) or min(*stride, *dilation) < 1 or min(pad) < 0:
        raise Refused("its pads, strides or dilations are not those of a convolution")
    rows, columns = weights[:2] if depthwise else weights[1:3]
    multiplier = weights[3]
    input_zp, weight_zp = layer.zero_point(3), layer.zero_point(4)
    has_one_bias = static_shape(layer.values[2]) == (1,)

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
        axes = [te.reduce_axis((0, extent), name) for extent, name in zip((rows, columns), "rs", strict=True)]
        if not depthwise:
            axes.append(te.reduce_axis((0, source[3]), "c"))

        def product(n: tirx.Var, y: tirx.Var, x: tirx.Var, k: tirx.Var) -> tirx.Expr:
            r, s = axes[0].var, axes[1].var
            row = y * stride[0] + r * dilation[0] - pad[0]
            column = x * stride[1] + s * dilation[1] - pad[2]
            channel = tirx.floordiv(k, multiplier) if depthwise else axes[2].var
            tap = weight(r, s, channel, tirx.floormod(k, multiplier)) if depthwise else weight(k, r, s, channel)
            factors = (
                cast(data(n, row, column, channel), layer.dtype) - tirx.const(input_zp, layer.dtype),
                cast(tap, layer.dtype) - tirx.const(weight_zp, layer.dtype),
            )
            inside = tirx.all(row >= 0, row < source[1], column >= 0, column < source[2])
            zero = tirx.const(0, layer.dtype)
            return te.sum(tirx.if_then_else(inside, factors[0] * factors[1], zero), axes)

        sums = te.compute(layer.shape, product, "sums")
        return te.compute(
            layer.shape,
            lambda n, y, x, k: sums(n, y, x, k) + cast(bias(0 if has_one_bias else k), layer.dtype),
            "biased",
        )

    return layer.call(compute, 0, 1, 2)


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
    end = [first + count for first, count in zip(begin, size, strict=True)]
    if any(a < 0 or b > extent for a, b, extent in zip(begin, end, static_shape(layer.values[0]), strict=True)):
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


def _concat(layer: Layer) -> relax.Expr:
    return relax.op.concat(layer.values, axis=layer.attribute("axis"))


CONVERTERS: dict[str, Convert] = {
    "ARGMAX": _argmax,
    "AVG_POOL2D": _average_pool,
    "CONCAT": _concat,
    "CONV2D": lambda layer: _products(layer, depthwise=False),
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
    "RESHAPE": lambda layer: relax.op.reshape(layer.values[0], layer.shape),
    "REVERSE": lambda layer: relax.op.flip(layer.values[0], layer.attribute("axis")),
    "SLICE": _slice,
    "TILE": lambda layer: relax.op.tile(layer.values[0], layer.numbers(1, "multiples")),
    "TRANSPOSE": lambda layer: relax.op.permute_dims(layer.values[0], list(layer.attribute("perms"))),
}
"""Converters of all other operators, by name."""
