"""Recognize InstanceNorm and GroupNorm that exporters and importers write out, as single operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    constant,
    infer,
    map_dataflow,
    op_name,
    operands,
    static_shape,
    with_span,
    with_values,
)  # fmt: skip
from relay_passes.patterns import Dataflow, any_value, either, number, op


@tvm.transform.module_pass(opt_level=0, name="RecognizeGroupNorms")
class RecognizeGroupNorms:
    """Find images whose channels, alone or in groups, are divided by their standard deviation over all pixels.

    Rewrite, for x of the axes N, C and pixels:
        y = (x - mean(x)) / sqrt(variance(x) + e) * w + b   ->   y = group_norm(x, w, b, num_groups=C, epsilon=e)
        v = reshape(x, (N, G, -1)); u = the same of v; y = reshape(u, x's shape) * w + b
                                                            ->   y = group_norm(x, w, b, num_groups=G, epsilon=e)
        y = group_norm(x, v, a) * w + b                     ->   y = group_norm(x, v * w, a * w + b)
        w and b may be absent. They are constants with a number for each channel.
    Leaves alone: statistics over other axes, and tensors of types other than float32. Intermediate results that other
    operators read are still computed for them. The pass runs ahead of the quantization only, because floats have no
    kernel for the single operator.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _recognized)


def _is_over_pixels(statistic: relax.Call) -> bool:
    rank = len(static_shape(statistic.args[0]))
    axes = sorted(int(axis) % rank for axis in statistic.attrs.axis or range(rank))
    return axes == list(range(2, rank)) and bool(statistic.attrs.keepdims)


def _is_image(expr: relax.Expr) -> bool:
    return isinstance(expr, relax.Var) and str(expr.ty.dtype) == "float32" and expr.ty.ndim > 2


_SOURCE, _EPSILON = any_value(_is_image), number()
_CENTERED = op("relax.subtract", _SOURCE, op("relax.mean", _SOURCE, where=_is_over_pixels))
_VARIANCE = op("relax.variance", _SOURCE, where=_is_over_pixels)
_ROOT = op("relax.sqrt", op("relax.add", _VARIANCE, _EPSILON, any_order=True))
_INVERSE = op("relax.divide", number(1), _ROOT)
_NORM = either(op("relax.divide", _CENTERED, _ROOT), op("relax.multiply", _CENTERED, _INVERSE, any_order=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Groups:
    """A normalization of groups: float32[C] weights and biases, and the last binding that belongs to it."""

    source: relax.Var
    groups: int
    epsilon: float
    weight: np.ndarray
    bias: np.ndarray
    last: relax.VarBinding

    def call(self) -> relax.Call:
        axes = list(range(2, len(static_shape(self.source))))
        return infer(
            relax.op.nn.group_norm(
                self.source, constant(self.weight), constant(self.bias), num_groups=self.groups, channel_axis=1,
                axes=axes, epsilon=self.epsilon,
            )
        )  # fmt: skip


def _recognized(func: relax.Function) -> relax.Function:
    flow = Dataflow(func)
    replaced: dict[relax.Var, relax.Call] = {}
    for binding in flow.sequence:
        found = _norm(binding, flow)
        if found is not None and (found.last is not binding or op_name(binding.value) != "relax.nn.group_norm"):
            replaced[found.last.var] = with_span(found.call(), binding.value.span)
    return with_values(func, replaced)


def _norm(binding: relax.VarBinding, flow: Dataflow) -> _Groups | None:
    """Return the normalization that begins with a quotient or a group_norm, with all that belongs to it."""
    if op_name(binding.value) == "relax.nn.group_norm":
        return _of_operator(binding, flow)
    match = flow.match(_NORM, binding.var)
    if match is None:
        return None
    source, last = match[_SOURCE], binding
    channels = static_shape(source)[1]
    found = _affine(_Groups(
        source=source, groups=channels, epsilon=match.number(_EPSILON), weight=np.ones(channels, np.float32),
        bias=np.zeros(channels, np.float32), last=last,
    ), flow)  # fmt: skip
    return _regrouped(found, flow) or found


def _of_operator(binding: relax.VarBinding, flow: Dataflow) -> _Groups | None:
    call, arrays = binding.value, [array_of(vector) for vector in binding.value.args[1:]]
    rank = call.ty.ndim
    axes = {int(axis) % rank for axis in call.attrs.axes} - {1}
    is_plain = int(call.attrs.channel_axis) % rank == 1 and axes == set(range(2, rank)) and _is_image(call.args[0])
    if not is_plain or len(arrays) != 2 or any(array is None for array in arrays):
        return None
    weight, bias = (np.asarray(array, np.float32) for array in arrays)
    return _affine(_Groups(
        source=call.args[0], groups=int(call.attrs.num_groups), epsilon=float(call.attrs.epsilon), weight=weight,
        bias=bias, last=binding,
    ), flow)  # fmt: skip


def _affine(found: _Groups, flow: Dataflow) -> _Groups:
    """Return a normalization with the products and sums by constants per channel that follow it, one of each."""
    weight, bias, last = found.weight, found.bias, found.last
    for name in ("relax.multiply", "relax.add"):
        following = flow.sole_reader(last.var)
        array = None if following is None else _per_channel(following, name, len(weight))
        if array is None:
            continue
        weight, bias = (weight * array, bias * array) if name == "relax.multiply" else (weight, bias + array)
        last = following
    return _Groups(
        source=found.source, groups=found.groups, epsilon=found.epsilon, weight=weight, bias=bias, last=last
    )  # fmt: skip


def _regrouped(found: _Groups, flow: Dataflow) -> _Groups | None:
    """Return the normalization of the image that was reshaped to its groups and back, or None for any other."""
    before, after = flow.made.get(found.source), flow.sole_reader(found.last.var)
    if before is None or after is None or {op_name(b.value) for b in (before, after)} != {"relax.reshape"}:
        return None
    image, groups = before.value.args[0], found.groups
    if not _is_image(image) or static_shape(after.var) != static_shape(image):
        return None
    shape, grouped = static_shape(image), static_shape(found.source)
    if shape[0] != grouped[0] or shape[1] % groups or len(grouped) < 3:
        return None
    depth = shape[1] // groups
    return _affine(_Groups(
        source=image, groups=groups, epsilon=found.epsilon, weight=np.repeat(found.weight, depth),
        bias=np.repeat(found.bias, depth), last=after,
    ), flow)  # fmt: skip


def _per_channel(binding: relax.VarBinding, name: str, channels: int) -> np.ndarray | None:
    """Return the constant of a product or sum with one number for each channel, float32[C], or None for any other."""
    arrays = [array for leaf in operands(binding.value) if (array := array_of(leaf)) is not None]
    rank = binding.var.ty.ndim if isinstance(binding.var.ty, relax.TensorType) else 0
    if op_name(binding.value) != name or len(arrays) != 1 or arrays[0].ndim > rank:
        return None
    shape = (1,) * (rank - arrays[0].ndim) + arrays[0].shape
    if static_shape(binding.var)[1] != channels or any(extent > 1 for axis, extent in enumerate(shape) if axis != 1):
        return None
    return np.broadcast_to(arrays[0].reshape(-1), channels).astype(np.float32)
