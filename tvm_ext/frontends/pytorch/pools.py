"""Pools as PyTorch computes them: rounded-up sizes, counted padding, divisors, adaptive pools, reductions of axes.

Sources: aten/src/ATen/native/cpu/AvgPoolKernel.cpp and aten/src/ATen/native/AdaptivePooling.h of PyTorch. Where Relax's
own pools give the same result, they are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.pytorch.operators import arguments_of
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.windows import Windows, averaged, count_of_windows, largest_of, places_of_largest

Converter = Callable[[Any, Any], relax.Expr]

_ADAPTIVE = {1: relax.op.nn.adaptive_avg_pool1d, 2: relax.op.nn.adaptive_avg_pool2d, 3: relax.op.nn.adaptive_avg_pool3d}

_POOLS = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}


def _average(rank: int) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert the averages of windows over the last `rank` axes."""
        given, emit = arguments_of(node), importer.block_builder.emit
        x = importer.env[given["self"]]
        if not str(x.ty.dtype).startswith("float"):
            raise Refused(f"avg_pool{rank}d of {x.ty.dtype}")
        shape = static_shape(x)
        batched = x if len(shape) == rank + 2 else emit(relax.op.expand_dims(x, 0))
        kernel = _each(given["kernel_size"], rank)
        how = _windows(shape[-rank:], kernel, given)
        divisor, counts_padding = given.get("divisor_override"), bool(given.get("count_include_pad", True))
        if divisor is None and not (counts_padding and given.get("ceil_mode") and any(how.begins)):
            result = emit(
                _POOLS[rank](
                    batched, list(kernel), list(how.strides), [*how.begins, *how.begins],
                    ceil_mode=bool(given.get("ceil_mode", False)),
                    count_include_pad=counts_padding and any(how.begins),
                )
            )  # fmt: skip
        else:

            def compute(source: te.Tensor) -> te.Tensor:
                extents = static_shape(batched)
                return averaged(source, extents, how, counts_padding=counts_padding, divisor=divisor)

            result = importer.block_builder.emit_te(compute, batched, primfunc_name_hint="average_pool")
        return result if batched is x else emit(relax.op.squeeze(result, [0]))

    return convert


def _maximum(rank: int) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert the maxima of windows over the last `rank` axes, with their flat indices where a node reads these."""
        given, builder = arguments_of(node), importer.block_builder
        if not any(user.args[1] == 1 for user in node.users):
            return importer.create_convert_map()[node.target.__name__](node)
        x = importer.env[given["self"]]
        shape = static_shape(x)
        how = _windows(shape[-rank:], _each(given["kernel_size"], rank), given)
        strides = [0] * (len(shape) - rank) + [math.prod(shape[axis + 1 :]) for axis in range(-rank, -1)] + [1]
        largest = builder.emit_te(lambda source: largest_of(source, shape, how), x, primfunc_name_hint="max_pool")
        indices = builder.emit_te(
            lambda source, found: places_of_largest(source, found, shape, how, strides),
            x, largest, primfunc_name_hint="max_pool_indices",
        )  # fmt: skip
        return builder.emit(relax.Tuple([largest, indices]))

    return convert


def _windows(extents: Sequence[int], kernel: Sequence[int], given: dict[str, Any]) -> Windows:
    """Return the windows that a call of avg_pool or max_pool describes."""
    strides = _each(given.get("stride") or kernel, len(kernel))
    pads = _each(given.get("padding", 0), len(kernel))
    dilations = _each(given.get("dilation", 1), len(kernel))
    output = [
        count_of_windows(e, (k - 1) * d + 1, s, (p, p), rounds_up=bool(given.get("ceil_mode", False)))
        for e, k, d, s, p in zip(extents, kernel, dilations, strides, pads, strict=True)
    ]
    return Windows(
        kernel=tuple(kernel), strides=strides, dilations=dilations, begins=pads, ends=pads,
        output=tuple(output),
    )  # fmt: skip


def _each(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Return one number for each axis."""
    numbers = tuple(value) if isinstance(value, list | tuple) else (value,)
    return numbers * rank if len(numbers) == 1 else numbers


def _adaptive_average(rank: int) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert the averages of a requested number of windows over the last `rank` axes."""
        given, emit = arguments_of(node), importer.block_builder.emit
        x = importer.env[given["self"]]
        batched = x if x.ty.ndim == rank + 2 else emit(relax.op.expand_dims(x, 0))
        result = emit(_ADAPTIVE[rank](batched, list(_each(given["output_size"], rank))))
        return result if batched is x else emit(relax.op.squeeze(result, [0]))

    return convert


def _adaptive_maximum(rank: int) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert the maxima of a requested number of windows, with their flat indices."""
        given, builder = arguments_of(node), importer.block_builder
        x = importer.env[given["self"]]
        if not str(x.ty.dtype).startswith("float"):
            raise Refused(f"adaptive_max_pool{rank}d of {x.ty.dtype}")
        shape, output = static_shape(x), _each(given["output_size"], rank)
        largest = builder.emit_te(
            lambda source: _adaptive_largest(source, shape, output), x, primfunc_name_hint="adaptive_max_pool"
        )
        indices = builder.emit_te(
            lambda source, found: _adaptive_indices(source, found, shape, output),
            x, largest, primfunc_name_hint="adaptive_max_pool_indices",
        )  # fmt: skip
        return builder.emit(relax.Tuple([largest, indices]))

    return convert


def _adaptive_largest(source: te.Tensor, shape: Sequence[int], output: Sequence[int]) -> te.Tensor:
    least = tirx.const(-math.inf, str(source.dtype))
    return _adaptive(shape, output, lambda at, place, inside: tirx.if_then_else(inside, source(*place), least), te.max)


def _adaptive_indices(source: te.Tensor, largest: te.Tensor, shape: Sequence[int], output: Sequence[int]) -> te.Tensor:
    """Return the index of the first maximum of each window within its image."""
    rank, beyond = len(output), tirx.max_value("int64")
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape) - rank, len(shape))]

    def element(at: list[tirx.Expr], place: list[tirx.Expr], inside: tirx.Expr) -> tirx.Expr:
        flat = sum(tirx.Cast("int64", i) * stride for i, stride in zip(place[-rank:], strides, strict=True))
        value, most = source(*place), largest(*at)
        equal = tirx.Or(value == most, tirx.And(tirx.isnan(value), tirx.isnan(most)))
        return tirx.if_then_else(tirx.if_then_else(inside, equal, tirx.const(False, "bool")), flat, beyond)

    return _adaptive(shape, output, element, te.min)


def _adaptive(
    shape: Sequence[int], output: Sequence[int],
    element: Callable[[list[tirx.Expr], list[tirx.Expr], tirx.Expr], tirx.Expr], reduce: Callable[..., tirx.Expr],
) -> te.Tensor:  # fmt: skip
    """Return a reduction for each window. Window i of n over e elements covers i * e / n to (i + 1) * e / n.

    element: called with the output index, the input index, and whether the input belongs to the window.
    """
    lead = len(shape) - len(output)
    longest = [
        max(-(-(i + 1) * e // n) - i * e // n for i in range(n)) for e, n in zip(shape[lead:], output, strict=True)
    ]
    taps = [te.reduce_axis((0, extent), f"k{axis}") for axis, extent in enumerate(longest)]

    def compute(*at: tirx.Var) -> tirx.Expr:
        place, inside = [], []
        for i, tap, e, n in zip(at[lead:], taps, shape[lead:], output, strict=True):
            place.append(tirx.floordiv(i * e, n) + tap)
            inside.append(place[-1] < tirx.floordiv((i + 1) * e + n - 1, n))
        return reduce(element(list(at), [*at[:lead], *place], tirx.all(*inside)), axis=taps)

    return te.compute([*shape[:lead], *output], compute, "adaptive_pool")


def _over_axes(reduce: Callable[..., relax.Expr]) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert a reduction over the axes that the node names, or over all axes."""
        given = arguments_of(node)
        x, axes = importer.env[given["self"]], list(given.get("dim") or ()) or None
        return importer.block_builder.emit(reduce(x, axes, bool(given.get("keepdim", False))))

    return convert


CONVERTERS: dict[str, Converter] = {
    **{f"avg_pool{rank}d.default": _average(rank) for rank in _POOLS},
    **{
        f"{name}{rank}d.default": _adaptive_average(rank)
        for rank in _ADAPTIVE
        for name in ("adaptive_avg_pool", "_adaptive_avg_pool")
    },
    "amin.default": _over_axes(relax.op.min),
    "amax.default": _over_axes(relax.op.max),
    **{f"max_pool{rank}d_with_indices.default": _maximum(rank) for rank in (2, 3)},
    **{f"adaptive_max_pool{rank}d.default": _adaptive_maximum(rank) for rank in _ADAPTIVE},
}
"""Converters for TVM's importer, by operator. Each raises Refused for element types that it cannot average."""
