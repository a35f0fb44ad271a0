"""Max and average pooling, float32, one output element at a time, channels innermost.

float32[N, H, W, C] -> float32[N, P, Q, C]. Average adds in the order r, s ascending and divides by the number of
elements inside the input, or by the window's size if padding counts. A window may be the whole image.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels import conv2d_f32
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.finish import Finish
from codegen_c.kernels.window import clip, offset, slot, spatial, tap_range, taps
from codegen_c.operators import Pool2d
from codegen_c.text import block, float_literal


def window_holds_input(operator: Pool2d, target: Target) -> bool:
    """every window must hold at least one element of the input"""
    top, left, bottom, right = operator.window.padding
    reach = [(k - 1) * d + 1 for k, d in zip(operator.window.kernel, operator.window.dilation, strict=True)]
    return operator.window.dilation == (1, 1) and max(top, bottom) < reach[0] and max(left, right) < reach[1]


def reference(operator: Pool2d, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 sums rounded once."""
    size = operator.output.shape[1:3]
    if operator.method == "max":
        slices = [x for _, _, x in taps(inputs[0], operator.window, size, -np.inf)]
        return [operator.finish.run(np.max(slices, axis=0), inputs)]
    total = sum(x.astype(np.float64) for _, _, x in taps(inputs[0], operator.window, size, 0.0))
    ones = np.ones_like(inputs[0], dtype=np.float64)
    counted = sum(x for _, _, x in taps(ones, operator.window, size, float(operator.count_include_pad)))
    return [operator.finish.run((total / counted).astype(np.float32), inputs)]


def implement(operator: Pool2d, target: Target, stored: StoredRows) -> Implementation:
    finish = Finish(program=operator.finish)
    num_taps = operator.window.kernel[0] * operator.window.kernel[1]
    parameters = tuple(p for p in conv2d_f32.parameters(finish) if p.name not in ("weights", "bias"))
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(parameters=parameters, body=_body(operator, stored, finish), helpers=finish.helper()),
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants(),
        instructions=operator.output.num_elements * (6 + 4 * num_taps + operator.finish.num_instructions),
        accumulation="r, s ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output, len(finish.input_parameters())),
    )


def _body(operator: Pool2d, stored: StoredRows, finish: Finish) -> str:
    window, (batch, height, columns, channels) = operator.window, operator.inputs[0].shape
    r_begin, r_end = tap_range(0, window, ("r_begin", "r_end"))
    s_begin, s_end = tap_range(1, window, ("s_begin", "s_end"))
    row = slot(offset({"top": 1, "r": 1}), stored.input(0))
    row = f"n * {height} + {row}" if batch > 1 else row
    element = f"input[(({row}) * {columns} + left + s) * {channels} + k]"
    if operator.method == "max":
        start, take = "-INFINITY", [f"const float x = {element};", "sum0 = sum0 < x ? x : sum0;"]
    else:
        start, take = "0.0f", [f"sum0 += {element};"]
    lines = [
        f"float sum0 = {start};",
        f"for (int32_t r = {r_begin}; r < {r_end}; ++r) {{",
        block([f"for (int32_t s = {s_begin}; s < {s_end}; ++s) {{", block(take), "}"]),
        "}",
    ]
    if operator.method == "average":
        lines.append(f"sum0 /= {_count(operator, (r_begin, r_end), (s_begin, s_end))};")
    lines.append(f"output[pixel + k] = {conv2d_f32.finished(finish, 0)};")
    pixel = [
        *clip(1, window, columns, "w", names=("left", "s_begin", "s_end")),
        *conv2d_f32.pixel_offsets(operator, stored, finish),
        f"for (int32_t k = 0; k < {channels}; ++k) {{",
        block(lines),
        "}",
    ]
    rows = clip(0, window, height, "h", names=("top", "r_begin", "r_end"))
    return conv2d_f32.over_pixels(rows, pixel, operator.output.shape)


def _count(operator: Pool2d, rows: tuple[str, str], columns: tuple[str, str]) -> str:
    kernel = operator.window.kernel
    if operator.count_include_pad or not any(operator.window.padding):
        return float_literal(float(kernel[0] * kernel[1]))
    return f"(float)(({rows[1]} - {rows[0]}) * ({columns[1]} - {columns[0]}))"


KERNEL = Kernel(name="pool2d_f32", operator=Pool2d, implement=implement, constraints=(window_holds_input,))
