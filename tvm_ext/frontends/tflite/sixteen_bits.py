"""Operators on int16 activations, as converters write them beside int8 weights ("16x8").

Each was compared with TensorFlow Lite Micro, byte for byte. Activations have zero point 0 there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm_ext.frontends.tflite.read_file import TfliteNode, TfliteTensor

OPERATORS = frozenset(
    "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED TRANSPOSE_CONV ADD SUB MUL AVERAGE_POOL_2D MAX_POOL_2D LEAKY_RELU "
    "QUANTIZE DEQUANTIZE CONCATENATION PAD PADV2 STRIDED_SLICE SLICE RESHAPE SQUEEZE EXPAND_DIMS TRANSPOSE SPLIT "
    "SPLIT_V PACK UNPACK MEAN SUM ABS BATCH_MATMUL BROADCAST_TO DYNAMIC_UPDATE_SLICE LOGISTIC MAXIMUM MINIMUM PRELU "
    "RELU RELU6 RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SELECT_V2 SHAPE SOFTMAX SQUARED_DIFFERENCE TANH".split()
)


def refusal_of_words(node: TfliteNode, tensors: Sequence[TfliteTensor]) -> str | None:
    """Reason to refuse an operator for its tensors quantized to int16; None without."""
    for tensor in tensors:
        if tensor.scales is None or tensor.dtype != "int16":
            continue
        if node.operator not in OPERATORS:
            return f"its tensor {tensor.name!r} is quantized to int16, which is not supported here; quantize it to int8"
        # Probabilities of int8 are int16 above the least one, and may be brought to another zero point.
        is_free = node.operator == "QUANTIZE" or (node.operator == "SOFTMAX" and tensors[0].dtype == "int8")
        shifted = tensor.scales.zero_point.any() and not is_free
        if tensor.data is None and (tensor.scales.scale.size != 1 or shifted):
            return f"its int16 tensor {tensor.name!r} has a zero point that is not 0, or several scales"
    return None
