"""Fold batch normalization, and arithmetic with constants per channel, into the layer ahead of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    constant,
    infer,
    live,
    map_dataflow,
    op_name,
    outputs,
    rebuild,
    static_shape,
    with_span,
)
from relay_passes.patterns import Dataflow, any_constant, any_value, either, op

_BATCH_NORM = "relax.nn.batch_norm"
_LAYERS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.matmul")
_WEIGHTS, _BIAS = any_constant(lambda weights: weights.dtype == np.float32), any_constant()
_LAYER = op(_LAYERS, any_value(), _WEIGHTS, read_once=True)
_BIASED = either(op("relax.add", _LAYER, _BIAS, any_order=True, read_once=True), _LAYER)
_VALUE = any_value()
_PER_CHANNEL = any_constant(lambda numbers: numbers.dtype == np.float32 and numbers.size > 1)
_COMMUTATIVE = op(("relax.multiply", "relax.add"), _VALUE, _PER_CHANNEL, any_order=True)
_ARITHMETIC = either(_COMMUTATIVE, op(("relax.divide", "relax.subtract"), _VALUE, _PER_CHANNEL))


@tvm.transform.module_pass(opt_level=0, name="FoldBatchNorm")
class FoldBatchNorm:
    """Fold a batch normalization whose statistics are constants, and constants for each channel.

    is_transform: tells matrices of Fourier transforms, float32[rows, samples], which stay as they are.

    Rewrite:
        batch_norm(conv(x, w), ...)[0]              -> add(conv(x, w * scale), shift)
        batch_norm(add(conv(x, w), bias), ...)[0]   -> add(conv(x, w * scale), bias * scale + shift)
        batch_norm(matmul(x, w), ...)[0]            -> add(matmul(x, w * scale), shift)
        batch_norm(x, ...)[0]                       -> add(multiply(x, scale), shift)
        with scale = gamma / sqrt(variance + epsilon), shift = beta - mean * scale, in double precision
        multiply(conv(x, w), factors)               -> conv(x, w * factors)
        multiply(add(conv(x, w), bias), factors)    -> add(conv(x, w * factors), bias * factors)
        add(add(conv(x, w), bias), addends)         -> add(conv(x, w), bias + addends)
        divide and subtract alike
    Leaves alone: training mode, computed statistics, and results other than the normalized tensor; single numbers,
        which kernels apply after a layer; divisors of zero. A layer whose result has another reader keeps its weights.
    """

    def __init__(self, is_transform: Callable[[np.ndarray], bool] = lambda _: False) -> None:
        self.is_transform = is_transform

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, lambda func: _fold_constants(_fold(func), self.is_transform))


@dataclass(frozen=True, kw_only=True)
class _Affine:
    """Batch normalization as scale * x + shift, with a float64[C] for each."""

    scale: np.ndarray
    shift: np.ndarray
    axis: int


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """A layer with constant weights, which a batch normalization can be folded into.

    weights, weight_axis: float32, and their axis of the output channels.
    bias: float64, of one element or of one element per channel.
    """

    binding: relax.VarBinding
    weights: np.ndarray
    weight_axis: int
    bias: np.ndarray


def _fold(func: relax.Function) -> relax.Function:
    flow = Dataflow(func)
    affine = {
        b.var: (b.value, found) for b in flow.sequence
        if op_name(b.value) == _BATCH_NORM and (found := _affine(b.value)) is not None
        and (reader := flow.sole_reader(b.var)) is not None
        and isinstance(reader.value, relax.TupleGetItem) and reader.value.index == 0
    }  # fmt: skip
    if not affine:
        return func
    scaled: dict[relax.Var, relax.Call] = {}
    normalized: dict[relax.Var, list[relax.VarBinding]] = {}
    for binding in flow.sequence:
        if not isinstance(binding.value, relax.TupleGetItem) or binding.value.tuple_value not in affine:
            continue
        call, channels = affine[binding.value.tuple_value]
        layer = _layer(call.args[0], channels.axis, flow)
        if layer is None:
            normalized[binding.var] = _scaled_and_shifted(binding.var, call, channels)
            continue
        weighted = _with_weights(layer, channels.scale)
        scaled[layer.binding.var] = weighted
        shift = _along(layer.bias * channels.scale + channels.shift, call.args[0], channels.axis)
        added = infer(with_span(relax.op.add(layer.binding.var, shift), call.span))
        normalized[binding.var] = [relax.VarBinding(binding.var, added)]
    rewritten: list[relax.VarBinding] = []
    for binding in flow.sequence:
        if binding.var in scaled:
            rewritten.append(relax.VarBinding(binding.var, scaled[binding.var]))
        else:
            rewritten += normalized.get(binding.var, [binding])
    return rebuild(func, live(rewritten, outputs(func)))


def _fold_constants(func: relax.Function, is_transform: Callable[[np.ndarray], bool]) -> relax.Function:
    """Fold arithmetic with constants per channel: in each round, the first operator after each layer."""
    while True:
        flow = Dataflow(func)
        found = {b.var: steps for b in flow.sequence if (steps := _with_constants(b, flow, is_transform)) is not None}
        if not found:
            return func
        layers = {step.var for steps in found.values() for step in steps[:-1]}
        kept = (b for b in flow.sequence if b.var not in layers)
        sequence = [step for b in kept for step in found.get(b.var, [b])]
        func = rebuild(func, live(sequence, outputs(func)))


def _with_constants(
    binding: relax.VarBinding, flow: Dataflow, is_transform: Callable[[np.ndarray], bool]
) -> list[relax.VarBinding] | None:
    """Return the bindings that replace arithmetic on a layer's result and the layer, or None."""
    match = flow.match(_ARITHMETIC, binding.var)
    if match is None or flow.values.get(match[_VALUE]) is None:
        return None
    value, numbers, name = match[_VALUE], match.array(_PER_CHANNEL), op_name(binding.value)
    shape = static_shape(binding.var)
    axes = [len(shape) - numbers.ndim + axis for axis, extent in enumerate(numbers.shape) if extent > 1]
    layer = _layer(value, axes[0], flow) if len(axes) == 1 and shape == static_shape(value) else None
    if layer is None or (name == "relax.divide" and not numbers.all()):
        return None
    constants, is_sum = numbers.reshape(-1).astype(np.float64), name in ("relax.add", "relax.subtract")
    if is_sum and value.same_as(layer.binding.var):
        return None  # the layer's own bias
    scale = np.ones(len(constants)) if is_sum else constants if name == "relax.multiply" else 1 / constants
    shift = 0.0 if not is_sum else constants if name == "relax.add" else -constants
    rows = np.moveaxis(layer.weights, layer.weight_axis, 0).reshape(len(constants), -1)
    if not is_sum and is_transform(rows):
        return None
    weighted = layer.binding.value if is_sum else _with_weights(layer, scale)
    if value.same_as(layer.binding.var):
        return [relax.VarBinding(binding.var, weighted)]
    bias = _along(layer.bias * scale + shift, value, axes[0])
    added = infer(with_span(relax.op.add(layer.binding.var, bias), binding.value.span))
    return [relax.VarBinding(layer.binding.var, weighted), relax.VarBinding(binding.var, added)]


def _affine(call: relax.Call) -> _Affine | None:
    """Return scale and shift of a batch normalization with constant statistics, or None for any other."""
    arrays = [array_of(arg) for arg in call.args[1:5]]
    if bool(call.attrs.training) or any(array is None for array in arrays):
        return None
    gamma, beta, mean, variance = (array.astype(np.float64) for array in arrays if array is not None)
    scale = (gamma if call.attrs.scale else 1.0) / np.sqrt(variance + float(call.attrs.epsilon))
    shift = (beta if call.attrs.center else 0.0) - mean * scale
    return _Affine(scale=scale, shift=shift, axis=int(call.attrs.axis) % len(static_shape(call.args[0])))


def _layer(value: relax.Expr, axis: int, flow: Dataflow) -> _Layer | None:
    """Return the layer that a normalization of `value` along `axis` can be folded into, or None."""
    match = flow.match(_BIASED, value)
    bias = np.zeros(1) if match is None or _BIAS not in match else _bias(match.array(_BIAS), static_shape(value), axis)
    if match is None or bias is None or static_shape(match[_LAYER]) != static_shape(value):
        return None
    weight_axis, layer_axis = _channel_axes(match.call(_LAYER), match.array(_WEIGHTS))
    if layer_axis != axis:
        return None
    return _Layer(binding=flow.made[match[_LAYER]], weights=match.array(_WEIGHTS), weight_axis=weight_axis, bias=bias)


def _channel_axes(call: relax.Call, weights: np.ndarray) -> tuple[int, int]:
    """Return the axis of the layer's output channels in the weights and in the result."""
    if op_name(call) == "relax.matmul":  # batched weights have no single channel axis, hence -1
        return weights.ndim - 1, len(static_shape(call)) - 1 if weights.ndim == 2 else -1
    out_layout = str(call.attrs.out_layout or call.attrs.data_layout)
    return str(call.attrs.kernel_layout).find("O"), out_layout.find("C")


def _bias(array: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray | None:
    """Return float64 numbers that are added to a tensor, of one or of one for each channel, or None for any other."""
    aligned = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    is_vector = all(extent == 1 or place == axis for place, extent in enumerate(aligned.shape))
    return aligned.reshape(-1).astype(np.float64) if is_vector else None


def _with_weights(layer: _Layer, scale: np.ndarray) -> relax.Call:
    """Return the layer's call with its weights scaled per channel."""
    call, weights = layer.binding.value, layer.weights
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
