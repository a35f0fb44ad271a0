"""Fold batch normalization, as inference computes it, into the preceding layer, or into a scale and a shift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    constant,
    infer,
    live,
    map_dataflow,
    op_name,
    operands,
    outputs,
    rebuild,
    static_shape,
    users,
    with_span,
)

_BATCH_NORM = "relax.nn.batch_norm"
_CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d")


@tvm.transform.module_pass(opt_level=0, name="FoldBatchNorm")
class FoldBatchNorm:
    """Fold a batch normalization whose statistics are constants.

    Rewrite:
        batch_norm(conv(x, w), ...)[0]              -> add(conv(x, w * scale), shift)
        batch_norm(add(conv(x, w), bias), ...)[0]   -> add(conv(x, w * scale), bias * scale + shift)
        batch_norm(matmul(x, w), ...)[0]            -> add(matmul(x, w * scale), shift)
        batch_norm(x, ...)[0]                       -> add(multiply(x, scale), shift)
        with scale = gamma / sqrt(variance + epsilon), shift = beta - mean * scale, in double precision
    Leaves alone: training mode, computed statistics, and results other than the normalized tensor. A layer whose
    result has another reader keeps its weights.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _fold)


@dataclass(frozen=True, kw_only=True)
class _Affine:
    """Batch normalization as scale * x + shift, with a float64[C] for each."""

    scale: np.ndarray
    shift: np.ndarray
    axis: int


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """A layer with constant weights, which a batch normalization can be folded into.

    weight_axis: the axis of the weights that holds the output channels.
    bias: float64, of one element or of one element per channel.
    """

    binding: relax.VarBinding
    weight_axis: int
    bias: np.ndarray


def _fold(func: relax.Function) -> relax.Function:
    sequence = bindings(func)
    readers = users(sequence)
    returned = {leaf for result in outputs(func) for leaf in operands(result)}
    private = {
        b.var: b for b in sequence if len(readers.get(b.var, [])) == 1 and b.var not in returned
    }  # bindings with exactly one reader
    affine = {
        b.var: (b.value, found) for b in sequence
        if op_name(b.value) == _BATCH_NORM and (found := _affine(b.value)) is not None
        and all(isinstance(r.value, relax.TupleGetItem) and r.value.index == 0 for r in readers.get(b.var, []))
        and len(readers.get(b.var, [])) == 1 and b.var not in returned
    }  # fmt: skip
    if not affine:
        return func
    scaled: dict[relax.Var, relax.Call] = {}
    normalized: dict[relax.Var, list[relax.VarBinding]] = {}
    for binding in sequence:
        if not isinstance(binding.value, relax.TupleGetItem) or binding.value.tuple_value not in affine:
            continue
        call, channels = affine[binding.value.tuple_value]
        layer = _layer(call.args[0], channels.axis, private)
        if layer is None:
            normalized[binding.var] = _scaled_and_shifted(binding.var, call, channels)
            continue
        weighted = _with_weights(layer, channels.scale)
        scaled[layer.binding.var] = weighted
        shift = _along(layer.bias * channels.scale + channels.shift, call.args[0], channels.axis)
        added = infer(with_span(relax.op.add(layer.binding.var, shift), call.span))
        normalized[binding.var] = [relax.VarBinding(binding.var, added)]
    rewritten: list[relax.VarBinding] = []
    for binding in sequence:
        if binding.var in scaled:
            rewritten.append(relax.VarBinding(binding.var, scaled[binding.var]))
        else:
            rewritten += normalized.get(binding.var, [binding])
    return rebuild(func, live(rewritten, outputs(func)))


def _affine(call: relax.Call) -> _Affine | None:
    """Return scale and shift of a batch normalization with constant statistics, or None for any other."""
    arrays = [array_of(arg) for arg in call.args[1:5]]
    if bool(call.attrs.training) or any(array is None for array in arrays):
        return None
    gamma, beta, mean, variance = (array.astype(np.float64) for array in arrays if array is not None)
    scale = (gamma if call.attrs.scale else 1.0) / np.sqrt(variance + float(call.attrs.epsilon))
    shift = (beta if call.attrs.center else 0.0) - mean * scale
    return _Affine(scale=scale, shift=shift, axis=int(call.attrs.axis) % len(static_shape(call.args[0])))


def _layer(value: relax.Expr, axis: int, private: Mapping[relax.Var, relax.VarBinding]) -> _Layer | None:
    """Return the layer that a normalization of `value` along `axis` can be folded into, or None."""
    binding = private.get(value)
    if binding is None:
        return None
    bias = np.zeros(1)
    if op_name(binding.value) == "relax.add":
        found = _bias(binding.value, axis)
        if found is None:
            return None
        inner, bias = found
        binding = private.get(inner)
    if binding is None or (weights := _weights(binding.value)) is None or weights.dtype != np.float32:
        return None
    weight_axis, layer_axis = _channel_axes(binding.value, weights)
    return _Layer(binding=binding, weight_axis=weight_axis, bias=bias) if layer_axis == axis else None


def _channel_axes(call: relax.Call, weights: np.ndarray) -> tuple[int, int]:
    """Return the axis of the layer's output channels in the weights and in the result."""
    if op_name(call) == "relax.matmul":  # batched weights have no single channel axis, hence -1
        return weights.ndim - 1, len(static_shape(call)) - 1 if weights.ndim == 2 else -1
    out_layout = str(call.attrs.out_layout or call.attrs.data_layout)
    return str(call.attrs.kernel_layout).find("O"), out_layout.find("C")


def _weights(call: relax.Expr) -> np.ndarray | None:
    return array_of(call.args[1]) if op_name(call) in (*_CONVOLUTIONS, "relax.matmul") else None


def _bias(add: relax.Call, axis: int) -> tuple[relax.Expr, np.ndarray] | None:
    """Return the other operand of an addition of one constant per channel, and that constant, or None."""
    shape = static_shape(add)
    for index in (0, 1):
        array, other = array_of(add.args[index]), add.args[1 - index]
        if array is None or static_shape(other) != shape:
            continue
        aligned = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        if all(extent == 1 or place == axis for place, extent in enumerate(aligned.shape)):
            return other, aligned.reshape(-1).astype(np.float64)
    return None


def _with_weights(layer: _Layer, scale: np.ndarray) -> relax.Call:
    """Return the layer's call with its weights scaled per channel."""
    call = layer.binding.value
    weights = _weights(call)
    assert weights is not None, "a layer has constant weights"
    shape = [1] * weights.ndim
    shape[layer.weight_axis] = -1
    new = constant((weights.astype(np.float64) * scale.reshape(shape)).astype(np.float32))
    return relax.Call(call.op, [call.args[0], new, *call.args[2:]], call.attrs, call.ty_args, call.span, call.ty)


def _along(values: np.ndarray, like: relax.Expr, axis: int) -> relax.Expr:
    """Return a constant of the tensor's type that broadcasts one value per channel over the tensor."""
    shape = [1] * len(static_shape(like))
    shape[axis] = -1
    return constant(values.reshape(shape).astype(str(like.ty.dtype)))


def _scaled_and_shifted(var: relax.Var, call: relax.Call, channels: _Affine) -> list[relax.VarBinding]:
    """Return the bindings that compute `var` as a multiplication and an addition."""
    value = call.args[0]
    product = infer(with_span(relax.op.multiply(value, _along(channels.scale, value, channels.axis)), call.span))
    scaled = relax.DataflowVar(f"{var.name}.scaled", product.ty)
    added = infer(with_span(relax.op.add(scaled, _along(channels.shift, value, channels.axis)), call.span))
    return [relax.VarBinding(scaled, product), relax.VarBinding(var, added)]
