"""Lower products of quantized operands with a real result, or with more than a clamp after them, to RealLayer.

dequantize(x), dequantize(weights) -> conv2d or matmul -> float operators (-> quantize)
range_quantize(x), dequantize(weights) -> the same
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from codegen_c.composites.chains import (
    Dequantized,
    after_anchor,
    dequantized,
    is_quantized,
    quantized_output,
    rounding_of,
)
from codegen_c.composites.floats import window_of
from codegen_c.composites.graph import Call, CallOperand, Composite, NoMatch
from codegen_c.composites.quantized import weights_of
from codegen_c.operators.kinds import OwnSteps, QConv2d, QDense, Quantization, RealLayer, TensorType, steps_type
from tvm_ext.core.decisions.composites import OwnRange
from tvm_ext.core.names import RANGE_QUANTIZE

MOST_SUM = 1 << 30
"""Bound of the accumulators, which kernels check."""
UNIT = Quantization(scale=1.0, zero_point=0)


def real_layer(composite: Composite) -> tuple[RealLayer, tuple[int, ...]] | NoMatch:
    """Return the layer of a composite, and the indices of its inputs among the parameters."""
    sources, ends = dequantized(composite), bool(composite.calls) and composite.calls[-1].name == "quantize"
    if isinstance(sources, NoMatch):
        return sources
    output = quantized_output(composite) if ends else composite.outputs[0] if len(composite.outputs) == 1 else None
    if isinstance(output, NoMatch) or output is None or (ends and not is_quantized(output)):
        return output if isinstance(output, NoMatch) else NoMatch("its result is not a tensor with one scale")
    body = [call for call in composite.calls if call.name not in ("dequantize", RANGE_QUANTIZE)]
    calls = body[: -1 if ends else None]
    if not calls or calls[0].name not in ("nn.conv2d", "matmul") or len(calls[0].operands) != 2:
        return NoMatch("does not begin with products of quantized operands")
    anchor = calls[0]
    activation = _activation(composite, sources, anchor)
    if isinstance(activation, NoMatch):
        return activation
    if not ends and output.dtype != "float32":
        return NoMatch("its result is not float32")
    source = activation.steps
    found = _conv2d(sources, source, anchor) if anchor.name == "nn.conv2d" else _dense(sources, source, anchor)
    if isinstance(found, NoMatch):
        return found
    layer, weight_scale = found
    known = replace(sources, parameters={**sources.parameters, anchor.operands[0].var: activation.parameter})
    calls = [_with_reals(call, known) for call in calls]
    after = after_anchor(replace(composite, calls=tuple(calls)), calls[0], takes_bias=True)
    if isinstance(after, NoMatch):
        return after
    builder, bias = after
    scale = np.float64(np.float32(activation.scale)) * weight_scale
    operator = RealLayer(
        inputs=tuple(sources.inputs[i] for i in builder.inputs), outputs=(output,), layer=layer,
        scale=np.broadcast_to(scale.astype(np.float32), bias.shape).copy(), bias=bias, finish=builder.program(),
        rounding=rounding_of(composite), own_steps=activation.own,
    )  # fmt: skip
    return operator, tuple(builder.inputs)


@dataclass(frozen=True, kw_only=True)
class _Activation:
    """First operand of a layer.

    parameter: index in the composite. steps: its type in steps. scale: the scale of a step, 1 if each run computes its
    own range. own: how a run computes the range; None for a quantized activation.
    """

    parameter: int
    steps: TensorType
    scale: float
    own: OwnSteps | None = None


def _activation(composite: Composite, sources: Dequantized, anchor: Call) -> _Activation | NoMatch:
    """Return the first operand of a layer: integers, or real numbers that the layer quantizes by their own range."""
    var = anchor.operands[0].var
    ranged = next((call for call in composite.calls if call.name == RANGE_QUANTIZE and call.var == var), None)
    if ranged is None:
        index = sources.parameters.get(var)
        if index is None or not is_quantized(sources.inputs[index]):
            return NoMatch("its first operand is not a quantized activation")
        known = sources.inputs[index].quantization
        return _Activation(parameter=index, steps=sources.inputs[index], scale=known.scale if known else 0)
    index, own = ranged.operands[0].parameter, OwnRange.read(ranged)
    if index is None:
        return NoMatch("it quantizes a value that is not an activation")
    shape = composite.inputs[index].shape
    ranges, vectors = math.prod(shape[: own.axes]), math.prod(shape[:-1])
    if ranges not in (1, vectors) or (ranges > 1 and anchor.name == "nn.conv2d"):
        return NoMatch("each image of the batch has its own range, but only one image is supported")
    in_groups = anchor.name == "nn.conv2d" and int(anchor.attrs.groups) == shape[-1] > 1
    steps = OwnSteps(
        meaning=own.meaning, by_vector=ranges > 1,  # type: ignore[arg-type]
        scale_last=own.meaning == "tflite_asymmetric" and anchor.name == "nn.conv2d" and not in_groups,
    )  # fmt: skip
    return _Activation(parameter=index, steps=steps_type(shape), scale=1.0, own=steps)


def _with_reals(call: Call, sources: Dequantized) -> Call:
    """Return the call with its dequantized operands replaced by parameters and float arrays."""

    def operand(value: CallOperand) -> CallOperand:
        if value.var in sources.parameters:
            return replace(value, parameter=sources.parameters[value.var])
        given = sources.constants.get(value.var)
        return CallOperand(array=given.real.astype(np.float32)) if given and value.var is not None else value

    return replace(call, operands=tuple(map(operand, call.operands)))


def _layer_types(source: TensorType, shape: tuple[int, ...], output: tuple[int, ...]) -> dict[str, tuple[TensorType]]:
    """Return the types of an integer layer: its input in steps, its output as accumulators."""
    assert source.quantization is not None, "its activations are quantized"
    steps = Quantization(scale=1.0, zero_point=source.quantization.zero_point)
    return {
        "inputs": (replace(source, shape=shape, quantization=steps),),
        "outputs": (TensorType(shape=output, dtype="int32", quantization=UNIT),),
    }


def _conv2d(sources: Dequantized, source: TensorType, anchor: Call) -> tuple[QConv2d, np.ndarray] | NoMatch:
    """Return the integer convolution of a layer, and the scales of its weights."""
    attrs, weights = anchor.attrs, weights_of(sources, anchor.operands[1], channel_axis=0)
    if attrs.data_layout != "NHWC" or attrs.kernel_layout != "OHWI" or anchor.type is None:
        return NoMatch("its layout is not NHWC")
    if isinstance(weights, NoMatch):
        return weights
    weight, scale = weights
    window = window_of(attrs, weight.shape[1:3])
    if isinstance(window, NoMatch):
        return window
    channels = anchor.type.shape[-1]
    layer = QConv2d(
        **_layer_types(source, source.shape, anchor.type.shape), weight=weight, window=window,
        weight_scale=np.ones(channels, np.float32), bias=np.zeros(channels, np.int32), low=-MOST_SUM,
        high=MOST_SUM, groups=int(attrs.groups),
    )  # fmt: skip
    return layer, scale


def _dense(sources: Dequantized, source: TensorType, anchor: Call) -> tuple[QDense, np.ndarray] | NoMatch:
    """Return the layer of one vector of the input."""
    weights = weights_of(sources, anchor.operands[1], channel_axis=-1)
    if isinstance(weights, NoMatch):
        return weights
    weight, scale = weights
    if weight.ndim != 2 or anchor.type is None or len(source.shape) < 2:
        return NoMatch("its weights are not a matrix")
    depth, channels = weight.shape
    layer = QDense(
        **_layer_types(source, (1, depth), (1, channels)), weight=np.ascontiguousarray(weight.T),
        weight_scale=np.ones(channels, np.float32), bias=np.zeros(channels, np.int32), low=-MOST_SUM,
        high=MOST_SUM,
    )  # fmt: skip
    return layer, scale
