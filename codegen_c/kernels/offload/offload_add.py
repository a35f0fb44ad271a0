"""Sum of two tensors of a QDQ chain by an accelerator, element by element; a bound of the result is an activation.

int8 or uint8[...], the same[...] -> the same[...]: rounded once, or twice as TensorFlow Lite does.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise.qbinary import (
    common_shift,
    reference,
    results_in_range,
    same_shape,
    tflite_factors,
    tflite_shift,
)
from codegen_c.kernels.offload.driver import FIXED_POINT_BITS, entry_of, started
from codegen_c.kernels.shared.requantize import quantization, quantized_bytes
from codegen_c.operators.kinds import QBinary

KIND = "add"


def is_sum(operator: QBinary, target: Target) -> bool:
    """a driver's add takes sums, not differences or products"""
    return operator.function == "add"


def is_taken(operator: QBinary, target: Target) -> bool:
    """the accelerator's driver must take a sum of its type, shape and rounding"""
    return entry_of(KIND, operator, target) is not None


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    first, second = (quantization(tensor).zero_point for tensor in operator.inputs)
    layer = {
        "elements": operator.output.num_elements, "first_zero_point": first, "second_zero_point": second,
        "output_zero_point": quantization(operator.output).zero_point, "low": operator.low, "high": operator.high,
        "is_unsigned": operator.output.dtype == "uint8", "rounds_twice": operator.rounding == "tflite",
        **_factors(operator),
    }  # fmt: skip
    return started(
        KERNEL.name, operator, target, entry_of(KIND, operator, target), layer,
        reference=lambda inputs: reference(operator, inputs), taken=operator.output.num_elements,
    )  # fmt: skip


def _factors(operator: QBinary) -> dict[str, int]:
    """Factors as multiplier * 2^(shift - 31): of both elements, and of their sum where that is rounded again."""
    if operator.rounding != "tflite":
        first, second, shift = common_shift(operator)
        shift = FIXED_POINT_BITS - shift
        return {"first_multiplier": first, "first_shift": shift, "second_multiplier": second, "second_shift": shift}
    members = {"bits": tflite_shift(operator)}
    for name, (multiplier, shift) in zip(("first_", "second_", ""), tflite_factors(operator), strict=True):
        members |= {f"{name}multiplier": multiplier, f"{name}shift": FIXED_POINT_BITS - shift}
    return members


KERNEL = Kernel(
    name="offload_add", operator=QBinary, implement=implement,
    constraints=(is_sum, is_taken, quantized_bytes, same_shape, results_in_range), offload=True,
)  # fmt: skip
