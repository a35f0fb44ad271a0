"""The operators on integers that are converted here, by element type, and the operators with a constant."""

from __future__ import annotations

from collections.abc import Callable

import tflite
from tvm import relax

from tvm_ext.frontends.tflite.integers.arithmetic import (
    add,
    add_n,
    batch_matmul,
    comparison,
    greatest,
    leaky_relu,
    least,
    maximum,
    minimum,
    multiply,
    order_of_words,
    prelu,
    squared_difference,
    subtract,
    sums_along,
)
from tvm_ext.frontends.tflite.integers.interpolation import resize_bilinear, resize_bilinear_unsigned
from tvm_ext.frontends.tflite.integers.l2_normalization import l2_normalization
from tvm_ext.frontends.tflite.integers.node import IntegerNode
from tvm_ext.frontends.tflite.integers.sigmoid import logistic, tanh
from tvm_ext.frontends.tflite.integers.softmax import softmax, softmax_of_bytes, softmax_of_unsigned
from tvm_ext.frontends.tflite.integers.word_tables import (
    exponential,
    gelu,
    logarithm,
    logarithm_of_bytes,
    negation,
    reciprocal_root,
    square_root,
)
from tvm_ext.frontends.tflite.layers import options_of
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteNode

Converter = Callable[[IntegerNode], relax.Expr]

_BOTH: dict[str, Converter] = {
    "BATCH_MATMUL": batch_matmul,
    "PRELU": prelu,
    "SQUARED_DIFFERENCE": squared_difference,
}
_COMPARISONS: dict[str, Converter] = {
    "EQUAL": comparison(lambda a, b: a == b), "NOT_EQUAL": comparison(lambda a, b: a != b),
    "GREATER": comparison(lambda a, b: a > b), "GREATER_EQUAL": comparison(lambda a, b: a >= b),
    "LESS": comparison(lambda a, b: a < b), "LESS_EQUAL": comparison(lambda a, b: a <= b),
}  # fmt: skip
_WORD_COMPARISONS: dict[str, Converter] = {
    **{name: _COMPARISONS[name] for name in ("EQUAL", "NOT_EQUAL")},
    "GREATER": order_of_words(lambda a, b: a > b), "GREATER_EQUAL": order_of_words(lambda a, b: a >= b),
    "LESS": order_of_words(lambda a, b: a < b), "LESS_EQUAL": order_of_words(lambda a, b: a <= b),
}  # fmt: skip
_OF_TYPE: dict[str, dict[str, Converter]] = {
    "int8": {
        **_BOTH,
        **_COMPARISONS,
        "LOG": logarithm_of_bytes,
        "RESIZE_BILINEAR": resize_bilinear,
        "L2_NORMALIZATION": l2_normalization,
    },
    "uint8": {
        **_COMPARISONS,
        "PRELU": prelu,
        "RESIZE_BILINEAR": resize_bilinear_unsigned,
        "L2_NORMALIZATION": l2_normalization,
        "SOFTMAX": softmax_of_unsigned,
    },
    "int16": {
        **_BOTH,
        **_WORD_COMPARISONS,
        "EXP": exponential,
        "GELU": gelu,
        "LOG": logarithm,
        "LOGISTIC": logistic,
        "NEG": negation,
        "REDUCE_MAX": greatest,
        "REDUCE_MIN": least,
        "RESIZE_BILINEAR": resize_bilinear,
        "RSQRT": reciprocal_root,
        "SOFTMAX": softmax,
        "SQRT": square_root,
        "TANH": tanh,
    },
}
_OF_BYTES: dict[str, Converter] = {"ADD_N": add_n, "CUMSUM": sums_along}
# Their kernels take two activations.
_OF_A_CONSTANT: dict[str, Converter] = {
    "MAXIMUM": maximum,
    "MINIMUM": minimum,
}
# A step in a loop becomes plain C as it is written: no kernel gives its sums and products TensorFlow Lite's roundings.
_IN_A_LOOP: dict[str, Converter] = {"ADD": add, "SUB": subtract, "MUL": multiply}


def integer_converter(file: TfliteFile, node: TfliteNode, *, in_loop: bool = False) -> Converter | None:
    """Return the converter of an operator whose inputs are quantized to int8, uint8 or int16, or None for others.

    in_loop: whether the operator belongs to a step that runs in a loop.
    """
    inputs = [file.tensors[index] for index in node.inputs if index >= 0]
    if not inputs or inputs[0].scales is None:
        return None
    if node.operator in _OF_BYTES and inputs[0].dtype in ("int8", "uint8"):
        return _OF_BYTES[node.operator]
    if inputs[0].dtype not in _OF_TYPE:
        return None
    if in_loop and node.operator in _IN_A_LOOP:
        return _IN_A_LOOP[node.operator]
    if node.operator in _OF_A_CONSTANT:
        return _OF_A_CONSTANT[node.operator] if any(tensor.data is not None for tensor in inputs) else None
    if node.operator == "SOFTMAX" and inputs[0].dtype == "int8":
        is_plain = options_of(node.table, tflite.SoftmaxOptions).Beta() == 1
        return None if is_plain and file.tensors[node.outputs[0]].dtype == "int8" else softmax_of_bytes
    if node.operator == "LEAKY_RELU":
        return leaky_relu if options_of(node.table, tflite.LeakyReluOptions).Alpha() < 0 else None
    return _OF_TYPE[inputs[0].dtype].get(node.operator)
