"""Check a TensorFlow Lite model: its graph, and each operator's types, options and scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.tflite.custom import refusal_of_custom
from tvm_ext.frontends.tflite.dynamic_range import refusal_of_weights
from tvm_ext.frontends.tflite.layers import MOST_BIAS_ERROR, steps_of_sums
from tvm_ext.frontends.tflite.mediapipe import is_of_mediapipe, refusal_of_mediapipe
from tvm_ext.frontends.tflite.read_file import ACTIVATIONS, Scales, TfliteFile, TfliteLoop, TfliteNode, TfliteTensor
from tvm_ext.frontends.tflite.tensor_lists import is_list, refusal_of_flex
from tvm_ext.frontends.tflite.variable_tensors import KEEPING, refusal_of_keeping

_VELA = "ethos-u"
"""Custom operator that Arm's compiler for its Ethos-U writes."""


def check_graph(
    path: Path,
    tensors: Sequence[TfliteTensor],
    nodes: Sequence[TfliteNode],
    inputs: Sequence[int],
    outputs: Sequence[int],
    kept: Sequence[int] = (),
) -> None:
    """Raise BadModel for a broken graph, and UnsupportedModel for a file of Vela.

    kept: tensors that a run passes to the next run.
    """
    compiled = next((node.label for node in nodes if node.is_custom and node.operator == _VELA), None)
    if compiled:
        raise UnsupportedModel(
            f"{path}: {compiled} holds commands of an Ethos-U: Vela compiled this file for that processor, and the "
            "layers are no longer in it. Give the .tflite file from which Vela made it."
        )
    if not outputs or -1 in (*inputs, *outputs):
        raise BadModel(
            f"{path}: is not a complete TensorFlow Lite model: it has no outputs, or ports without a tensor."
        )
    for index in inputs:
        if inputs.count(index) > 1 or tensors[index].data is not None:
            raise BadModel(f"{path}: input {tensors[index].name!r} is there twice, or is a constant.")
    constants = {index for index, tensor in enumerate(tensors) if tensor.data is not None}
    known = constants | {-1, *inputs}
    for node in nodes:
        unread = [index for index in node.inputs if index not in known and not tensors[index].is_variable]
        # Operators on unknown types and on sparse constants are refused with their own reasons.
        unknown = [index for index in unread if tensors[index].dtype is not None and not tensors[index].is_sparse]
        if unknown:
            raise BadModel(
                f"{path}: {node.label} reads {tensors[unknown[0]].name!r}, which nothing computes before it."
            )
        for index in node.outputs:
            if index >= 0 and (index in known or node.outputs.count(index) > 1):
                kind = "a constant" if index in constants else "there already"
                raise BadModel(f"{path}: {node.label} writes {tensors[index].name!r}, which is {kind}.")
        known.update(node.outputs)
    missing = [index for index in (*outputs, *kept) if index not in known]
    if missing:
        kind = "output" if missing[0] in outputs else "state"
        raise BadModel(f"{path}: nothing computes the {kind} {tensors[missing[0]].name!r}.")


WAY_OUT = "Convert the model without them, with static shapes and built-in operators only."
"""Last line of the error that lists operators."""

_CONTROL_FLOW = frozenset("CALL STABLEHLO_WHILE STABLEHLO_COMPOSITE STABLEHLO_CUSTOM_CALL".split())
CHOICE = "control flow whose condition depends on data"
# Operators that read or write at indices, and the input that holds these.
_INDICES = dict.fromkeys("GATHER GATHER_ND REVERSE_SEQUENCE SEGMENT_SUM UNSORTED_SEGMENT_SUM".split(), 1)
_INDICES |= {"SCATTER_ND": 0, "EMBEDDING_LOOKUP": 0, "DYNAMIC_UPDATE_SLICE": 2, "SPARSE_TO_DENSE": 0}
_CONDITIONS = {
    "IF": "depends on data; compute both results and choose one by SELECT_V2",
    "WHILE": "is not one that a subgraph computes from the values of the loop",
}
_RANDOM = frozenset("RANDOM_UNIFORM RANDOM_STANDARD_NORMAL MULTINOMIAL STABLEHLO_RNG_BIT_GENERATOR".split())
_TABLES = "HASHTABLE"
# The schema has the same types for other purposes: weights, biases, indices, shapes.
_INTEGER_DATA = ("int32", "int64")


def refusal(file: TfliteFile, node: TfliteNode) -> str | None:
    """Return why a node is refused by its name and tensors alone, or None."""
    if node.operator.startswith("Flex"):
        return refusal_of_flex(file, node)
    if node.is_custom:
        return refusal_of_mediapipe(file, node) if is_of_mediapipe(node) else refusal_of_custom(file, node)
    if node.is_choice:
        return _of_choice(file, node)
    if node.is_guarded and _may_fail(file, node):
        return "its indices depend on data, and may be out of range where a run does not take the branch that it is in"
    if node.loop is not None:
        return _of_loop(file, node.loop)
    if node.operator in _CONDITIONS:
        return f"control flow whose condition {_CONDITIONS[node.operator]}"
    if node.operator in _CONTROL_FLOW:
        return "control flow; unroll it before converting"
    if node.operator in _RANDOM:
        return "its result is random"
    if node.operator.startswith(_TABLES):
        return "it looks up a table that is filled at run time"
    if node.operator in KEEPING:
        return refusal_of_keeping(file, node)
    tensors = [file.tensors[index] for index in (*node.inputs, *node.outputs) if index >= 0]
    for tensor in tensors if node.operator != "QUANTIZE" else ():
        if tensor.scales is not None and tensor.data is None and tensor.dtype in _INTEGER_DATA:
            return f"its tensor {tensor.name!r} is quantized to {tensor.dtype}; quantize to int8"
    reasons = (_of_tensor(tensor) for tensor in tensors)
    found = next((reason for reason in reasons if reason), None) or refusal_of_words(node, tensors)
    return (
        found
        or refusal_of_weights(file, node)
        or impossible(file, node)
        or mistyped(file, node)
        or rescaling(file, node)
    )


def _of_choice(file: TfliteFile, node: TfliteNode) -> str | None:
    """Return why the results of two branches are refused by their types and scales, or None."""
    condition, *results = (file.tensors[index] for index in node.inputs)
    if condition.dtype != "bool" or math.prod(condition.shape) != 1:
        return "control flow whose condition is not a single bool"
    outputs, count = [file.tensors[index] for index in node.outputs], len(node.outputs)
    for tensor, *branches in zip(outputs, results[:count], results[count:], strict=True):
        reason = next(filter(None, map(_of_tensor, (tensor, *branches))), None)
        if reason:
            return reason
        for branch in branches:
            if branch.dtype != tensor.dtype or not _same_scales(branch, tensor):
                return (
                    f"{CHOICE}, whose result {tensor.name!r} is {_kind(tensor)}, but {branch.name!r} of a branch is "
                    f"{_kind(branch)}"
                )
    return None


def _of_loop(file: TfliteFile, loop: TfliteLoop) -> str | None:
    """Return why a WHILE cannot run a step in a loop, or None."""
    for index in (loop.first, loop.again):
        if file.tensors[index].dtype != "bool" or math.prod(file.tensors[index].shape) != 1:
            return "control flow whose condition is not a single bool"
    for before, after in zip(loop.values, loop.results, strict=True):
        given, made = file.tensors[before], file.tensors[after]
        if is_list(given) and is_list(made):
            continue
        if reason := _of_tensor(given) or _of_tensor(made):
            return reason
        if given.dtype != made.dtype or not _may_agree(given, made) or not _same_scales(given, made):
            return (
                f"an iteration changes {given.name!r} from {_kind(given)}, {list(given.shape)} to {_kind(made)}, "
                f"{list(made.shape)}"
            )
    return None


def _may_agree(given: TfliteTensor, made: TfliteTensor) -> bool:
    """Return True for tensors of the same shape. An axis that the result leaves open has a stale extent in the file."""
    axes = zip(given.shape, made.shape, made.dims, strict=False)
    return len(given.shape) == len(made.shape) and all(one == other or dim is None for one, other, dim in axes)


def _same_scales(one: TfliteTensor, other: TfliteTensor) -> bool:
    return other.scales is None if one.scales is None else one.scales.equals(other.scales)


def _kind(tensor: TfliteTensor) -> str:
    """Return the element type of a tensor, and its first scale and zero point."""
    scales = tensor.scales
    return f"{tensor.dtype}" + (f" (scale {scales.scale[0]:g}, zero point {scales.zero_point[0]})" if scales else "")


def _may_fail(file: TfliteFile, node: TfliteNode) -> bool:
    """Return True for an operator with indices that are not constants."""
    place = _INDICES.get(node.operator)
    return place is not None and place < len(node.inputs) and file.tensors[node.inputs[place]].data is None


def _of_tensor(tensor: TfliteTensor) -> str | None:
    if tensor.is_variable:
        return f"its tensor {tensor.name!r} keeps state between runs"
    if tensor.is_sparse:
        return f"its tensor {tensor.name!r} is stored sparse; convert the model with dense weights"
    if tensor.dtype is None:
        return f"its element type {tensor.type_name} is not supported"
    if tensor.scales is not None and tensor.dtype not in (*ACTIVATIONS, *_INTEGER_DATA):
        return f"{tensor.dtype} quantization is not supported; quantize to int8"
    return None


# Least and most number of inputs, and number of outputs (0: any number).
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
# Operators whose second input has axes of the first.
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
    """Return why an operator's inputs, outputs or options are impossible, or None."""
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
    """Check that constant axes and orders lie within the rank of their tensor."""
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
    """Check that paddings, concatenations and indices fit their data."""
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


_BYTES = ("int8", "uint8")
# Operators that runtimes lack on quantized tensors, or compute differently there from real numbers.
_NOT_QUANTIZED = frozenset(
    "REDUCE_PROD FLOOR_DIV FLOOR_MOD NEG SIN COS CEIL FLOOR ROUND SQUARE SIGN POW ATAN2 "
    "L2_POOL_2D CAST ONE_HOT RANGE BITWISE_XOR RIGHT_SHIFT SEGMENT_SUM SPARSE_TO_DENSE CONV_3D CONV_3D_TRANSPOSE "
    "RELU_N1_TO_1 RFFT2D LOCAL_RESPONSE_NORMALIZATION FAKE_QUANT BUCKETIZE REVERSE_SEQUENCE MATRIX_DIAG "
    "MATRIX_SET_DIAG".split()
)
# Operators of small integers without scales, some of which runtimes take for quantized tensors with scale zero.
_NOT_PLAIN_BYTES = frozenset(
    "ADD SUB MUL DIV MAXIMUM MINIMUM SQUARED_DIFFERENCE BATCH_MATMUL GREATER GREATER_EQUAL LESS LESS_EQUAL EQUAL "
    "NOT_EQUAL ABS NEG RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 LEAKY_RELU ELU LOGISTIC TANH EXP LOG SQRT RSQRT SIN COS "
    "CEIL FLOOR ROUND SQUARE SIGN HARD_SWISH GELU SOFTMAX LOG_SOFTMAX L2_NORMALIZATION MEAN SUM REDUCE_MAX REDUCE_MIN "
    "REDUCE_PROD ADD_N PRELU CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED TRANSPOSE_CONV AVERAGE_POOL_2D MAX_POOL_2D "
    "L2_POOL_2D RESIZE_BILINEAR CUMSUM POW ATAN2".split()
)
# Operators that are undefined on whole numbers without scales, or that no runtime has there.
_REAL_ONLY = frozenset(
    "RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 LEAKY_RELU ELU LOGISTIC TANH EXP LOG SQRT RSQRT SIN COS CEIL FLOOR ROUND "
    "HARD_SWISH GELU SOFTMAX LOG_SOFTMAX L2_NORMALIZATION CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED TRANSPOSE_CONV "
    "AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D RESIZE_BILINEAR PRELU ATAN2 BATCH_MATMUL".split()
)
_SAME_TYPE = frozenset(
    "ADD SUB MUL DIV MAXIMUM MINIMUM SQUARED_DIFFERENCE POW FLOOR_DIV FLOOR_MOD ATAN2 RESHAPE TRANSPOSE SQUEEZE "
    "EXPAND_DIMS RELU RELU6 ABS NEG SOFTMAX LOGISTIC TANH AVERAGE_POOL_2D MAX_POOL_2D CONCATENATION CONV_2D "
    "DEPTHWISE_CONV_2D FULLY_CONNECTED MEAN SUM REDUCE_MAX REDUCE_MIN PAD LEAKY_RELU HARD_SWISH STRIDED_SLICE "
    "SLICE TILE GATHER GATHER_ND PACK UNPACK ADD_N CUMSUM".split()
)
_WITHOUT_REFERENCE = {
    "LOCAL_RESPONSE_NORMALIZATION": "TVM's importer divides by the size of its window, which TensorFlow Lite does not",
    "BITCAST": "there is no converter for it",
}
_FUSED = {
    "CONCATENATION": tflite.ConcatenationOptions,
    "ADD": tflite.AddOptions,
    "SUB": tflite.SubOptions,
    "MUL": tflite.MulOptions,
    "DIV": tflite.DivOptions,
}
_WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def mistyped(file: TfliteFile, node: TfliteNode) -> str | None:
    """Return why an operator cannot be compiled for the element types of its tensors, or None."""
    if node.operator in _WITHOUT_REFERENCE:
        return _WITHOUT_REFERENCE[node.operator]
    if node.operator.startswith("STABLEHLO"):
        return "StableHLO operators were not compared with a runtime; convert to built-in operators"
    inputs = [file.tensors[index] for index in node.inputs if index >= 0]
    outputs = [file.tensors[index] for index in node.outputs if index >= 0]
    if not inputs or not outputs:
        return None
    if node.operator == "QUANTIZE" and outputs[0].dtype not in (*ACTIVATIONS, "int32"):
        return f"it quantizes to {outputs[0].dtype}, not to int8, uint8, int16 or int32"
    if node.operator == "SHAPE" and outputs[0].dtype not in ("int32", "int64"):
        return f"its output {outputs[0].name!r} is {outputs[0].dtype}, not int32 or int64"
    if node.operator == "SPLIT" and any(tensor.dtype != inputs[-1].dtype for tensor in outputs):
        return "its parts have another type than what it splits"
    return _of_kinds(node, inputs, outputs) or _of_equals(node, inputs, outputs) or _of_activation(node, outputs[0])


def _of_kinds(node: TfliteNode, inputs: list[TfliteTensor], outputs: list[TfliteTensor]) -> str | None:
    main = inputs[2] if node.operator == "TRANSPOSE_CONV" and len(inputs) > 2 else inputs[0]
    is_scaled = any(tensor.scales is not None and tensor.dtype in _BYTES for tensor in (main, *outputs))
    if is_scaled and (node.operator in _NOT_QUANTIZED or (node.operator == "LOG" and main.dtype == "uint8")):
        return "on quantized tensors it is not supported; dequantize before it"
    for tensor in (main, outputs[0]):
        plain = tensor.scales is None and tensor.dtype in (*_BYTES, "int16", "uint16")
        if plain and node.operator in _NOT_PLAIN_BYTES:
            return f"its tensor {tensor.name!r} is {tensor.dtype} without a scale"
    if main.scales is None and main.dtype in _WHOLE and node.operator in _REAL_ONLY:
        return f"on {main.dtype} it is not defined"
    return None


def _of_equals(node: TfliteNode, inputs: list[TfliteTensor], outputs: list[TfliteTensor]) -> str | None:
    """Check that results have the type of the operands, quantized if these are."""
    if node.operator not in _SAME_TYPE:
        return None
    first = inputs[0]
    if node.operator == "ATAN2" and len(inputs) > 1 and first.shape != inputs[1].shape:
        return "its inputs have different shapes"
    others = [*outputs]
    if node.operator in (
        "ADD",
        "SUB",
        "MUL",
        "DIV",
        "MAXIMUM",
        "MINIMUM",
        "SQUARED_DIFFERENCE",
        "PACK",
        "ADD_N",
        "POW",
        "CONCATENATION",
    ):
        others += inputs[1:]
    for tensor in others:
        if node.operator == "SOFTMAX" and (first.dtype, tensor.dtype) == ("int8", "int16"):
            continue
        if tensor.dtype != first.dtype:
            return f"{first.name!r} is {first.dtype} and {tensor.name!r} {tensor.dtype}; both have one type"
        if first.dtype in ACTIVATIONS and (tensor.scales is None) != (first.scales is None):
            return f"of {first.name!r} and {tensor.name!r} only one has a scale"
    return None


def _of_activation(node: TfliteNode, output: TfliteTensor) -> str | None:
    if node.operator not in _FUSED or node.table.BuiltinOptions() is None:
        return None
    options = _FUSED[node.operator]()
    options.Init(node.table.BuiltinOptions().Bytes, node.table.BuiltinOptions().Pos)
    function = options.FusedActivationFunction()
    if function and node.operator == "CONCATENATION":
        return "it has a fused activation, which no runtime computes"
    if function in (tflite.ActivationFunctionType.TANH, tflite.ActivationFunctionType.SIGN_BIT):
        return "its fused activation is ignored by TensorFlow Lite; make it an operator of its own"
    if function and output.dtype in ("int32", "int64"):
        return "its fused activation on whole numbers is ignored by TensorFlow Lite Micro"
    return None


# Operators that copy, compare or select integers unchanged, whatever their scales.
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
# Runtimes assume the bias in steps of input times weight, and refuse scales that are further apart.
_MOST_OUTPUT_STEPS = 0.02


def rescaling(file: TfliteFile, node: TfliteNode) -> str | None:
    """Return why the scales of a node's tensors are impossible, or None."""
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
    if bias.scales.zero_point.any():
        return "its bias has a zero point that is not 0"
    if bias.data is not None and not bias.data.any():
        return None  # layers without a bias share zeros in any scale
    product = steps_of_sums(data.scales, weight.scales)
    if bias.scales.scale.size not in (1, product.size):
        return "its bias has another number of scales than its weights"
    steps = outputs[0].scales.scale[0] if outputs and outputs[0].scales is not None else np.inf
    if np.abs(bias.scales.scale - product).max() <= _MOST_OUTPUT_STEPS * steps:
        return None  # TensorFlow Lite runs such a layer
    if np.abs(_bias_factors(product, bias) - 1).max(initial=0) > MOST_BIAS_ERROR:
        return "the scale of its bias is not that of its input times that of its weights"
    return f"its output's scale of {steps:g} is too small for its bias"


def bias_factor(file: TfliteFile, node: TfliteNode) -> float:
    """Return the factor by which a layer adds its bias larger than the file says, furthest from 1 of all channels.

    Runtimes add the integers of a bias to sums of products, whatever scale the bias has. In a GRU that Keras unrolls,
    all time steps share one bias, whose scale is that of the first of them.
    """
    if node.operator not in _WITH_WEIGHTS or len(node.inputs) < 2:
        return 1.0
    shift = 1 if node.operator == "TRANSPOSE_CONV" else 0
    places = [node.inputs[place] if place < len(node.inputs) else -1 for place in (2 * shift, 1, 2 + shift)]
    if -1 in places:
        return 1.0
    data, weight, bias = (file.tensors[index] for index in places)
    if data.scales is None or weight.scales is None or bias.scales is None:
        return 1.0
    factors = _bias_factors(steps_of_sums(data.scales, weight.scales), bias)
    furthest = float(factors[np.abs(factors - 1).argmax()]) if factors.size else 1.0
    return furthest if abs(furthest - 1) > MOST_BIAS_ERROR else 1.0


def _bias_factors(steps: np.ndarray, bias: TfliteTensor) -> np.ndarray:
    """Return the factors by which runtimes add a bias larger than its scale says, for its elements that are not 0."""
    assert bias.scales is not None, "of quantized layers"
    if bias.data is None:
        return steps / bias.scales.scale
    is_added = bias.data.reshape(-1) != 0
    ours, theirs = (np.broadcast_to(scale, bias.data.size)[is_added] for scale in (steps, bias.scales.scale))
    return ours / theirs


def _text(scales: Scales | None) -> str:
    if scales is None:
        return "no scale"
    if scales.scale.size > 1:
        return f"{scales.scale.size} scales"
    return f"scale {scales.scale[0]:g}, zero point {scales.zero_point[0]}"


OPERATORS = frozenset(
    "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED TRANSPOSE_CONV ADD SUB MUL AVERAGE_POOL_2D MAX_POOL_2D LEAKY_RELU "
    "QUANTIZE DEQUANTIZE CONCATENATION PAD PADV2 STRIDED_SLICE SLICE RESHAPE SQUEEZE EXPAND_DIMS TRANSPOSE SPLIT "
    "SPLIT_V PACK UNPACK MEAN SUM ABS BATCH_MATMUL BROADCAST_TO DYNAMIC_UPDATE_SLICE LOGISTIC MAXIMUM MINIMUM PRELU "
    "RELU RELU6 RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SELECT_V2 SHAPE SOFTMAX SQUARED_DIFFERENCE TANH "
    # These are LiteRT's alone: TensorFlow Lite Micro does not run them on int16.
    "BATCH_TO_SPACE_ND EQUAL EXP FILL GATHER GATHER_ND GELU GREATER GREATER_EQUAL LESS LESS_EQUAL LOG MIRROR_PAD NEG "
    "NOT_EQUAL REDUCE_MAX REDUCE_MIN RESIZE_BILINEAR RSQRT SPACE_TO_BATCH_ND SQRT TILE".split()
)


def refusal_of_words(node: TfliteNode, tensors: Sequence[TfliteTensor]) -> str | None:
    """Return why an operator is refused for its int16 tensors, or None."""
    for tensor in tensors:
        if tensor.scales is None or tensor.dtype != "int16":
            continue
        if node.operator not in OPERATORS:
            return f"its tensor {tensor.name!r} is quantized to int16, which is not supported here; quantize it to int8"
        # Probabilities of int8 are int16 above the least probability, and may be requantized to another zero point.
        is_free = node.operator == "QUANTIZE" or (node.operator == "SOFTMAX" and tensors[0].dtype == "int8")
        shifted = tensor.scales.zero_point.any() and not is_free
        if tensor.data is None and (tensor.scales.scale.size != 1 or shifted):
            return f"its int16 tensor {tensor.name!r} has a zero point that is not 0, or several scales"
    return None
