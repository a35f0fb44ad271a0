"""float32 to int8 or uint8 and back, by one scale and zero point for the whole tensor.

To integers: x / scale rounded half to even, plus the zero point, clamped; not a number becomes the least integer.
Back: (q - zero point) * scale in float32. Images [1, H, W, C] are converted row by row.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, block, float_literal
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.window import ROW_PARAMETERS, row_by_row, slot
from codegen_c.operators.kinds import Convert


def has_float(operator: Convert, target: Target) -> bool:
    """the processor must have an FPU"""
    return target.has_float


def reference(operator: Convert, inputs: list[np.ndarray]) -> list[np.ndarray]:
    scale, zero = np.float32(operator.quantization.scale), operator.quantization.zero_point
    if operator.output.dtype == "float32":
        return [(inputs[0].astype(np.int32) - zero).astype(np.float32) * scale]
    limits = np.iinfo(operator.output.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        value = np.rint(inputs[0] / scale) + np.float32(zero)
    raised = np.where(value > limits.min, value, np.float32(limits.min))
    return [np.where(raised < limits.max, raised, np.float32(limits.max)).astype(operator.output.dtype)]


def implement(operator: Convert, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    by_rows = len(output.shape) == 4 and output.shape[0] == 1
    parameters = (
        Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
        Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
        *(ROW_PARAMETERS if by_rows else ()),
    )
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=parameters, body=_rows(operator, stored) if by_rows else _loop(operator, output.num_elements),
            includes=("math.h",),
        ),
        reference=lambda inputs: reference(operator, inputs),
        instructions=output.num_elements * (6 if output.dtype == "float32" else 12),
        spatial=row_by_row(output.shape[1]) if by_rows else None,
    )  # fmt: skip


def _rows(operator: Convert, stored: StoredRows) -> str:
    size = operator.output.num_elements // operator.output.shape[1]
    rows = {"source": stored.input(0), "target": stored.output}
    lines = [f"const int32_t {name} = {slot('h', kept)} * {size};" for name, kept in rows.items()]
    loop = _loop(operator, size, "source + i", "target + i")
    return "\n".join(["for (int32_t h = row_begin; h < row_end; ++h) {", block([*lines, loop]), "}"])


def _loop(operator: Convert, count: int, read: str = "i", written: str = "i") -> str:
    dtype = operator.output.dtype
    scale, zero = float_literal(operator.quantization.scale), operator.quantization.zero_point
    if dtype == "float32":
        number = f"(int32_t)input[{read}]" + (f" - {zero}" if zero > 0 else f" + {-zero}" if zero else "")
        lines = [f"output[{written}] = (float)({number}) * {scale};"]
    else:
        low, high = (float_literal(float(limit)) for limit in (np.iinfo(dtype).min, np.iinfo(dtype).max))
        value = f"rintf(input[{read}] / {scale})" + (f" + {float_literal(float(zero))}" if zero else "")
        lines = [
            f"const float value = {value};",
            f"const float raised = value > {low} ? value : {low};",
            f"output[{written}] = ({C_TYPES[dtype]})(raised < {high} ? raised : {high});",
        ]
    return "\n".join([f"for (int32_t i = 0; i < {count}; ++i) {{", block(lines), "}"])


KERNEL = Kernel(name="convert_quantized", operator=Convert, implement=implement, constraints=(has_float,))
