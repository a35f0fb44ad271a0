"""Softmax and log-softmax of float16 over the last axis with Helium: softmax_f32 of a vector, widened in scratch.

float16[..., C] -> float16[..., C], float32 inside, each result rounded once. The output may take the input's place.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import block
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.product_f32 import WIDENED, WIDENED_FLOATS
from codegen_c.kernels.shared.vectors_in_turn import in_turn
from codegen_c.kernels.softmax import softmax_f32
from codegen_c.operators.kinds import HalfSoftmax
from codegen_c.targets.helium.kernels.half_floats import LANES, rounded


def implement(operator: HalfSoftmax, target: Target, stored: StoredRows) -> Implementation:
    def vectors(count: int) -> Implementation:
        return _of_vectors(operator, target, count)

    whole = vectors(operator.output.num_elements // operator.output.shape[-1])
    return rounded(replace(whole, in_rows=in_turn(operator, vectors)))


def _of_vectors(operator: HalfSoftmax, target: Target, count: int) -> Implementation:
    made, length = softmax_f32.of_vectors(operator, target, count), operator.output.shape[-1]
    vector = [
        "tvm_ext_widen_halves(widened, &input[i], length);",
        f"{softmax_f32.function_of(operator, target)}(widened, widened, 1, length);",
        "tvm_ext_round_halves(&output[i], widened, length);",
    ]
    loop = [f"for (int32_t i = 0; i < {count} * length; i += length) {{", block(vector), "}"]
    return replace(
        made,
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=LANES.element, role="input"),
                Parameter(name="output", ctype=LANES.element, role="output"),
                WIDENED,
            ),
            body="\n".join([f"const int32_t length = {length};", WIDENED_FLOATS, *loop]),
            includes=(*made.function.includes, *LANES.includes),
        ),
        scratch_bytes=4 * length,
        instructions=made.instructions + 2 * operator.output.num_elements,
    )


KERNEL = Kernel(name="softmax_f16", operator=HalfSoftmax, implement=implement)
