"""Softmax and log-softmax over the last axis, float32.

float32[..., C] -> float32[..., C]: the row's maximum is subtracted first, exponentials are summed with c
ascending. The output may take the place of the input.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import block
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.operators.kinds import Softmax


def reference(operator: Softmax, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 inside."""
    shifted = inputs[0].astype(np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    total = np.exp(shifted).sum(axis=-1, keepdims=True)
    result = shifted - np.log(total) if operator.log else np.exp(shifted) / total
    return [result.astype(np.float32)]


def implement(operator: Softmax, target: Target, stored: StoredRows) -> Implementation:
    length = operator.output.shape[-1]
    exponential = "total += expf(x[k] - maximum);" if operator.log else None
    lines = [
        "const float *x = &input[i];",
        "float *y = &output[i];",
        "float maximum = x[0];",
        f"for (int32_t k = 1; k < {length}; ++k) {{",
        block("maximum = maximum < x[k] ? x[k] : maximum;"),
        "}",
        "float total = 0.0f;",
        f"for (int32_t k = 0; k < {length}; ++k) {{",
        block(exponential or ["y[k] = expf(x[k] - maximum);", "total += y[k];"]),
        "}",
        *(["const float logarithm = logf(total);"] if operator.log else []),
        f"for (int32_t k = 0; k < {length}; ++k) {{",
        block("y[k] = x[k] - maximum - logarithm;" if operator.log else "y[k] /= total;"),
        "}",
    ]
    total = operator.output.num_elements
    parameters = (
        Parameter(name="input", ctype="float", role="input"),
        Parameter(name="output", ctype="float", role="output"),
    )
    body = "\n".join([f"for (int32_t i = 0; i < {total}; i += {length}) {{", block(lines), "}"])
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(parameters=parameters, body=body),
        reference=lambda inputs: reference(operator, inputs),
        instructions=total * 70,
        accumulation="c ascending",
        in_place=(0,),
    )


KERNEL = Kernel(name="softmax_f32", operator=Softmax, implement=implement)
