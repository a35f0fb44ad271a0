"""Element types of TensorFlow Lite operators: those for which the import was compared with the format's runtimes.

The runtimes are TensorFlow Lite Micro and LiteRT. What neither computes, or what they compute otherwise than the
import, is refused.
"""

from __future__ import annotations

import tflite

from tvm_ext.frontends.tflite.read_file import ACTIVATIONS, TfliteFile, TfliteNode, TfliteTensor

_BYTES = ("int8", "uint8")
# Operators that runtimes lack on quantized tensors, or compute there otherwise than on the real numbers.
_NOT_QUANTIZED = frozenset(
    "REDUCE_PROD FLOOR_DIV FLOOR_MOD LOG NEG SIN COS CEIL FLOOR ROUND SQUARE SIGN POW ATAN2 "
    "L2_POOL_2D CAST ONE_HOT RANGE BITWISE_XOR RIGHT_SHIFT SEGMENT_SUM SPARSE_TO_DENSE CONV_3D CONV_3D_TRANSPOSE "
    "RELU_N1_TO_1 RFFT2D LOCAL_RESPONSE_NORMALIZATION FAKE_QUANT BUCKETIZE REVERSE_SEQUENCE MATRIX_DIAG "
    "MATRIX_SET_DIAG".split()
)
# Small integers without scales: runtimes take some of them for quantized ones with a scale of zero.
_NOT_PLAIN_BYTES = frozenset(
    "ADD SUB MUL DIV MAXIMUM MINIMUM SQUARED_DIFFERENCE BATCH_MATMUL GREATER GREATER_EQUAL LESS LESS_EQUAL EQUAL "
    "NOT_EQUAL ABS NEG RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 LEAKY_RELU ELU LOGISTIC TANH EXP LOG SQRT RSQRT SIN COS "
    "CEIL FLOOR ROUND SQUARE SIGN HARD_SWISH GELU SOFTMAX LOG_SOFTMAX L2_NORMALIZATION MEAN SUM REDUCE_MAX REDUCE_MIN "
    "REDUCE_PROD ADD_N PRELU CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED TRANSPOSE_CONV AVERAGE_POOL_2D MAX_POOL_2D "
    "L2_POOL_2D RESIZE_BILINEAR CUMSUM POW ATAN2".split()
)
# Operators that are not defined on whole numbers without scales, or that no runtime has there.
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
_WITHOUT_WITNESS = {
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
    """Reason why an operator cannot be compiled for the element types of its tensors; None when it can."""
    if node.operator in _WITHOUT_WITNESS:
        return _WITHOUT_WITNESS[node.operator]
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
    if is_scaled and node.operator in _NOT_QUANTIZED:
        return "on quantized tensors it is not supported; dequantize before it"
    for tensor in (main, outputs[0]):
        plain = tensor.scales is None and tensor.dtype in (*_BYTES, "int16", "uint16")
        if plain and node.operator in _NOT_PLAIN_BYTES:
            return f"its tensor {tensor.name!r} is {tensor.dtype} without a scale"
    if main.scales is None and main.dtype in _WHOLE and node.operator in _REAL_ONLY:
        return f"on {main.dtype} it is not defined"
    return None


def _of_equals(node: TfliteNode, inputs: list[TfliteTensor], outputs: list[TfliteTensor]) -> str | None:
    """Results have the type of what they are computed from, quantized if it is."""
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
