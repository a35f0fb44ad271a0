"""Max and average pools of a QDQ chain by an accelerator.

int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]: the largest element of a window inside of the input; or a sum of
all (x - zero point) there, with a factor for each number of elements, or the integers' own average.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.offload.driver import entry_of, factors, started, window_members
from codegen_c.kernels.pooling.pool_sums import average, counted_taps, reference
from codegen_c.kernels.pooling.qpool2d import WINDOWS
from codegen_c.kernels.shared.requantize import quantization, quantized_bytes
from codegen_c.operators.kinds import Pool2d, QPool2d


def kind_of(operator: QPool2d | Pool2d) -> str:
    return f"{operator.method}_pool"


def is_taken(operator: QPool2d, target: Target) -> bool:
    """the accelerator's driver must take a pool of its method, type, shape, window and rounding"""
    return entry_of(kind_of(operator), operator, target, operator.window) is not None


def implement(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    finish, source = average(operator) if operator.has_factor else None, operator.inputs[0]
    num_factors = finish.mantissa.size if finish else 0
    layer = {
        "window": window_members(operator, operator.window),
        "input_zero_point": quantization(source).zero_point,
        "output_zero_point": quantization(operator.output).zero_point,
        "low": operator.low, "high": operator.high, "fewest": int(counted_taps(operator).min()),
        "num_factors": num_factors, "is_unsigned": source.dtype == "uint8",
        "rounds_twice": finish is not None and finish.rounding == "tflite",
    }  # fmt: skip
    return started(
        KERNEL.name, operator, target, entry_of(kind_of(operator), operator, target, operator.window), layer,
        factors(finish, num_factors) if finish else (), reference=lambda inputs: reference(operator, inputs),
        taken=taps_of(operator),
    )  # fmt: skip


def taps_of(operator: QPool2d | Pool2d) -> int:
    """Elements that all windows take."""
    return operator.output.num_elements * operator.window.kernel[0] * operator.window.kernel[1]


KERNEL = Kernel(
    name="offload_pool", operator=QPool2d, implement=implement, constraints=(is_taken, quantized_bytes, *WINDOWS),
    offload=True,
)  # fmt: skip
