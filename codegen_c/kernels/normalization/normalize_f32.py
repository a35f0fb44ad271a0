"""Kernel for LayerNorm and RMSNorm over the last axis, float32.

float32[..., C] -> float32[..., C]. A vector is summed in as many parts as the processor has lanes, with c ascending in
each; squares are those of differences from the mean. The output may take the memory of the input.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import Value, float_literal, structure
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.lanes import native_lanes
from codegen_c.kernels.shared.vector_rows import in_turn
from codegen_c.operators.kinds import Normalize

ELEMENT_INSTRUCTIONS, VECTOR_INSTRUCTIONS = 17, 85


def reference(operator: Normalize, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 inside."""
    x = inputs[0].astype(np.float64)
    centered = x - x.mean(axis=-1, keepdims=True) if operator.is_centered else x
    scaled = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + operator.epsilon)
    return [(scaled * operator.weight + operator.bias).astype(np.float32)]


def implement(operator: Normalize, target: Target, stored: StoredRows) -> Implementation:
    def vectors(count: int) -> Implementation:
        return _of_vectors(operator, target, count)

    whole = vectors(operator.output.num_elements // operator.output.shape[-1])
    return replace(whole, in_rows=in_turn(operator, vectors))


def _of_vectors(operator: Normalize, target: Target, count: int) -> Implementation:
    lanes, length = native_lanes(target).count, operator.output.shape[-1]
    members: dict[str, Value] = {
        "vectors": count, "length": length, "is_centered": operator.is_centered,
        "epsilon": float_literal(operator.epsilon),
    }  # fmt: skip
    layer = structure("tvm_ext_normalize_f32_layer", "layer", members)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype="float", role="input"),
                Parameter(name="output", ctype="float", role="output"),
                Parameter(name="weight", ctype="float", role="constant"),
                Parameter(name="bias", ctype="float", role="constant"),
            ),
            body="\n".join([*layer, f"tvm_ext_normalize_f32x{lanes}(&layer, input, output, weight, bias);"]),
            includes=(
                f"tvm_ext_normalize_f32x{lanes}.h", f"tvm_ext_lanes_f32x{lanes}.h", f"tvm_ext_f32x{lanes}.h",
                "tvm_ext_layer.h",
            ),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weight", operator.weight), ("bias", operator.bias)),
        instructions=count * (length * ELEMENT_INSTRUCTIONS // lanes + VECTOR_INSTRUCTIONS),
        accumulation=f"c ascending in each of {lanes} lanes",
        in_place=(0,),
    )  # fmt: skip


KERNEL = Kernel(
    name="normalize_f32",
    title="LayerNorm and RMSNorm over the last axis in float32",
    operator=Normalize,
    implement=implement,
)
