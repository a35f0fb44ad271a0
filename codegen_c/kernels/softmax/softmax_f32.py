"""Softmax and log-softmax over the last axis, float32.

float32[..., C] -> float32[..., C]: the row's maximum is subtracted first, exponentials are summed with c
ascending. The output may take the place of the input.
"""

from __future__ import annotations

import numpy as np

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
    function = "tvm_ext_log_softmax_f32" if operator.log else "tvm_ext_softmax_f32"
    total = operator.output.num_elements
    parameters = (
        Parameter(name="input", ctype="float", role="input"),
        Parameter(name="output", ctype="float", role="output"),
    )
    lines = [
        f"const int32_t count = {total // length};",
        f"const int32_t length = {length};",
        f"{function}(input, output, count, length);",
    ]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=parameters, body="\n".join(lines), includes=("tvm_ext_softmax_f32.h", "tvm_ext_layer.h")
        ),
        reference=lambda inputs: reference(operator, inputs),
        instructions=total * 70,
        accumulation="c ascending",
        in_place=(0,),
    )


KERNEL = Kernel(name="softmax_f32", operator=Softmax, implement=implement)
