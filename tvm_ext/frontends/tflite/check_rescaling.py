"""Operators of which TensorFlow Lite's own kernels take scales for granted, and models that have others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_ext.frontends.tflite.check_scales import Scales
from tvm_ext.frontends.tflite.read_file import ACTIVATIONS, TfliteFile, TfliteNode, TfliteTensor

# Operators that copy, compare or select integers as they are, whatever the scales of these.
_SAME_SCALE = frozenset(
    "RESHAPE SQUEEZE EXPAND_DIMS TRANSPOSE SLICE STRIDED_SLICE SPLIT SPLIT_V PACK UNPACK GATHER GATHER_ND TILE "
    "DEPTH_TO_SPACE SPACE_TO_DEPTH BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND REVERSE_V2 REVERSE_SEQUENCE BROADCAST_TO "
    "RESIZE_NEAREST_NEIGHBOR RESIZE_BILINEAR PAD PADV2 MIRROR_PAD AVERAGE_POOL_2D MAX_POOL_2D MAXIMUM MINIMUM RELU6 "
    "REDUCE_MAX REDUCE_MIN SELECT SELECT_V2 SCATTER_ND FILL EMBEDDING_LOOKUP "
    "DYNAMIC_UPDATE_SLICE".split()
)
# Quantization of int8 outputs by definition: (scale, zero point).
_FIXED = {
    "SOFTMAX": (1 / 256, -128),
    "LOGISTIC": (1 / 256, -128),
    "TANH": (1 / 128, 0),
    "LOG_SOFTMAX": (16 / 256, 127),
    "L2_NORMALIZATION": (1 / 128, 0),
}
_WITH_WEIGHTS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0, "TRANSPOSE_CONV": 0}
# Runtimes take the bias to be in steps of input times weight, and allow for rounding in the file.
_MOST_BIAS_ERROR = 1e-4
_MOST_OUTPUT_STEPS = 0.02


def rescaling(file: TfliteFile, node: TfliteNode) -> str | None:
    """Reason why the scales of a node's tensors cannot be as they are; None when they can."""
    inputs = [file.tensors[index] for index in node.inputs if index >= 0]
    outputs = [file.tensors[index] for index in node.outputs if index >= 0]
    if node.operator in _SAME_SCALE:
        return _of_copies([tensor for tensor in (*inputs, *outputs) if tensor.dtype in ACTIVATIONS])
    if node.operator in _FIXED:
        return _of_fixed(node.operator, outputs)
    return _of_weights(node, inputs, outputs) if node.operator in _WITH_WEIGHTS and len(inputs) > 1 else None


def _of_copies(tensors: Sequence[TfliteTensor]) -> str | None:
    if not tensors or all(tensor.scales is None for tensor in tensors):
        return None
    first = tensors[0]
    for tensor in tensors[1:]:
        if first.scales is None or not first.scales.equals(tensor.scales) or first.dtype != tensor.dtype:
            return (
                f"it takes integers over as they are, but {first.name!r} ({_text(first.scales)}) and "
                f"{tensor.name!r} ({_text(tensor.scales)}) have other scales; put a QUANTIZE between them"
            )
    return None


def _of_fixed(operator: str, outputs: Sequence[TfliteTensor]) -> str | None:
    scale, zero_point = _FIXED[operator]
    for tensor in outputs:
        if tensor.dtype != "int8" or tensor.scales is None:
            continue
        found = tensor.scales
        if found.scale.size != 1 or abs(found.scale[0] / scale - 1) > 1e-3 or found.zero_point[0] != zero_point:
            return (
                f"its int8 output has scale {scale:g} and zero point {zero_point} by definition, in the file "
                f"{_text(found)}"
            )
    return None


def _of_weights(node: TfliteNode, inputs: Sequence[TfliteTensor], outputs: Sequence[TfliteTensor]) -> str | None:
    shift = 1 if node.operator == "TRANSPOSE_CONV" else 0
    weight, data = inputs[1], inputs[2 if shift and len(inputs) > 2 else 0]
    if weight.scales is None:
        return None
    if weight.scales.scale.size > 1 and weight.scales.axis != _WITH_WEIGHTS[node.operator]:
        return f"its weights have scales along axis {weight.scales.axis}, not along their output channels"
    if weight.dtype == "int8" and weight.scales.zero_point.any():
        return "its int8 weights have a zero point that is not 0"
    if weight.dtype == "uint8" and weight.scales.scale.size > 1:
        return "its uint8 weights have several scales, which no runtime computes; quantize to int8"
    if {weight.dtype, data.dtype} == {"int8", "uint8"}:
        return f"its weights are {weight.dtype}, its input is {data.dtype}; no runtime computes both together"
    bias = inputs[2 + shift] if len(inputs) > 2 + shift else None
    if bias is None or bias.scales is None or data.scales is None:
        return None
    product = data.scales.scale[0].astype(np.float64) * weight.scales.scale
    if bias.scales.zero_point.any():
        return "its bias has a zero point that is not 0"
    if bias.data is not None and not bias.data.any():
        return None  # zeros in any scale: layers that have no bias share them
    if bias.scales.scale.size not in (1, product.size) or (
        np.abs(bias.scales.scale / product - 1).max() > _MOST_BIAS_ERROR
    ):
        return "the scale of its bias is not that of its input times that of its weights"
    steps = outputs[0].scales.scale[0] if outputs and outputs[0].scales is not None else np.inf
    if np.abs(bias.scales.scale - product).max() > _MOST_OUTPUT_STEPS * steps:
        return f"its output's scale of {steps:g} is too small for its bias"
    return None


def _text(scales: Scales | None) -> str:
    if scales is None:
        return "no scale"
    if scales.scale.size > 1:
        return f"{scales.scale.size} scales"
    return f"scale {scales.scale[0]:g}, zero point {scales.zero_point[0]}"
