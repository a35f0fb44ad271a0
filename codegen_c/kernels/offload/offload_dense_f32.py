"""Dense layer of floats by an accelerator.

float32[..., C], float32[K, C] -> float32[..., K]: bias and products, then two bounds.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.dense.dense_f32 import reference
from codegen_c.kernels.offload.driver import bound_members, bounds, entry_of, started
from codegen_c.operators.kinds import Dense

KIND = "dense"


def is_taken(operator: Dense, target: Target) -> bool:
    """the accelerator's driver must take a dense layer of floats of its shape"""
    return entry_of(KIND, operator, target) is not None


def ends_in_bounds(operator: Dense, target: Target) -> bool:
    """a driver's layer of floats has bounds behind its sums, and nothing else"""
    return bounds(operator.finish) is not None


def implement(operator: Dense, target: Target, stored: StoredRows) -> Implementation:
    channels, depth = operator.weight.shape
    vectors = operator.output.num_elements // channels
    layer = {
        "vectors": vectors, "input_channels": depth, "output_channels": channels,
        **bound_members(bounds(operator.finish)),
    }  # fmt: skip
    return started(
        KERNEL.name, operator, target, entry_of(KIND, operator, target), layer,
        (("weights", np.ascontiguousarray(operator.weight)), ("bias", operator.bias)),
        reference=lambda inputs: reference(operator, inputs), macs=vectors * operator.weight.size,
    )  # fmt: skip


KERNEL = Kernel(
    name="offload_dense_f32", operator=Dense, implement=implement, constraints=(is_taken, ends_in_bounds), offload=True
)
