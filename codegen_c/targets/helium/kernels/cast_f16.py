"""Casts between float16 and float32 with Helium, four elements at a time.

float16[...] -> float32[...], exactly; float32[...] -> float16[...], to the nearest, of two to the even one.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, block
from codegen_c.kernels.contract import Array, CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.window import ROW_PARAMETERS, row_by_row, slot
from codegen_c.operators.kinds import HalfCast
from codegen_c.targets.helium.kernels.half_floats import LANES

VECTOR_INSTRUCTIONS, ROW_INSTRUCTIONS = 4, 30


def reference(operator: HalfCast, inputs: list[Array]) -> list[Array]:
    with np.errstate(over="ignore"):
        return [inputs[0].astype(operator.output.dtype)]


def implement(operator: HalfCast, target: Target, stored: StoredRows) -> Implementation:
    output, source = operator.output, operator.inputs[0]
    rowwise = len(output.shape) == 4 and output.shape[0] == 1
    num_rows = output.shape[1] if rowwise else 1
    function = "tvm_ext_round_halves" if output.dtype == "float16" else "tvm_ext_widen_halves"
    lines = [f"const int32_t count = {output.num_elements};", f"{function}(output, input, count);"]
    if rowwise:
        places = f"&output[{slot('h', stored.output)} * count], &input[{slot('h', stored.input(0))} * count]"
        row = f"{function}({places}, count);"
        count = output.num_elements // num_rows
        loop = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(row), "}"]
        lines = [f"const int32_t count = {count};", *loop]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *(ROW_PARAMETERS if rowwise else ()),
            ),
            body="\n".join(lines),
            includes=LANES.includes,
        ),
        reference=lambda inputs: reference(operator, inputs),
        instructions=output.num_elements * VECTOR_INSTRUCTIONS // LANES.count + num_rows * ROW_INSTRUCTIONS,
        spatial=row_by_row(output.shape[1]) if rowwise else None,
    )


KERNEL = Kernel(name="cast_f16", operator=HalfCast, implement=implement)
