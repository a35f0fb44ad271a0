"""The part of TOSA's format that both of its forms share: operators, their attributes, and element types.

The order of the operators and of each operator's attributes is the order in the flatbuffer schema of TOSA 1.0. MLIR
text uses the same names, in lower case for operators.
"""

from __future__ import annotations

from collections.abc import Mapping

OPERATORS = (
    "UNKNOWN ARGMAX AVG_POOL2D CONV2D CONV3D DEPTHWISE_CONV2D FFT2D MATMUL MAX_POOL2D RFFT2D TRANSPOSE_CONV2D CLAMP "
    "ERF SIGMOID TANH ADD ARITHMETIC_RIGHT_SHIFT BITWISE_AND BITWISE_OR BITWISE_XOR INTDIV LOGICAL_AND "
    "LOGICAL_LEFT_SHIFT LOGICAL_RIGHT_SHIFT LOGICAL_OR LOGICAL_XOR MAXIMUM MINIMUM MUL POW SUB TABLE ABS BITWISE_NOT "
    "CEIL CLZ COS EXP FLOOR LOG LOGICAL_NOT NEGATE RECIPROCAL RSQRT SIN SELECT EQUAL GREATER GREATER_EQUAL REDUCE_ALL "
    "REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PRODUCT REDUCE_SUM CONCAT PAD RESHAPE REVERSE SLICE TILE TRANSPOSE GATHER "
    "SCATTER RESIZE CAST RESCALE CONST IDENTITY CUSTOM COND_IF WHILE_LOOP VARIABLE VARIABLE_WRITE VARIABLE_READ "
    "CONST_SHAPE"
).split()
"""Names by number. A number beyond the end belongs to a newer version of TOSA."""

_WINDOW = "pad:ints stride:ints dilation:ints local_bound:bool acc_type:dtype"
_POOL = "kernel:ints stride:ints pad:ints"
_FIELDS = {
    "ARGMAX": "axis:int nan_mode:nan",
    "AVG_POOL2D": f"{_POOL} acc_type:dtype",
    "CONV2D": _WINDOW,
    "CONV3D": _WINDOW,
    "DEPTHWISE_CONV2D": _WINDOW,
    "MAX_POOL2D": f"{_POOL} nan_mode:nan",
    "TRANSPOSE_CONV2D": "out_pad:ints stride:ints local_bound:bool acc_type:dtype",
    "CLAMP": "min_val:bytes max_val:bytes nan_mode:nan",
    "ARITHMETIC_RIGHT_SHIFT": "round:bool",
    "MAXIMUM": "nan_mode:nan",
    "MINIMUM": "nan_mode:nan",
    "REDUCE_ALL": "axis:int",
    "REDUCE_ANY": "axis:int",
    "REDUCE_MAX": "axis:int nan_mode:nan",
    "REDUCE_MIN": "axis:int nan_mode:nan",
    "REDUCE_PRODUCT": "axis:int",
    "REDUCE_SUM": "axis:int",
    "CONCAT": "axis:int",
    "REVERSE": "axis:int",
    "TRANSPOSE": "perms:ints",
    "RESIZE": "mode:mode",
    "RESCALE": "scale32:bool rounding_mode:rounding per_channel:bool input_unsigned:bool output_unsigned:bool",
}
ATTRIBUTES: Mapping[str, tuple[tuple[str, str], ...]] = {
    operator: tuple(tuple(field.split(":")) for field in fields.split())  # type: ignore[misc]
    for operator, fields in _FIELDS.items()
}
"""Name and kind of each attribute of an operator, in the order of the schema. Other operators have none."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "nan": ("UNKNOWN", "PROPAGATE", "IGNORE"),
    "mode": ("UNKNOWN", "NEAREST", "BILINEAR"),
    "rounding": ("UNKNOWN", "SINGLE_ROUND", "INEXACT_ROUND", "DOUBLE_ROUND"),
}
"""Names of the values of an attribute by its kind."""

TYPES = (
    "unknown bool int4 int8 int16 int32 int48 float32 float16 bfloat16 shape fp8e4m3 fp8e5m2 fp6e2m3 fp6e3m2 fp4e2m1 "
    "fp8ue8m0 int64 mxint8"
).split()
"""Names of element types by number."""

STORED = {
    "bool": "bool",
    "int4": "int8",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int48": "int64",
    "float32": "float32",
    "shape": "int64",
}
"""Element type in numpy and in C of each element type that can be compiled."""

BITS = {"int4": 4, "int8": 8, "int16": 16, "int32": 32, "int48": 48}
"""Bits of each integer type, all signed."""
