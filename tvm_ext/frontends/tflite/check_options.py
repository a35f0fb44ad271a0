"""Numbers of inputs and outputs of TensorFlow Lite operators, and options that are out of range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tflite

from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteNode

# Numbers of inputs, least and most, and of outputs (0: any number).
_ARITY: dict[str, tuple[int, int, int]] = {
    **dict.fromkeys(
        "ABS CEIL COS EXP FLOOR LOG NEG ROUND RSQRT SIN SQRT SQUARE SIGN LOGISTIC TANH RELU RELU6 RELU_N1_TO_1 "
        "RELU_0_TO_1 ELU HARD_SWISH GELU LEAKY_RELU SOFTMAX LOG_SOFTMAX L2_NORMALIZATION AVERAGE_POOL_2D MAX_POOL_2D "
        "L2_POOL_2D DEPTH_TO_SPACE SPACE_TO_DEPTH SQUEEZE CAST QUANTIZE DEQUANTIZE LOGICAL_NOT ZEROS_LIKE SHAPE RANK "
        "LOCAL_RESPONSE_NORMALIZATION FAKE_QUANT".split(),
        (1, 1, 1),
    ),
    **dict.fromkeys(
        "ADD SUB MUL DIV MAXIMUM MINIMUM POW FLOOR_DIV FLOOR_MOD SQUARED_DIFFERENCE ATAN2 EQUAL NOT_EQUAL GREATER "
        "GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_ANY "
        "REDUCE_ALL ARG_MAX ARG_MIN TRANSPOSE EXPAND_DIMS GATHER GATHER_ND TILE REVERSE_V2 BROADCAST_TO MIRROR_PAD "
        "PAD RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR CUMSUM FILL PRELU BATCH_MATMUL".split(),
        (2, 2, 1),
    ),
    "CONV_2D": (2, 3, 1),
    "DEPTHWISE_CONV_2D": (2, 3, 1),
    "FULLY_CONNECTED": (2, 3, 1),
    "TRANSPOSE_CONV": (3, 4, 1),
    "RESHAPE": (1, 2, 1),
    "SLICE": (3, 3, 1),
    "STRIDED_SLICE": (4, 4, 1),
    "SELECT": (3, 3, 1),
    "SELECT_V2": (3, 3, 1),
    "PADV2": (3, 3, 1),
    "SPACE_TO_BATCH_ND": (3, 3, 1),
    "BATCH_TO_SPACE_ND": (3, 3, 1),
    "SPLIT": (2, 2, 0),
    "SPLIT_V": (3, 3, 0),
    "UNPACK": (1, 1, 0),
    "PACK": (1, 1 << 30, 1),
    "CONCATENATION": (1, 1 << 30, 1),
    "ADD_N": (1, 1 << 30, 1),
}
_WINDOWED: dict[str, type] = {
    "CONV_2D": tflite.Conv2DOptions,
    "DEPTHWISE_CONV_2D": tflite.DepthwiseConv2DOptions,
    "TRANSPOSE_CONV": tflite.TransposeConvOptions,
    "AVERAGE_POOL_2D": tflite.Pool2DOptions,
    "MAX_POOL_2D": tflite.Pool2DOptions,
    "L2_POOL_2D": tflite.Pool2DOptions,
}
_RANK_4 = (*_WINDOWED, "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
# Operators whose second input is axes of the first.
_AXES = frozenset("MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_ANY REDUCE_ALL ARG_MAX ARG_MIN REVERSE_V2".split())
_OPTIONS: dict[str, type] = {
    **_WINDOWED,
    "CONCATENATION": tflite.ConcatenationOptions,
    "FULLY_CONNECTED": tflite.FullyConnectedOptions,
    "SOFTMAX": tflite.SoftmaxOptions,
    "DEPTH_TO_SPACE": tflite.DepthToSpaceOptions,
    "SPACE_TO_DEPTH": tflite.SpaceToDepthOptions,
    "GATHER": tflite.GatherOptions,
    "PACK": tflite.PackOptions,
    "UNPACK": tflite.UnpackOptions,
    "LEAKY_RELU": tflite.LeakyReluOptions,
}


def impossible(file: TfliteFile, node: TfliteNode) -> str | None:
    """Reason why an operator's inputs, outputs or options cannot be as they are; None when they can."""
    if node.operator in _ARITY:
        least, most, num_outputs = _ARITY[node.operator]
        if not least <= len(node.inputs) <= most:
            return f"it has {len(node.inputs)} inputs; {least} to {most} are needed"
        if num_outputs and len(node.outputs) != num_outputs:
            return f"it has {len(node.outputs)} outputs; {num_outputs} is needed"
        if -1 in node.inputs[:least] or -1 in node.outputs:
            return "an input or output it needs is left out"
    source = node.inputs[2] if node.operator == "TRANSPOSE_CONV" else node.inputs[0] if node.inputs else -1
    shape = file.tensors[source].shape if source >= 0 else ()
    if node.operator in _RANK_4 and len(shape) != 4:
        return f"its input has shape {list(shape)}; rank 4 is needed"
    options = _options(node)
    return _of_options(file, node, options, shape) or _of_axes(file, node, shape) or _of_moves(file, node, shape)


def _options(node: TfliteNode) -> Any:
    union, kind = node.table.BuiltinOptions(), _OPTIONS.get(node.operator)
    if union is None or kind is None:
        return None
    options = kind()
    options.Init(union.Bytes, union.Pos)
    return options


def _of_options(file: TfliteFile, node: TfliteNode, options: Any, shape: tuple[int, ...]) -> str | None:
    if options is None:
        return None
    rank = len(shape)
    expected = getattr(tflite.BuiltinOptions, _OPTIONS[node.operator].__name__)
    if node.table.BuiltinOptionsType() != expected:
        return f"its options are those of another operator ({node.table.BuiltinOptionsType()})"
    if node.operator in _WINDOWED:
        if options.Padding() not in (tflite.Padding.SAME, tflite.Padding.VALID):
            return f"its padding is {options.Padding()}; it is SAME (0) or VALID (1)"
        if min(options.StrideH(), options.StrideW()) < 1:
            return "its strides or dilations are below 1"
    if node.operator.endswith("POOL_2D"):
        window = (options.FilterHeight(), options.FilterWidth())
        if min(window) < 1:
            return f"its window is {list(window)}; both are at least 1"
        if options.Padding() == tflite.Padding.VALID and (window[0] > shape[1] or window[1] > shape[2]):
            return f"its window {list(window)} is larger than its input {list(shape)}"
    if node.operator in ("CONCATENATION", "GATHER", "UNPACK") and not -rank <= options.Axis() < max(rank, 1):
        return f"axis {options.Axis()} lies outside {list(shape)}"
    if node.operator == "PACK" and not -rank - 1 <= options.Axis() <= rank:
        return f"axis {options.Axis()} lies outside {list(shape)} with one more"
    if node.operator == "PACK" and options.ValuesCount() != len(node.inputs):
        return f"it says {options.ValuesCount()} values and has {len(node.inputs)}"
    if node.operator == "UNPACK" and options.Num() != len(node.outputs):
        return f"it says {options.Num()} values and has {len(node.outputs)}"
    if node.operator in ("DEPTH_TO_SPACE", "SPACE_TO_DEPTH") and options.BlockSize() < 1:
        return f"its block size is {options.BlockSize()}; it is at least 1"
    number = {"SOFTMAX": "Beta", "LEAKY_RELU": "Alpha"}.get(node.operator)
    if number and not math.isfinite(getattr(options, number)()):
        return f"{number.lower()} is {getattr(options, number)()}"
    if node.operator == "SOFTMAX" and options.Beta() <= 0:
        return f"beta is {options.Beta()}; it is above 0"
    return None


def _of_axes(file: TfliteFile, node: TfliteNode, shape: tuple[int, ...]) -> str | None:
    """Constant axes and orders within the rank of what they belong to."""
    if len(node.inputs) < 2 or node.inputs[1] < 0:
        return None
    second, rank = file.tensors[node.inputs[1]].data, len(shape)
    if node.operator in _AXES and second is not None and ((second < -rank) | (second >= rank)).any():
        return f"axes {second.reshape(-1).tolist()[:8]} lie outside {list(shape)}"
    if node.operator == "EXPAND_DIMS" and second is not None and ((second < -rank - 1) | (second > rank)).any():
        return f"axis {second.reshape(-1).tolist()[:8]} lies outside {list(shape)} with one more"
    if node.operator == "TRANSPOSE" and second is not None:
        order = sorted(second.reshape(-1).tolist())
        if order != list(range(rank)) and sorted(axis % max(rank, 1) for axis in order) != list(range(rank)):
            return f"{second.reshape(-1).tolist()[:8]} is no order of {rank} axes"
    return None


def _of_moves(file: TfliteFile, node: TfliteNode, shape: tuple[int, ...]) -> str | None:
    """Paddings, joins and indices that fit their data."""
    second = file.tensors[node.inputs[1]].data if len(node.inputs) > 1 and node.inputs[1] >= 0 else None
    if node.operator in ("PAD", "PADV2", "MIRROR_PAD") and second is not None:
        if second.shape != (len(shape), 2):
            return f"its paddings have shape {list(second.shape)}; {[len(shape), 2]} is needed"
        if (second < 0).any():
            return f"it pads by {int(second.min())}; paddings are at least 0"
    if node.operator == "CONCATENATION":
        options = _options(node)
        axis = options.Axis() % len(shape) if options is not None and shape else 0
        for index in node.inputs:
            other = file.tensors[index].shape if index >= 0 else ()
            if len(other) != len(shape) or any(
                a != b for i, (a, b) in enumerate(zip(shape, other, strict=True)) if i != axis
            ):
                return f"{list(shape)} and {list(other)} cannot be joined along axis {axis}"
    if node.operator == "GATHER" and second is not None and second.size:
        options = _options(node)
        axis = 0 if options is None else options.Axis() % max(len(shape), 1)
        batch, extent = 0 if options is None else options.BatchDims(), shape[axis]
        if not 0 <= batch <= min(axis, second.ndim) or second.shape[:batch] != shape[:batch]:
            return f"{batch} batch axes of {list(shape)} do not fit indices of shape {list(second.shape)}"
        if np.min(second) < 0 or np.max(second) >= extent:
            return f"an index lies outside [0, {extent})"
    return None
