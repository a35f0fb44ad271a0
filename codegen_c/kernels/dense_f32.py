"""Dense layer, float32: a matrix product with constant weights, two rows by four channels at a time.

float32[..., C], float32[K, C] -> float32[..., K]. Each element starts at its bias and adds products with c
ascending.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels import conv2d_f32, matrix_f32
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.finish import Finish
from codegen_c.operators import Dense
from codegen_c.scalar import Operand
from codegen_c.text import plus, times


def reference(operator: Dense, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 sums rounded once."""
    total = inputs[0].astype(np.float64) @ operator.weight.T.astype(np.float64) + operator.bias
    return [operator.finish.run(total.astype(np.float32).reshape(operator.output.shape), inputs)]


def implement(operator: Dense, target: Target, stored: StoredRows) -> Implementation:
    finish = Finish(program=operator.finish)
    depth = operator.weight.shape[1]
    macs = operator.output.num_elements * depth
    weights = conv2d_f32.pack(operator.weight[:, None, None, :], matrix_f32.CHANNELS)
    parameters = tuple(p for p in conv2d_f32.parameters(finish) if p.role != "row")
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(parameters=parameters, body=_body(operator, finish), helpers=finish.helper()),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weights", weights), ("bias", operator.bias), *finish.constants()),
        macs=macs,
        instructions=macs * 3 + operator.output.num_elements * (4 + operator.finish.num_instructions),
        accumulation="bias, then c ascending",
    )


def _body(operator: Dense, finish: Finish) -> str:
    channels, depth = operator.weight.shape

    def rows(count: int) -> list[str]:
        def store(value: str, p: int, j: int) -> str:
            place = plus(f"{times(plus('m', p), channels)} + k", j)

            def operand(o: Operand) -> str:
                return f"input{o.index}[{place}]" if o.kind == "input" else f"channel{o.index}[{plus('k', j)}]"

            return f"output[{place}] = {finish.call(value, operand)};"

        sources = [f"const float *x{p} = &input[{times(plus('m', p), depth)}];" for p in range(count)]
        return [
            *sources,
            *matrix_f32.over_channels(channels, lambda width: matrix_f32.tile(count, width, depth, store)),
        ]

    return "\n".join(matrix_f32.over_pixels("m", operator.output.num_elements // channels, rows))


KERNEL = Kernel(name="dense_f32", operator=Dense, implement=implement)
