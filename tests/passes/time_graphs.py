"""Random chains and graphs over time, and their values by numpy.

Inputs and weights are small whole numbers, and averages divide by powers of two: sums are exact in whatever order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import array_of, bindings, op_name, outputs, static_shape
from tests.passes.modules import module_of

Array = np.ndarray
FRAMES, CHANNELS = 24, 4


def random_graph(seed: int) -> tvm.IRModule:
    """main(x[1, 24, 1, 4]) of two to seven operators over time, then one that takes all that is left of it."""
    random = np.random.default_rng(seed)
    x = relax.Var("x", relax.TensorType((1, FRAMES, 1, CHANNELS), "float32"))

    def body(builder: relax.BlockBuilder) -> relax.Expr:
        grown = _Graph(builder=builder, random=random, values=[_Value(var=x, step=1)])
        for _ in range(int(random.integers(2, 8))):
            grown.grow()
        return grown.end()

    return module_of([x], body)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Value:
    """A value over time; step: frames from one row to the next."""

    var: relax.Var
    step: int

    @property
    def rows(self) -> int:
        return static_shape(self.var)[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Graph:
    builder: relax.BlockBuilder
    random: np.random.Generator
    values: list[_Value]

    def grow(self) -> None:
        """One more operator, of the last value and perhaps an earlier one."""
        makers = [self._conv, self._conv, self._depthwise, self._pool, self._pool, self._pad, self._delay, self._relu]
        makers += [self._join, self._join] if len(self.values) > 2 else []
        last = self.values[-1]
        expr, stride = makers[int(self.random.integers(len(makers)))](last)
        if expr is None or static_shape(var := self.builder.emit(expr))[1] < 1:
            return
        self.values.append(_Value(var=var, step=last.step * stride))

    def end(self) -> relax.Expr:
        last = self.values[-1]
        shape = static_shape(last.var)
        if shape[1] > 2 and self.random.integers(2):
            return relax.op.reshape(last.var, [1, int(np.prod(shape))])
        return [relax.op.sum, relax.op.max][int(self.random.integers(2))](last.var, [1])

    def _pick(self, *choices: int) -> int:
        return int(self.random.choice(choices))

    def _weight(self, *shape: int) -> relax.Expr:
        return relax.const(self.random.integers(-2, 3, shape).astype("float32"))

    def _slide(self, rows: int, most_taps: int) -> tuple[int, dict[str, Any]]:
        """Taps, and what a convolution takes, that leave at least one row."""
        taps, dilation = int(self.random.integers(1, most_taps + 1)), self._pick(1, 1, 1, 2, 3)
        reach = (taps - 1) * dilation
        top = int(self.random.integers(0, reach + 1)) if self._pick(0, 0, 1) else 0
        bottom = int(self.random.integers(0, reach + 1)) if top else 0
        if rows + top + bottom <= reach:
            taps, dilation, top, bottom = 1, 1, 0, 0
        stride = self._pick(1, 1, 2) if rows > 6 else 1
        padding = (top, 0, bottom, 0)
        return taps, {"strides": (stride, 1), "dilation": (dilation, 1), "padding": padding}

    def _conv(self, last: _Value) -> tuple[relax.Expr, int]:
        depth, channels = static_shape(last.var)[3], self._pick(2, 3, 4)
        taps, slide = self._slide(last.rows, 4)
        weight = self._weight(channels, taps, 1, depth)
        return (
            relax.op.nn.conv2d(last.var, weight, **slide, data_layout="NHWC", kernel_layout="OHWI"),
            slide["strides"][0],
        )

    def _depthwise(self, last: _Value) -> tuple[relax.Expr, int]:
        channels = static_shape(last.var)[3]
        taps, slide = self._slide(last.rows, 5)
        weight = self._weight(channels, taps, 1, 1)
        return (
            relax.op.nn.conv2d(
                last.var, weight, **slide, groups=channels, data_layout="NHWC", kernel_layout="OHWI"
            ),
            slide["strides"][0],
        )  # fmt: skip

    def _pool(self, last: _Value) -> tuple[relax.Expr, int]:
        taps, slide = self._pick(2, 4), self._slide(last.rows, 2)[1]
        if last.rows < taps:
            return relax.op.nn.relu(last.var), 1
        slide |= {"padding": (self._pick(0, 0, 1), 0, self._pick(0, 1), 0), "dilation": (1, 1)}
        if self._pick(0, 1):
            return relax.op.nn.max_pool2d(last.var, (taps, 1), **slide, layout="NHWC"), slide["strides"][0]
        slide |= {"count_include_pad": True}
        return relax.op.nn.avg_pool2d(last.var, (taps, 1), **slide, layout="NHWC"), slide["strides"][0]

    def _pad(self, last: _Value) -> tuple[relax.Expr, int]:
        return relax.op.nn.pad(last.var, [0, 0, self._pick(0, 1, 2), self._pick(0, 1), 0, 0, 0, 0]), 1

    def _delay(self, last: _Value) -> tuple[relax.Expr, int]:
        if last.rows < 4:
            return relax.op.nn.relu(last.var), 1
        begin = self._pick(0, 1, 2)
        return relax.op.strided_slice(last.var, [1], [begin], [last.rows - self._pick(0, 1)]), 1

    def _relu(self, last: _Value) -> tuple[relax.Expr, int]:
        return relax.op.nn.relu(last.var), 1

    def _join(self, last: _Value) -> tuple[relax.Expr | None, int]:
        """Sum or concatenation with an earlier value of the same rate, both cut to the same rows."""
        others = [value for value in self.values[:-1] if value.step == last.step]
        if not others:
            return None, 1
        other = others[int(self.random.integers(len(others)))]
        rows = min(last.rows, other.rows)
        cut = [self._cut(value, rows) for value in (last, other)]
        if static_shape(cut[0])[3] == static_shape(cut[1])[3] and self._pick(0, 1):
            return relax.op.add(*cut), 1
        return relax.op.concat(cut, 3), 1

    def _cut(self, value: _Value, rows: int) -> relax.Var:
        if value.rows == rows:
            return value.var
        begin = int(self.random.integers(0, value.rows - rows + 1))
        return self.builder.emit(relax.op.strided_slice(value.var, [1], [begin], [begin + rows]))


def values_of(main: relax.Function, inputs: Sequence[Array]) -> list[Array]:
    """Results of a function of such operators."""
    known: dict[relax.Var, Array] = dict(zip(main.params, inputs, strict=True))

    def value(expr: relax.Expr) -> Any:
        if isinstance(expr, relax.Var):
            return known[expr]
        if isinstance(expr, relax.Tuple):
            return [value(field) for field in expr.fields]
        array = array_of(expr)
        return expr if array is None else array

    for binding in bindings(main):
        call = binding.value
        name = (op_name(call) or "").removeprefix("relax.")
        known[binding.var] = _NUMPY[name](call, *(value(arg) for arg in call.args)) if name else value(call)
    return [value(result) for result in outputs(main)]


def _slid(call: relax.Call, data: Array, taps: int, fill: float) -> list[Array]:
    """For each tap, the rows that the windows read there."""
    attrs, low, high = call.attrs, int(call.attrs.padding[0]), int(call.attrs.padding[2])
    wide = np.pad(data, ((0, 0), (low, high), (0, 0), (0, 0)), constant_values=fill)
    stride, dilation = int(attrs.strides[0]), int(attrs.dilation[0])
    rows = (wide.shape[1] - (taps - 1) * dilation - 1) // stride + 1
    return [wide[:, tap * dilation :][:, : (rows - 1) * stride + 1 : stride] for tap in range(taps)]


def _conv2d(call: relax.Call, data: Array, weight: Array) -> Array:
    taps = _slid(call, data, weight.shape[1], 0.0)
    if int(call.attrs.groups) > 1:
        return np.sum([rows * weight[:, tap, 0, 0] for tap, rows in enumerate(taps)], axis=0, dtype=np.float32)
    return np.sum([rows @ weight[:, tap, 0].T for tap, rows in enumerate(taps)], axis=0, dtype=np.float32)


def _max_pool(call: relax.Call, data: Array) -> Array:
    return np.max(_slid(call, data, int(call.attrs.pool_size[0]), -np.inf), axis=0)


def _avg_pool(call: relax.Call, data: Array) -> Array:
    taps = int(call.attrs.pool_size[0])
    return np.sum(_slid(call, data, taps, 0.0), axis=0, dtype=np.float32) / np.float32(taps)


def _slice(_call: relax.Call, data: Array, *bounds: relax.Expr) -> Array:
    axes, begins, ends, *steps = ([int(one) for one in bound] for bound in bounds)
    (steps,) = steps or [[1] * len(axes)]
    places = [slice(None)] * data.ndim
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        places[axis] = slice(begin, end, step)
    return data[tuple(places)]


def _pad(call: relax.Call, data: Array, *_fill: Array) -> Array:
    width = [int(one) for one in call.attrs.pad_width]
    return np.pad(data, list(zip(width[::2], width[1::2], strict=True)))


_NUMPY: Mapping[str, Callable[..., Array]] = {
    "nn.conv2d": _conv2d,
    "nn.max_pool2d": _max_pool,
    "nn.avg_pool2d": _avg_pool,
    "nn.pad": _pad,
    "nn.relu": lambda _call, data: np.maximum(data, np.float32(0)),
    "strided_slice": _slice,
    "add": lambda _call, one, other: one + other,
    "concat": lambda call, fields: np.concatenate(fields, int(call.attrs.axis)),
    "sum": lambda call, data: data.sum(tuple(int(axis) for axis in call.attrs.axis), dtype=np.float32),
    "max": lambda call, data: data.max(tuple(int(axis) for axis in call.attrs.axis)),
    "reshape": lambda call, data, _shape: data.reshape(static_shape(call)),
}
