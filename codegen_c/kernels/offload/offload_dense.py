"""Dense layer of a QDQ chain by an accelerator.

int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K]: a sum is its bias and all (x - zero point) * w; either
rounding.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.offload.driver import entry_of, factors, scales, started
from codegen_c.kernels.shared.requantize import integer_weights, quantized_bytes
from codegen_c.operators.kinds import QDense

KIND = "dense"


def is_taken(operator: QDense, target: Target) -> bool:
    """the accelerator's driver must take a dense layer of its type, shape and rounding"""
    return entry_of(KIND, operator, target) is not None


def implement(operator: QDense, target: Target, stored: StoredRows) -> Implementation:
    finish, (channels, depth) = qdense.requantize(operator), operator.weight.shape
    vectors = operator.output.num_elements // channels
    layer = {
        "vectors": vectors, "input_channels": depth, "output_channels": channels, **scales(operator.inputs[0], finish)
    }  # fmt: skip
    weights = np.ascontiguousarray(operator.weight)
    constants = (("weights", weights), ("bias", operator.bias), *factors(finish, channels))
    return started(
        KERNEL.name, operator, target, entry_of(KIND, operator, target), layer, constants,
        reference=lambda inputs: qdense.reference(operator, inputs),
        macs=vectors * operator.weight.size,
    )  # fmt: skip


KERNEL = Kernel(
    name="offload_dense", operator=QDense, implement=implement,
    constraints=(is_taken, quantized_bytes, integer_weights, qdense.sums_fit, qdense.rescaled_sums_fit), offload=True,
)  # fmt: skip
