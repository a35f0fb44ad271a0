"""Lower normalizations to operators: LayerNorm and RMSNorm over the last axis, and quantized groups of channels."""

from __future__ import annotations

import numpy as np

from codegen_c.composites.chains import QuantizedChain
from codegen_c.composites.graph import Call, Composite, NoMatch
from codegen_c.operators.kinds import Normalize, QGroupNormalize, QNormalize


def normalize_operator(chain: QuantizedChain, anchor: Call) -> tuple[QNormalize, tuple[int, ...]] | NoMatch:
    """Return the quantized normalization of a chain, with constant weights and biases."""
    if len(chain.body) != 1 or chain.rounding != "onnx" or chain.parameter(anchor.operands[0]) is None:
        return NoMatch("more than a clamp follows it")
    known = _weight_and_bias(anchor, chain.output.shape)
    if isinstance(known, NoMatch):
        return known
    weight, bias = known
    operator = QNormalize(
        inputs=chain.inputs, outputs=(chain.output,), weight=weight, bias=bias, epsilon=float(anchor.attrs.epsilon),
        is_centered=_is_centered(anchor), low=chain.low, high=chain.high,
    )  # fmt: skip
    return operator, (0,)


def group_operator(chain: QuantizedChain, anchor: Call) -> tuple[QGroupNormalize, tuple[int, ...]] | NoMatch:
    """Return the quantized normalization of groups of channels over all pixels, with constant weights and biases."""
    if len(chain.body) != 1 or chain.rounding != "onnx" or chain.parameter(anchor.operands[0]) is None:
        return NoMatch("more than a clamp follows it")
    attrs, rank = anchor.attrs, len(chain.output.shape)
    channel_axis = int(attrs.channel_axis) % rank
    pixels = {int(axis) % rank for axis in attrs.axes} - {channel_axis}
    weight, bias = (value.array for value in anchor.operands[1:3])
    if channel_axis not in (1, rank - 1) or pixels != set(range(1, rank)) - {channel_axis}:
        return NoMatch("is not a normalization of groups of channels over all pixels")
    if weight is None or bias is None:
        return NoMatch("its weights are not constant")
    operator = QGroupNormalize(
        inputs=chain.inputs, outputs=(chain.output,), weight=np.asarray(weight, np.float32).reshape(-1),
        bias=np.asarray(bias, np.float32).reshape(-1), epsilon=float(attrs.epsilon), groups=int(attrs.num_groups),
        channel_axis=channel_axis, low=chain.low, high=chain.high,
    )  # fmt: skip
    return operator, (0,)


def float_normalize(composite: Composite, anchor: Call) -> tuple[Normalize, tuple[int, ...]] | NoMatch:
    """Return the operator of a single float normalization with constant weights and biases."""
    known = _weight_and_bias(anchor, composite.outputs[0].shape)
    if isinstance(known, NoMatch):
        return known
    if len(composite.calls) != 1:
        return NoMatch("is more than a normalization")
    weight, bias = known
    operator = Normalize(
        inputs=composite.inputs, outputs=composite.outputs, weight=weight, bias=bias,
        epsilon=float(anchor.attrs.epsilon), is_centered=_is_centered(anchor),
    )  # fmt: skip
    return operator, (0,)


def _is_centered(anchor: Call) -> bool:
    return anchor.name == "nn.layer_norm"


def _weight_and_bias(anchor: Call, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray] | NoMatch:
    """Return weight and bias of a normalization over the last axis, float32[C] each."""
    axes = [int(axis) % len(shape) for axis in anchor.attrs.axes]
    arrays = [value.array for value in anchor.operands[1:]]
    if axes != [len(shape) - 1] or any(array is None or array.size != shape[-1] for array in arrays):
        return NoMatch("is not a normalization over the last axis with constant weights")
    known = [np.asarray(array, np.float32).reshape(-1) for array in arrays if array is not None]
    weight, bias = (*known, np.zeros(shape[-1], np.float32))[:2]
    return weight, bias
