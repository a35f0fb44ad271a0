"""Tables of one-input functions as TensorFlow Lite Micro computes them.

Exact, byte for byte, for what is linear on either side of zero (requantization, relu, leaky relu): one factor each,
with TensorFlow Lite's roundings; and for what it computes in fixed point (tflite_functions.py). Other functions are
rounded from single precision, halves away from zero, as it fills its own tables.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Array
from codegen_c.kernels.elementwise.linear_factors import linear_factors
from codegen_c.kernels.elementwise.tflite_functions import fixed_point_function
from codegen_c.kernels.shared.requantize import quantization, scale_of
from codegen_c.kernels.shared.requantize_tflite import fixed_point, multiply
from codegen_c.operators.kinds import QUnary


def tflite_table(operator: QUnary) -> Array:
    """Results by the input's bit pattern (0 to 255), [256] of the output's type."""
    source, output = operator.inputs[0], operator.output
    steps = np.arange(256, dtype=np.uint8).view(source.dtype).astype(np.int64) - quantization(source).zero_point
    factors, found = linear_factors(operator), fixed_point_function(operator)
    if found is not None:
        result = found(steps)
    elif factors is None:
        element = steps.astype(np.float32) * np.float32(scale_of(source))
        value = operator.finish.run(element, [element]) * (np.float32(1) / np.float32(scale_of(output)))
        result = np.copysign(np.floor(np.abs(np.nan_to_num(value, nan=0.0)) + 0.5), value)
    else:
        above, below = (multiply(steps, *fixed_point(factor)) for factor in factors)
        result = np.where(steps >= 0, above, below)
    limits = np.iinfo(output.dtype)
    return np.clip(result + quantization(output).zero_point, limits.min, limits.max).astype(output.dtype)
