"""Operators on int16 activations, as converters write them beside int8 weights ("16x8").

Each was compared with TensorFlow Lite Micro, byte for byte. Activations have zero point 0 there.
"""

from __future__ import annotations

from collections.abc import Iterable

from tvm_ext.frontends.tflite.read_file import TfliteNode, TfliteTensor

OPERATORS = frozenset(
    "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED TRANSPOSE_CONV ADD SUB MUL AVERAGE_POOL_2D MAX_POOL_2D LEAKY_RELU "
    "QUANTIZE DEQUANTIZE CONCATENATION PAD STRIDED_SLICE SLICE RESHAPE SQUEEZE TRANSPOSE SPLIT "
    "SPLIT_V PACK UNPACK MEAN SUM".split()
)


def refusal_of_words(node: TfliteNode, tensors: Iterable[TfliteTensor]) -> str | None:
    """Reason to refuse an operator for its tensors quantized to int16; None without."""
    for tensor in tensors:
        if tensor.scales is None or tensor.dtype != "int16":
            continue
        if node.operator not in OPERATORS:
            return f"its tensor {tensor.name!r} is quantized to int16, which is not supported here; quantize it to int8"
        if tensor.data is None and (tensor.scales.scale.size != 1 or tensor.scales.zero_point.any()):
            return f"its int16 tensor {tensor.name!r} has a zero point that is not 0, or several scales"
    return None
