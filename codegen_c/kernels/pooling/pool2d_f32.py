"""Kernel for max and average pooling, float32, one output element at a time, channels innermost.

float32[N, H, W, C] -> float32[N, P, Q, C]. The maximum of a window is its last element if that is NaN, as in
onnxruntime's vectors, and otherwise skips NaN. The average adds in the order r, s ascending and divides by the number
of elements inside the input, or by the window's size if padding counts. A window may be the whole image.

Loops over a window's taps are generated, because the epilogue is: as a function of tvm_ext_pool2d_f32.h, as for rows of
whole images, a padded 3x3 maximum took 7 % more instructions on a Cortex-M4, and an average 2 %.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import block, float_literal, loop
from codegen_c.kernels.contract import Accumulating, CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.convolution.conv_f32 import by_pixels, input_place, input_sizes, parameters, pixel_offsets
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.shared.copies import SHORTEST_LOOP, loop_instructions
from codegen_c.kernels.shared.lanes import SCALAR, Finish
from codegen_c.kernels.shared.layer import image, shapes, with_rings
from codegen_c.kernels.shared.window import (
    Bound,
    accumulated,
    clip,
    over,
    spatial,
    tap_range,
    taps,
)
from codegen_c.operators.kinds import Pool2d
from codegen_c.operators.scalar import Operand

LAYER = "tvm_ext_pool2d_f32_layer"
ROW_INSTRUCTIONS = 4
"""Modelled instructions of a row of a window: increment of the pointer, and the loop."""


def window_holds_input(operator: Pool2d, target: Target) -> bool:
    """every window must hold at least one element of the input"""
    top, left, bottom, right = operator.window.padding
    reach = [(k - 1) * d + 1 for k, d in zip(operator.window.kernel, operator.window.dilation, strict=True)]
    return operator.window.dilation == (1, 1) and max(top, bottom) < reach[0] and max(left, right) < reach[1]


def reference(operator: Pool2d, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 sums rounded once."""
    size = operator.output.shape[1], operator.output.shape[2]
    if operator.method == "max":
        inside = taps(np.ones_like(inputs[0]), operator.window, size, 0.0)
        largest = np.full(operator.output.shape, -np.inf, np.float32)
        for (_, _, x), (_, _, is_inside) in zip(taps(inputs[0], operator.window, size, -np.inf), inside, strict=True):
            largest = np.where((largest > x) | (is_inside == 0), largest, x)
        return [operator.finish.run(largest, inputs)]
    total = np.sum([x.astype(np.float64) for _, _, x in taps(inputs[0], operator.window, size, 0.0)], axis=0)
    ones = np.ones_like(inputs[0], dtype=np.float64)
    counted = np.sum([x for _, _, x in taps(ones, operator.window, size, float(operator.count_include_pad))], axis=0)
    return [operator.finish.run((total / counted).astype(np.float32), inputs)]


def implement(operator: Pool2d, target: Target, stored: StoredRows) -> Implementation:
    finish = Finish(program=operator.finish)
    num_taps = operator.window.kernel[0] * operator.window.kernel[1]
    return Implementation(
        kernel=KERNEL.name,
        function=by_pixels(operator, finish, 1, lambda _: _pixel(operator, stored, finish), constants=()),
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants(),
        instructions=operator.output.num_elements * (_instructions(operator) + operator.finish.num_instructions),
        passes=Passes(input=max(1.0, operator.output.num_elements * num_taps / operator.inputs[0].num_elements)),
        accumulation="r, s ascending",
        spatial=spatial(
            operator.window, operator.inputs[0], operator.output, len(finish.residuals()), columns_at_once=1
        ),
        accumulating=_accumulating(operator),
        pitched=True,
        row_pitched=True,
    )


def _accumulating(operator: Pool2d) -> Accumulating | None:
    """Return a pool over the whole image that takes its rows in parts; None for other pools."""
    if not qpool2d.is_global(operator):
        return None
    return Accumulating(
        row_counts=(operator.inputs[0].shape[1],), implement=lambda rows, stored: _by_rows(operator, stored)
    )


def _by_rows(operator: Pool2d, stored: StoredRows) -> Implementation:
    """Return a pool with one value for each channel, kept in the output; the last call finishes it."""
    finish, average = Finish(program=operator.finish), operator.method == "average"
    count = f" / {_count(operator, (0, 0), (0, 0))}" if average else ""
    finished = finish.call(f"output[k]{count}", lambda o: f"channel{o.index}[k]")
    _, rows, _, channels = operator.inputs[0].shape
    rings, layer = with_rings(LAYER, stored)
    lines = [*rings, f"tvm_ext_pool2d_f32_add({layer}, input, output, row_begin, row_end);"]
    if average or finish.program.instructions:
        each = loop("k", channels, [f"output[k] = {finished};"])
        lines += [f"if (row_end == {rows}) {{", block(each), "}"]
    function = CFunction(
        parameters=parameters(finish, constants=()),
        body="\n".join(lines),
        helpers="\n".join(
            (shapes(LAYER, {"input": image(operator.inputs[0]), "is_maximum": not average}), finish.helper(SCALAR))
        ),
        includes=("tvm_ext_pool2d_f32.h", "tvm_ext_layer.h"),
    )
    elements = operator.output.num_elements
    whole = operator.inputs[0].num_elements * 4 + elements * (6 + operator.finish.num_instructions)
    return Implementation(
        kernel=f"{KERNEL.name}_by_rows",
        function=function,
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants(),
        instructions=qpool2d.instructions(operator, whole),
        accumulation="r, s ascending",
        spatial=accumulated(rows),
    )


def _instructions(operator: Pool2d) -> int:
    """Return the modelled instructions of one element:

    a maximum checks for NaN at each tap, sums add; padding clips.
    """
    rows, columns = operator.window.kernel
    if operator.method == "max":
        return 4 + 6 * rows * columns
    if any(operator.window.padding):
        return 2 + 7 * rows * columns // 2
    row = loop_instructions(columns, 2)
    return 4 + rows * row + (ROW_INSTRUCTIONS * rows if rows * columns > SHORTEST_LOOP + 1 else 0)


def _pixel(operator: Pool2d, stored: StoredRows, finish: Finish) -> list[str]:
    """Return the code of all channels of one output pixel."""
    window, (_, height, columns, channels) = operator.window, operator.inputs[0].shape
    rows, taps_in_row = tap_range(0, window, ("r_begin", "r_end")), tap_range(1, window, ("s_begin", "s_end"))
    element = f"input[{input_place(operator, stored, 'left + s')} + k]"
    if operator.method == "max":
        start, take = "-INFINITY", [f"const float x = {element};", "value = value > x ? value : x;"]
    else:
        start, take = "0.0f", [f"value += {element};"]

    def read(o: Operand) -> str:
        return f"input{o.index}[pixel{o.index} + k]" if o.kind == "input" else f"channel{o.index}[k]"

    channel = [
        f"float value = {start};",
        *over("r", *rows, over("s", *taps_in_row, take)),
        *([f"value /= {_count(operator, rows, taps_in_row)};"] if operator.method == "average" else []),
        f"output[pixel + k] = {finish.call('value', read)};",
    ]
    return [
        *clip(0, window, height, "h", names=("top", "r_begin", "r_end")),
        *clip(1, window, columns, "w", names=("left", "s_begin", "s_end")),
        *input_sizes(operator),
        *pixel_offsets(operator, stored, finish),
        *loop("k", "input_channels" if channels > 1 else 1, channel),
    ]


def _count(operator: Pool2d, rows: tuple[Bound, Bound], columns: tuple[Bound, Bound]) -> str:
    kernel = operator.window.kernel
    if operator.count_include_pad or not any(operator.window.padding):
        return float_literal(float(kernel[0] * kernel[1]))
    return f"(float)(({rows[1]} - {rows[0]}) * ({columns[1]} - {columns[0]}))"


KERNEL = Kernel(
    name="pool2d_f32",
    title="Max and average pooling in float32",
    operator=Pool2d,
    implement=implement,
    constraints=(window_holds_input,),
)
