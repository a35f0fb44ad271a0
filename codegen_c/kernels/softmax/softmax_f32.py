"""Kernel for softmax and log-softmax over the last axis, float32.

float32[..., C] -> float32[..., C]: the row's maximum is subtracted first; exponentials, by a polynomial of our own, are
summed in as many parts as the processor has lanes, with c ascending in each. The output may take the memory of the
input.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.lanes import native_lanes
from codegen_c.kernels.shared.vector_rows import in_turn
from codegen_c.operators.kinds import Softmax

# Modelled, as disassembled for a Cortex-M4: comparison of an element (7), its exponential and sum (31), and scaling
# (5); in between a division. On a Cortex-M55 lanes are compared and added one by one, and the last ones are also loaded
# so.
ELEMENT_INSTRUCTIONS, VECTOR_INSTRUCTIONS, LANE_INSTRUCTIONS = 43, 10, 28


def reference(operator: Softmax, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 inside."""
    shifted = inputs[0].astype(np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    total = np.exp(shifted).sum(axis=-1, keepdims=True)
    result = shifted - np.log(total) if operator.log else np.exp(shifted) / total
    return [result.astype(np.float32)]


def implement(operator: Softmax, target: Target, stored: StoredRows) -> Implementation:
    def vectors(count: int) -> Implementation:
        return of_vectors(operator, target, count)

    whole = vectors(operator.output.num_elements // operator.output.shape[-1])
    return replace(whole, in_rows=in_turn(operator, vectors))


def function_of(operator: Softmax, target: Target) -> str:
    """Return the name of the C function (input, output, vectors, length of each)."""
    return f"tvm_ext_{'log_' if operator.log else ''}softmax_f32x{native_lanes(target).count}"


def of_vectors(operator: Softmax, target: Target, count: int) -> Implementation:
    """Return the kernel of `count` vectors."""
    lanes, length = native_lanes(target).count, operator.output.shape[-1]
    lines = [
        f"const int32_t count = {count};",
        f"const int32_t length = {length};",
        f"{function_of(operator, target)}(input, output, count, length);",
    ]
    each = (
        -(-length // lanes) * ELEMENT_INSTRUCTIONS
        + VECTOR_INSTRUCTIONS
        + (lanes * LANE_INSTRUCTIONS if lanes > 1 else 0)
    )
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype="float", role="input"),
                Parameter(name="output", ctype="float", role="output"),
            ),
            body="\n".join(lines),
            includes=(
                f"tvm_ext_softmax_f32x{lanes}.h", f"tvm_ext_lanes_f32x{lanes}.h", f"tvm_ext_f32x{lanes}.h",
                "tvm_ext_layer.h",
            ),
        ),
        reference=lambda inputs: reference(operator, inputs),
        instructions=count * each,
        accumulation=f"c ascending in each of {lanes} lanes",
        in_place=(0,),
    )  # fmt: skip


KERNEL = Kernel(
    name="softmax_f32",
    title="Softmax and log-softmax over the last axis in float32",
    operator=Softmax,
    implement=implement,
)
