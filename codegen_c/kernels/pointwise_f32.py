"""1x1 conv2d, float32: a matrix product of pixels by channels, two pixels by four channels at a time.

float32[N, H, W, C], float32[K, 1, 1, C] -> float32[N, H, W, K]. Each element starts at its bias and adds
products with c ascending.
"""

from __future__ import annotations

from codegen_c.kernels import conv2d_f32, matrix_f32
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.finish import Finish
from codegen_c.kernels.window import slot, spatial
from codegen_c.operators import Conv2d
from codegen_c.scalar import Operand
from codegen_c.text import block, plus, times


def is_pointwise(operator: Conv2d, target: Target) -> bool:
    """the window must be 1x1, without stride, padding or groups"""
    return operator.window.is_pointwise and operator.groups == 1


def implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    finish = Finish(program=operator.finish)
    macs = operator.output.num_elements * operator.weight.shape[3]
    weights = conv2d_f32.pack(operator.weight, matrix_f32.CHANNELS)
    body = _body(operator, stored, finish)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(parameters=conv2d_f32.parameters(finish), body=body, helpers=finish.helper()),
        reference=lambda inputs: conv2d_f32.reference(operator, inputs),
        constants=(("weights", weights), ("bias", operator.bias), *finish.constants()),
        macs=macs,
        instructions=macs * 2 + operator.output.num_elements * (4 + operator.finish.num_instructions),
        accumulation="bias, then c ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output, len(finish.input_parameters())),
    )


def _body(operator: Conv2d, stored: StoredRows, finish: Finish) -> str:
    (batch, height, columns, depth), channels = operator.inputs[0].shape, operator.output.shape[3]

    def row(kept: int | None) -> str:
        return f"(n * {height} + h)" if batch > 1 else slot("h", kept)

    rows = [
        f"const float *x = &input[{row(stored.input(0))} * {columns * depth}];",
        f"const int32_t row = {row(stored.output)} * {columns * channels};",
    ]
    residuals = [i for i in operator.finish.inputs_read() if i > 0]
    rows += [f"const int32_t row{i} = {row(stored.input(i))} * {columns * channels};" for i in residuals]

    def pixels(count: int) -> list[str]:
        def store(value: str, p: int, j: int) -> str:
            place = plus(f"{times(plus('w', p), channels)} + k", j)

            def operand(o: Operand) -> str:
                return (
                    f"input{o.index}[row{o.index} + {place}]"
                    if o.kind == "input"
                    else f"channel{o.index}[{plus('k', j)}]"
                )

            return f"output[row + {place}] = {finish.call(value, operand)};"

        sources = [f"const float *x{p} = &x[{times(plus('w', p), depth)}];" for p in range(count)]
        tiles = matrix_f32.over_channels(channels, lambda width: matrix_f32.tile(count, width, depth, store))
        return [*sources, *tiles]

    rows += matrix_f32.over_pixels("w", columns, pixels)
    lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(rows), "}"]
    if batch > 1:
        lines = [f"for (int32_t n = 0; n < {batch}; ++n) {{", block(lines), "}"]
    return "\n".join(lines)


KERNEL = Kernel(name="pointwise_f32", operator=Conv2d, implement=implement, constraints=(is_pointwise,))
