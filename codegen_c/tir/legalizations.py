"""Legalizations that replace TVM's: comparisons, extremes, gathers, scatters, normalizations, safe indices.

Programs detect NaN by `x != x`. LLVM has no product of bools, and C compilers warn of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx, topi
from tvm.ir import Expr, Range, TensorLoad, Var
from tvm.relax.transform.legalize_ops.common import LegalizeFunc
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.sym import Analyzer

_OF_A_NUMBER = {
    "relax.equal": True, "relax.greater_equal": True, "relax.less_equal": True, "relax.not_equal": False,
    "relax.greater": False, "relax.less": False,
}  # fmt: skip
"""Result of each comparison of a number with itself; for NaN only `not_equal` is true."""


def _legalize_comparison(name: str) -> LegalizeFunc:
    """Return a legalization that compares a float with itself by `isnan`; TVM would fold `x == x` to true."""

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        left, right = call.args
        if not left.same_as(right) or not str(left.ty.dtype).startswith("float"):
            return tvm.ir.Op.get(name).get_attr("FLegalize")(bb, call)
        return bb.call_te(_compared(name), left, primfunc_name_hint=name.removeprefix("relax."))

    return legalize


def _compared(name: str) -> Callable[[te.Tensor], te.Tensor]:
    def element(value: tirx.Expr) -> tirx.Expr:
        if name == "relax.not_equal":
            return tirx.isnan(value)
        return tirx.Not(tirx.isnan(value)) if _OF_A_NUMBER[name] else tirx.const(False, "bool")

    return lambda x: te.compute(x.shape, lambda *at: element(x(*at)), "compared", tag="elemwise")


def _logical(name: str, logic: Callable[..., te.Tensor]) -> LegalizeFunc:
    """Return a legalization that computes arithmetic of bools by logic, as numpy does, and other types as TVM does."""

    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if str(call.args[0].ty.dtype) != "bool":
            return tvm.ir.Op.get(name).get_attr("FLegalize")(bb, call)
        return bb.call_te(logic, *call.args, primfunc_name_hint=name.removeprefix("relax."))

    return legalize


COMPARISONS: dict[str, LegalizeFunc] = {
    **{name: _legalize_comparison(name) for name in _OF_A_NUMBER},
    "relax.multiply": _logical("relax.multiply", topi.logical_and),
    "relax.add": _logical("relax.add", topi.logical_or),
}


def arg_extreme(x: te.Tensor, axis: int | None, *, keepdims: bool, is_max: bool, last: bool = False) -> te.Tensor:
    """Return int64 indices of the first or last of equal extremes along `axis` (None: in the flattened tensor)."""
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
    """Return a buffer of one element with an initial value."""
    variable = T.buffer_proxy(IRBuilder.name(name, T.alloc_buffer((1,), dtype)))
    variable[0] = value
    return variable


def _beyond(element: tirx.Expr, best: tirx.Expr, *, is_max: bool, last: bool) -> tirx.Expr:
    if is_max:
        return element >= best if last else element > best
    return element <= best if last else element < best


def _legalize_index(*, is_max: bool) -> LegalizeFunc:
    def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        axis = None if call.attrs.axis is None else int(call.attrs.axis)
        return bb.call_te(arg_extreme, call.args[0], axis, keepdims=bool(call.attrs.keepdims), is_max=is_max)

    return legalize


def _legalize_pool(rank: int) -> LegalizeFunc:
    """Return a legalization that pads with minus infinity instead of the least finite number, as TVM does.

    A window of padding only, or of minus infinities, must not return a finite number.
    """
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


EXTREMES = {
    "relax.argmax": _legalize_index(is_max=True),
    "relax.argmin": _legalize_index(is_max=False),
    **{f"relax.nn.max_pool{rank}d": _legalize_pool(rank) for rank in (1, 2, 3)},
}


def take(data: te.Tensor, indices: te.Tensor, axis: int) -> te.Tensor:
    """Return `data` with the axes of `indices` in place of one axis."""
    along, rank = axis % len(data.shape), len(indices.shape)

    def element(*axes: tirx.Var) -> tirx.Expr:
        return data(*axes[:along], indices(*axes[along : along + rank]), *axes[along + rank :])

    shape = [*data.shape[:along], *indices.shape, *data.shape[along + 1 :]]
    return te.compute(shape, element, "T_take", tag="injective")


def _legalize_take(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    axis, mode = call.attrs.axis, str(call.attrs.mode)
    if axis is None or mode != "fast":
        return bb.call_te(topi.take, *call.args, axis, mode=mode)
    return bb.call_te(take, *call.args, int(axis))


GATHERS: dict[str, LegalizeFunc] = {"relax.take": _legalize_take}
"""Replacement of TVM's legalization, which warns on the terminal of out-of-range reads that cannot happen here."""


REDUCTIONS: dict[str, Callable[[tirx.Expr, tirx.Expr], tirx.Expr]] = {
    "update": lambda _, update: update,
    "add": lambda element, update: element + update,
    "mul": lambda element, update: element * update,
    "min": lambda element, update: tirx.Min(element, update),
    "max": lambda element, update: tirx.Max(element, update),
}
"""Relax's names of reductions, and the element that results from an element and its update."""

Place = Callable[[T.buffer_proxy, Sequence[tirx.Expr]], Sequence[tirx.Expr]]


def scatter_elements(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, reduction: str) -> te.Tensor:
    """Return `data` with `updates` at `indices` along one axis.

    indices have the shape of updates; negative indices count from the end.
    """
    return _scattered_along(data, indices, updates, axis, reduction, _counted)


def scatter_counted_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, reduction: str
) -> te.Tensor:
    """Return the same by indices that all count from 0, as constant indices do after `_from_zero`."""
    return _scattered_along(data, indices, updates, axis, reduction, lambda index, _: index)


def _scattered_along(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, reduction: str,
    count: Callable[[tirx.Expr, int], tirx.Expr],
) -> te.Tensor:  # fmt: skip
    along = axis % len(data.shape)

    def place(places: T.buffer_proxy, axes: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        counted = count(places[tuple(axes)], int(data.shape[along]))
        return [counted if axis == along else var for axis, var in enumerate(axes)]

    return _scattered(data, indices, updates, place, reduction)


def _counted(index: tirx.Expr, extent: int) -> tirx.Expr:
    """Return an index from 0; negative indices count from the end.

    Fast path: one unsigned comparison accepts an index in range.
    """
    dtype = str(index.ty.dtype)
    unsigned = dtype if dtype.startswith("uint") else f"u{dtype}"
    is_inside = tirx.Cast(unsigned, index) < tirx.const(extent, unsigned)
    return tirx.Select(is_inside, index, index + tirx.const(extent, dtype))


def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, reduction: str) -> te.Tensor:
    """Return `data` with slices of `updates` at `indices`, whose last axis holds indices of its first axes."""
    tuples, length = len(indices.shape) - 1, int(indices.shape[-1])

    def place(places: T.buffer_proxy, axes: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        return [*(places[(*axes[:tuples], part)] for part in range(length)), *axes[tuples:]]

    return _scattered(data, indices, updates, place, reduction)


def _scattered(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, place: Place, reduction: str) -> te.Tensor:
    reduce = REDUCTIONS[reduction]

    def loops(source: tirx.Buffer, places: tirx.Buffer, given: tirx.Buffer, result: tirx.Buffer) -> tirx.Stmt:
        elements, kept, update = T.buffer_proxy(result), T.buffer_proxy(source), T.buffer_proxy(given)

        def copy(axes: tuple[tirx.Expr, ...]) -> None:
            elements[axes] = kept[axes]

        def change(axes: tuple[tirx.Expr, ...]) -> None:
            target = tuple(place(T.buffer_proxy(places), axes))
            elements[target] = reduce(elements[target], update[axes])

        return tirx.SeqStmt([_nest(data.shape, copy), _nest(updates.shape, change)])

    return te.extern(
        [data.shape], [data, indices, updates], lambda ins, outs: loops(*ins, *outs),
        dtype=str(data.dtype), name="scatter",
    )  # fmt: skip


def _nest(shape: Sequence[tirx.Expr], body: Callable[[tuple[tirx.Expr, ...]], None]) -> tirx.Stmt:
    """Return nested loops over a shape, the first axis outermost; body takes their counters."""
    with IRBuilder() as builder, ExitStack() as stack:
        body(tuple(stack.enter_context(T.serial(0, int(extent))) for extent in shape))
        stack.close()
        return builder.get()


def _legalize_elements(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    reduction = str(call.attrs.reduction)
    data, indices, updates = call.args
    if reduction not in REDUCTIONS:  # a mean needs a count
        return bb.call_te(topi.scatter_elements, data, indices, updates, int(call.attrs.axis), reduction)
    if isinstance(indices, tvm.ir.GenericConst):
        indices = _from_zero(indices.value.numpy(), int(data.ty.shape.values[int(call.attrs.axis)]))
        return bb.call_te(scatter_counted_elements, data, indices, updates, int(call.attrs.axis), reduction)
    return bb.call_te(scatter_elements, data, indices, updates, int(call.attrs.axis), reduction)


def _from_zero(indices: np.ndarray, extent: int) -> relax.Expr:
    """Return constant indices without negative numbers. TVM would fail to fold the comparison of an index of 0."""
    return relax.const(np.where(indices < 0, indices + indices.dtype.type(extent), indices), str(indices.dtype))


def _legalize_tuples(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return bb.call_te(scatter_nd, *call.args, str(call.attrs.reduction))


SCATTERS: dict[str, LegalizeFunc] = {
    "relax.scatter_elements": _legalize_elements,
    "relax.scatter_nd": _legalize_tuples,
}


_COMPUTED_IN = {"float16": "float32", "bfloat16": "float32"}


def normalized(
    x: te.Tensor, axes: Sequence[int], epsilon: float, weight: te.Tensor, bias: te.Tensor, weight_axes: Sequence[int]
) -> te.Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) * weight + bias, with mean and variance over `axes`.

    16-bit floats are computed in float32. weight, bias: their axes are `weight_axes` of x.
    """
    dtype, rank = str(x.dtype), len(x.shape)
    inside = _COMPUTED_IN.get(dtype, dtype)
    share = te.const(1.0 / math.prod(int(x.shape[axis]) for axis in axes), inside)
    kept = [axis for axis in range(rank) if axis not in axes]

    def element(index: Sequence[tirx.Expr]) -> tirx.Expr:
        return x(*index).astype(inside)

    def summed(term: Callable[[Sequence[tirx.Expr], Sequence[tirx.Expr]], tirx.Expr], name: str) -> te.Tensor:
        """Return the sum over `axes` of a term of (the index in x, the index in the sum)."""
        inner = {axis: te.reduce_axis((0, x.shape[axis]), name=f"k{axis}") for axis in axes}

        def total(*outer: tirx.Var) -> tirx.Expr:
            place = dict(zip(kept, outer, strict=True))
            return te.sum(term([inner.get(axis, place.get(axis)) for axis in range(rank)], outer), list(inner.values()))

        return te.compute([x.shape[axis] for axis in kept], total, name=name)

    sums = summed(lambda at, _: element(at), "sums")

    def square(at: Sequence[tirx.Expr], outer: Sequence[tirx.Expr]) -> tirx.Expr:
        distance = element(at) - sums(*outer) * share
        return distance * distance

    squares = summed(square, "squares")

    def result(*at: tirx.Var) -> tirx.Expr:
        outer, own = [at[axis] for axis in kept], [at[axis] for axis in weight_axes]
        scale = tirx.rsqrt(squares(*outer) * share + te.const(epsilon, inside))
        scaled = (element(at) - sums(*outer) * share) * scale
        return (scaled * weight(*own).astype(inside) + bias(*own).astype(inside)).astype(dtype)

    return te.compute(x.shape, result, name="normalized")


def layer_norm(x: te.Tensor, weight: te.Tensor, bias: te.Tensor, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """Return the normalization over the axes of weight and bias."""
    axes = [axis % len(x.shape) for axis in axes]
    return normalized(x, axes, epsilon, weight, bias, axes)


def instance_norm(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor, channel_axis: int, axes: Sequence[int], epsilon: float
) -> te.Tensor:
    """Return the normalization of each channel over other axes."""
    rank = len(x.shape)
    return normalized(x, [axis % rank for axis in axes], epsilon, weight, bias, [channel_axis % rank])


def group_norm(
    x: te.Tensor, weight: te.Tensor, bias: te.Tensor, num_groups: int, channel_axis: int, axes: Sequence[int],
    epsilon: float,
) -> te.Tensor:  # fmt: skip
    """Return the normalization of groups of channels over the channels of a group and other axes."""
    shape = [int(extent) for extent in x.shape]
    channels_at = channel_axis % len(shape)
    parts = [num_groups, shape[channels_at] // num_groups]
    grouped = topi.reshape(x, [*shape[:channels_at], *parts, *shape[channels_at + 1 :]])
    others = {axis % len(shape) for axis in axes} - {channels_at}
    over = sorted([channels_at + 1, *(axis + (axis > channels_at) for axis in others)])
    weights = [topi.reshape(weight, parts), topi.reshape(bias, parts)]
    whole = normalized(grouped, over, epsilon, *weights, [channels_at, channels_at + 1])
    return topi.reshape(whole, shape)


def _legalize_layer(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    axes = [int(axis) for axis in call.attrs.axes]
    return bb.call_te(layer_norm, *call.args, axes, float(call.attrs.epsilon), primfunc_name_hint="layer_norm")


def _legalize_instance(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    axes, channel_axis = [int(axis) for axis in call.attrs.axes], int(call.attrs.channel_axis)
    return bb.call_te(
        instance_norm, *call.args, channel_axis, axes, float(call.attrs.epsilon), primfunc_name_hint="instance_norm"
    )


def _legalize_group(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    attrs = call.attrs
    return bb.call_te(
        group_norm, *call.args, int(attrs.num_groups), int(attrs.channel_axis), [int(axis) for axis in attrs.axes],
        float(attrs.epsilon), primfunc_name_hint="group_norm",
    )  # fmt: skip


NORMALIZATIONS: dict[str, LegalizeFunc] = {
    "relax.nn.layer_norm": _legalize_layer,
    "relax.nn.instance_norm": _legalize_instance,
    "relax.nn.group_norm": _legalize_group,
}
"""Legalizations that replace TVM's."""


_REDUCTION = 2


def with_true_starts(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with `true_start` applied to all blocks of its PrimFuncs."""
    result = mod.clone()
    for var, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            body = tvm_ffi.structural_map(function.body, [(s_tir.SBlock, _started)])
            result.update_func(var, function.with_body(body))
    return result


def true_start(block: s_tir.SBlock) -> tirx.Stmt | None:
    """Start an extreme of floats with its first element: a NaN there stays, a later NaN is skipped, as in onnxruntime.

    TVM starts with the least finite float, which is greater than minus infinity.
    """
    init, body = block.init, block.body
    if not isinstance(init, tirx.BufferStore) or not isinstance(init.value, tirx.FloatImm):
        return init
    if not isinstance(body, tirx.BufferStore) or not isinstance(body.value, tirx.Max | tirx.Min):
        return init
    worst = tirx.min_value if isinstance(body.value, tirx.Max) else tirx.max_value
    if float(init.value.value) != float(worst(str(init.value.ty.dtype)).value) and math.isfinite(init.value.value):
        return init
    first = {axis.var: axis.dom.min for axis in block.iter_vars if axis.iter_type == _REDUCTION}
    element = tvm_ffi.structural_map(body.value.b, [(Var, lambda var: first.get(var, var))])
    return tirx.BufferStore(init.buffer, element, init.indices)


def _started(block: s_tir.SBlock) -> s_tir.SBlock:
    return s_tir.SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, block.body, true_start(block),
        block.alloc_buffers, block.match_buffers, block.annotations,
    )  # fmt: skip


def with_indices_inside(body: tirx.Stmt, inputs: Mapping[tirx.Buffer, np.ndarray | None]) -> tirx.Stmt:
    """Return the statement with all accesses inside their buffers, whatever integers `inputs` hold.

    inputs: values of each input; None if they are not known at compile time.
    """
    indices = _Indices(body, inputs)
    return tvm_ffi.structural_map(body, [(TensorLoad, indices.load), (tirx.BufferStore, indices.store)])


class _Indices:
    """Rewriter of indices.

    given: buffers and variables whose values come from inputs, computed or copied; a comparison with such a value only
    chooses between branches, so its result does not count.
    """

    def __init__(self, body: tirx.Stmt, inputs: Mapping[tirx.Buffer, np.ndarray | None]) -> None:
        self.inputs = inputs
        self.analyzer = Analyzer()
        self.given: set[Var] = set(inputs)
        tvm_ffi.structural_walk(
            body,
            [
                (tirx.For, self._counted),
                (s_tir.SBlock, self._mapped),
                (tirx.Bind, lambda bind: self._taken(bind.var, bind.value)),
                (tirx.BufferStore, lambda store: self._taken(store.buffer, store.value)),
            ],
        )

    def load(self, expr: TensorLoad) -> Expr:
        axes = list(zip(expr.indices, map(int, expr.source.ty.shape), strict=True))
        if not any(self._is_wild(index, extent) for index, extent in axes):
            return expr
        return tirx.BufferLoad(expr.source, [self._nearest(index, extent) for index, extent in axes])

    def store(self, store: tirx.BufferStore) -> tirx.Stmt:
        axes = zip(store.indices, map(int, store.buffer.ty.shape), strict=True)
        wild = [(index, extent) for index, extent in axes if self._is_wild(index, extent)]
        conditions = [side for index, extent in wild for side in (index >= 0, index < _like(index, extent))]
        return tirx.IfThenElse(tirx.all(*conditions), store, None) if wild else store

    def _nearest(self, index: Expr, extent: int) -> Expr:
        if not self._is_wild(index, extent):
            return index
        return tirx.max(tirx.min(index, _like(index, extent - 1)), _like(index, 0))

    def _is_wild(self, index: Expr, extent: int) -> bool:
        if not self._depends(index) or self._is_known_inside(index, extent):
            return False
        bound = self.analyzer.const_int_bound(index)
        return not (bound.min_value >= 0 and bound.max_value < extent)

    def _depends(self, expr: Expr) -> bool:
        if isinstance(expr, tirx.Select):
            return self._depends(expr.true_value) or self._depends(expr.false_value)
        if str(expr.ty.dtype) == "bool":
            return False
        found: list[bool] = []
        tvm_ffi.structural_walk(expr, [(Var, lambda var: found.append(var in self.given))])
        return any(found)

    def _is_known_inside(self, index: Expr, extent: int) -> bool:
        """Return True for an element of a constant whose elements are all in range."""
        while isinstance(index, tirx.Cast):
            index = index.value
        values = self.inputs.get(index.source) if isinstance(index, TensorLoad) else None
        return values is not None and bool(values.size and values.min() >= 0 and values.max() < extent)

    def _counted(self, loop: tirx.For) -> None:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))

    def _mapped(self, block: s_tir.SBlock) -> None:
        for axis in block.iter_vars:
            self.analyzer.bind(axis.var, axis.dom)

    def _taken(self, into: Var, value: Expr) -> None:
        if self._depends(value):
            self.given.add(into)


def _like(index: Expr, number: int) -> Expr:
    return tirx.const(number, index.ty.dtype)
