"""LayerNorm and RMSNorm of a QDQ tensor over its last axis, integers only.

int8 or uint8[..., C] -> int8 or uint8[..., C], C up to 4096; exact sums, one inverse square root per vector
(normalizer.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, structure
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.normalization.normalizer import MOST_ELEMENTS, Normalizer
from codegen_c.kernels.shared.requantize import quantized_bytes
from codegen_c.kernels.shared.vectors_in_turn import in_turn
from codegen_c.operators.kinds import QNormalize

ELEMENT_INSTRUCTIONS, VECTOR_INSTRUCTIONS = 15, 120
INCLUDES = ("tvm_ext_normalize.h", "tvm_ext_layer.h", "tvm_ext_requantize.h")


def reference(operator: QNormalize, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    return [normalizer(operator).run(inputs[0].astype(np.int64)).astype(operator.output.dtype)]


def normalizer(operator: QNormalize) -> Normalizer:
    made = Normalizer.of(operator)
    assert made is not None, "what does not fit is refused"
    return made


def vectors_are_short(operator: QNormalize, target: Target) -> bool:
    """the last axis must have 2 to 4096 elements"""
    return 2 <= operator.inputs[0].shape[-1] <= MOST_ELEMENTS


def results_fit(operator: QNormalize, target: Target) -> bool:
    """weights and biases must be finite, and results at most 2^28 steps of the output before they are limited"""
    return Normalizer.of(operator) is not None


def implement(operator: QNormalize, target: Target, stored: StoredRows) -> Implementation:
    def vectors(count: int) -> Implementation:
        return of_vectors(operator, count)

    whole = vectors(operator.output.num_elements // operator.output.shape[-1])
    return replace(whole, in_rows=in_turn(operator, vectors))


def of_vectors(operator: QNormalize, count: int) -> Implementation:
    """The kernel for so many vectors."""
    source, output, made = operator.inputs[0], operator.output, normalizer(operator)
    members: dict[str, Value] = {"vectors": count, "length": made.length, "is_unsigned": source.dtype == "uint8"}
    layer = structure("tvm_ext_normalize_layer", "layer", members | made.members())
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                Parameter(name="weight", ctype="int32_t", role="constant"),
                Parameter(name="bias", ctype="int32_t", role="constant"),
            ),
            body="\n".join([*layer, "tvm_ext_normalize(&layer, input, output, weight, bias);"]),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weight", made.weight), ("bias", made.bias)),
        instructions=count * (made.length * ELEMENT_INSTRUCTIONS + VECTOR_INSTRUCTIONS),
        accumulation="exact",
        in_place=(0,),
        exact=True,
    )


KERNEL = Kernel(
    name="qnormalize_i8",
    operator=QNormalize,
    implement=implement,
    constraints=(quantized_bytes, vectors_are_short, results_fit),
)
