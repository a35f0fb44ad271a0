"""Operators of a TensorFlow Lite model that are refused by name and tensors alone."""

from __future__ import annotations

from tvm_ext.frontends.tflite.check_options import impossible
from tvm_ext.frontends.tflite.check_rescaling import rescaling
from tvm_ext.frontends.tflite.check_types import mistyped
from tvm_ext.frontends.tflite.custom import refusal_of_custom
from tvm_ext.frontends.tflite.dynamic_range import refusal_of_weights
from tvm_ext.frontends.tflite.read_file import ACTIVATIONS, TfliteFile, TfliteNode, TfliteTensor
from tvm_ext.frontends.tflite.sixteen_bits import refusal_of_words
from tvm_ext.frontends.tflite.variable_tensors import KEEPING, refusal_of_keeping

WAY_OUT = "Convert the model without them, with static shapes and built-in operators only."
"""Last line of the error that lists operators."""

_CONTROL_FLOW = frozenset("CALL STABLEHLO_WHILE STABLEHLO_COMPOSITE STABLEHLO_CUSTOM_CALL".split())
_CONDITIONS = {
    "IF": "depends on data; compute both results and choose one by SELECT_V2",
    "WHILE": "depends on data; only loops of a known number of times are taken, counted by whole numbers",
}
_RANDOM = frozenset("RANDOM_UNIFORM RANDOM_STANDARD_NORMAL MULTINOMIAL STABLEHLO_RNG_BIT_GENERATOR".split())
_TABLES = "HASHTABLE"
# Bit by bit the same in the schema, but another meaning: weights, biases, indices, shapes.
_INTEGER_DATA = ("int32", "int64")


def refusal(file: TfliteFile, node: TfliteNode) -> str | None:
    """Reason to refuse a node from its name and tensors alone; None without."""
    if node.operator.startswith("Flex"):
        return "a TensorFlow operator carried along (select TF); convert with built-in operators only"
    if node.is_custom:
        return refusal_of_custom(file, node)
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
