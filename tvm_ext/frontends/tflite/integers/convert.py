"""The operators on integers that are converted here, by element type, and the operators with a constant.

`unlike_litert` has the operators whose integers LiteRT computes in arithmetic that is not built here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tflite
from tvm import relax

from codegen_c.kernels.shared.requantize_tflite import fixed_point
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


_OTHER_ARITHMETIC = (
    "LiteRT computes it on {dtype} in other arithmetic than TensorFlow Lite Micro, and the former is not built here; "
    "choose --rounding tflm"
)


def unlike_litert(file: TfliteFile, node: TfliteNode) -> str | None:
    """Return why an operator on integers cannot have the bytes of LiteRT's default interpreter, or None.

    Its kernels of int16 multiply scales in single precision, which gives other factors of 31 bits than TensorFlow Lite
    Micro's double precision, except for scales such as powers of two. SOFTMAX has other tables of exponentials, LSTM
    other functions of its gates, and FULLY_CONNECTED and SUM round their sums in another way. For sums of two tensors
    whose scales are powers of two there is a kernel that shifts.
    """
    tensors = [file.tensors[index] for index in (*node.inputs, node.outputs[0]) if index >= 0]
    if len(tensors) < 2 or tensors[0].scales is None or tensors[-1].scales is None:
        return None
    types = tensors[0].dtype, tensors[-1].dtype
    scales = [np.float32(one.scales.scale[0]) for one in tensors if one.scales is not None and one.scales.scale.size]
    is_off = {
        "FULLY_CONNECTED": lambda: True,
        "SOFTMAX": lambda: True,
        "SUM": lambda: scales[0] != scales[-1],
        "ABS": lambda: _differ(scales[0], scales[-1]),
        "RELU": lambda: _differ(scales[0], scales[-1]),
        "LEAKY_RELU": lambda: _differ(scales[0], scales[-1]) or _slope_differs(node, scales),
        "PRELU": lambda: _differ(scales[0], scales[-1]) or _differ(scales[0] * scales[1], scales[-1], scales[:2]),
        "MUL": lambda: _differ(scales[0] * scales[1], scales[-1], scales[:2]),
        "ADD": lambda: all(np.frexp(scale)[0] == 0.5 for scale in scales),
        "SUB": lambda: all(np.frexp(scale)[0] == 0.5 for scale in scales),
    }
    is_word = types[0] == "int16" or (node.operator == "SOFTMAX" and types == ("int8", "int16"))
    if (is_word and node.operator in is_off and is_off[node.operator]()) or (
        node.operator == "UNIDIRECTIONAL_SEQUENCE_LSTM" and types[0] == "int8"
    ):
        return _OTHER_ARITHMETIC.format(dtype=" to ".join(dict.fromkeys(str(one) for one in types)))
    return None


def _differ(product: np.float32, output: np.float32, factors: Sequence[np.float32] = ()) -> bool:
    """Return True if a quotient of scales has another factor of 31 bits in single precision than in double precision.

    product: of the scales of inputs, in single precision. factors: these scales, if there are several.
    """
    exact = np.prod([float(one) for one in factors or (product,)]) / float(output)
    return fixed_point(float(product / output)) != fixed_point(float(exact))


def _slope_differs(node: TfliteNode, scales: Sequence[np.float32]) -> bool:
    slope = np.float32(options_of(node.table, tflite.LeakyReluOptions).Alpha())
    return _differ(np.abs(scales[0] * slope), scales[-1])
