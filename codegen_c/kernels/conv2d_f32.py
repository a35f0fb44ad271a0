"""conv2d, float32: any stride, padding, dilation and groups; one output pixel by four channels at a time.

float32[N, H, W, C], float32[K, R, S, C / groups] -> float32[N, P, Q, K]. Each element starts at its bias and
adds products in the order r, s, c ascending; products outside the input are left out.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.finish import Finish
from codegen_c.kernels.window import ROW_PARAMETERS, clip, offset, slot, spatial, tap_range, taps
from codegen_c.operators import Conv2d
from codegen_c.scalar import Operand
from codegen_c.text import block, plus, times

CHANNEL_BLOCK = 4


def reference(operator: Conv2d, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 sums rounded once."""
    output, groups = operator.output.shape, operator.groups
    total = np.zeros((*output[:3], groups, output[3] // groups))
    weight = operator.weight.astype(np.float64).reshape(groups, output[3] // groups, *operator.weight.shape[1:])
    for r, s, x in taps(inputs[0], operator.window, output[1:3], 0.0):
        split = x.reshape(*x.shape[:3], groups, -1).astype(np.float64)
        total += np.einsum("nhwgc,gkc->nhwgk", split, weight[:, :, r, s])
    element = (total.reshape(output) + operator.bias).astype(np.float32)
    return [operator.finish.run(element, inputs)]


def pack(weight: np.ndarray, block_size: int) -> np.ndarray:
    """[K, R, S, C] -> blocks of `block_size` output channels side by side: [K / b][R][S][C][b], tail block last."""
    full = weight.shape[0] // block_size * block_size
    head = weight[:full].reshape(-1, block_size, *weight.shape[1:]).transpose(0, 2, 3, 4, 1)
    tail = weight[full:].transpose(1, 2, 3, 0)
    return np.concatenate([head.ravel(), tail.ravel()])


def parameters(finish: Finish) -> tuple[Parameter, ...]:
    """Parameters of a convolution: input, residuals, output, weights, bias, channel constants, rows."""
    return (
        Parameter(name="input", ctype="float", role="input"),
        *finish.input_parameters(),
        Parameter(name="output", ctype="float", role="output"),
        Parameter(name="weights", ctype="float", role="constant"),
        Parameter(name="bias", ctype="float", role="constant"),
        *finish.constant_parameters(),
        *ROW_PARAMETERS,
    )


def pixel_offsets(operator: Conv2d, stored: StoredRows, finish: Finish) -> list[str]:
    """Declarations of `pixel` (output) and `pixel1` … (residuals): offset of pixel (h, w) of image n."""
    batch, height, columns, channels = operator.output.shape
    image = f"n * {height * columns * channels} + " if batch > 1 else ""
    kept = {"pixel": stored.output} | {f"pixel{i}": stored.input(i) for i in operator.finish.inputs_read() if i > 0}
    return [
        f"const int32_t {name} = {image}({slot('h', rows)} * {columns} + w) * {channels};"
        for name, rows in kept.items()
    ]


def over_pixels(rows: list[str], pixel: list[str], output: tuple[int, ...]) -> str:
    """Loops over images, rows [row_begin, row_end) and columns around the text of one output pixel."""
    columns = [f"for (int32_t w = 0; w < {output[2]}; ++w) {{", block(pixel), "}"]
    lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block([*rows, *columns]), "}"]
    if output[0] > 1:
        lines = [f"for (int32_t n = 0; n < {output[0]}; ++n) {{", block(lines), "}"]
    return "\n".join(lines)


def finished(finish: Finish, j: int) -> str:
    """C expression of the finished element of channel k + j, accumulated in `sum<j>`."""

    def operand(o: Operand) -> str:
        if o.kind == "input":
            return f"input{o.index}[{plus(f'pixel{o.index} + k', j)}]"
        return f"channel{o.index}[{plus('k', j)}]"

    return finish.call(f"sum{j}", operand)


def implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    per_group = output.shape[3] // operator.groups
    width = CHANNEL_BLOCK if per_group % CHANNEL_BLOCK == 0 or operator.groups == 1 else 1
    finish = Finish(program=operator.finish)
    macs = output.num_elements * int(np.prod(operator.weight.shape[1:]))
    body = _body(operator, stored, finish, width)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(parameters=parameters(finish), body=body, helpers=finish.helper()),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weights", pack(operator.weight, width)), ("bias", operator.bias), *finish.constants()),
        macs=macs,
        instructions=_instructions(operator, width),
        accumulation="bias, then r, s, c ascending",
        spatial=spatial(operator.window, source, output, len(finish.input_parameters())),
    )


def _instructions(operator: Conv2d, width: int) -> int:
    """Modelled: set-up of each tile, start of each run of inputs, loads, FMAs and the loop for each input."""
    _, kernel_rows, kernel_columns, depth = operator.weight.shape
    merged = operator.window.dilation[1] == 1 and operator.groups == 1
    runs, length = (kernel_rows, kernel_columns * depth) if merged else (kernel_rows * kernel_columns, depth)
    tile = 12 + runs * (10 + length * (2 * width + 3)) + width * (2 + operator.finish.num_instructions)
    return operator.output.num_elements // width * tile


def _body(operator: Conv2d, stored: StoredRows, finish: Finish, width: int) -> str:
    """All channels of a pixel, in blocks of `width` and a tail, over all pixels."""
    source, channels = operator.inputs[0].shape, operator.output.shape[3]
    lines = clip(1, operator.window, source[2], "w", names=("left", "s_begin", "s_end"))
    lines += pixel_offsets(operator, stored, finish)
    full = channels // width * width
    if full:
        lines += [
            f"for (int32_t k = 0; k < {full}; k += {width}) {{",
            block(_tile(operator, stored, finish, width)),
            "}",
        ]
    if channels > full:
        tail = _tile(operator, stored, finish, channels - full)
        lines += ["{", block([f"const int32_t k = {full};", *tail]), "}"]
    rows = clip(0, operator.window, source[1], "h", names=("top", "r_begin", "r_end"))
    return over_pixels(rows, lines, operator.output.shape)


def _tile(operator: Conv2d, stored: StoredRows, finish: Finish, width: int) -> list[str]:
    """`width` output channels of one pixel, from channel k on."""
    window, (batch, height, columns, channels) = operator.window, operator.inputs[0].shape
    num_outputs, kernel_rows, kernel_columns, depth = operator.weight.shape
    per_group = num_outputs // operator.groups
    group = f" + {times('k' if per_group == 1 else f'k / {per_group}', depth)}" if operator.groups > 1 else ""
    r_begin, r_end = tap_range(0, window, ("r_begin", "r_end"))
    s_begin, s_end = tap_range(1, window, ("s_begin", "s_end"))
    row = slot(offset({"top": 1, "r": window.dilation[0]}), stored.input(0))
    row = f"n * {height} + {row}" if batch > 1 else row
    if window.dilation[1] == 1 and operator.groups == 1:
        # All taps of a row lie side by side in the input as in the weights: one run over columns and channels.
        first, start = offset({"left": 1, s_begin: int(s_begin != "0")}), s_begin
        taken = s_end if s_begin == "0" else f"({s_end} - {s_begin})"
        count = times(taken, depth) if not taken.isdigit() else str(int(taken) * depth)
    else:
        first, start, count = offset({"left": 1, "s": window.dilation[1]}), "s", str(depth)
    first_tap = offset({"r": kernel_columns, start: int(start != "0")})
    run = [
        f"const float *x = &input[{times(f'{times(row, columns)} + {first}', channels)}{group}];",
        f"const float *restrict f = &filter[{times(first_tap, depth * width)}];",
        f"for (int32_t c = 0; c < {count}; ++c) {{",
        block([*(f"sum{j} = TVM_EXT_FMA(x[c], f[{j}], sum{j});" for j in range(width)), f"f += {width};"]),
        "}",
    ]
    if start == "s":
        run = [f"for (int32_t s = {s_begin}; s < {s_end}; ++s) {{", block(run), "}"]
    return [
        f"const float *restrict filter = &weights[k * {kernel_rows * kernel_columns * depth}];",
        *(f"float sum{j} = bias[{plus('k', j)}];" for j in range(width)),
        f"for (int32_t r = {r_begin}; r < {r_end}; ++r) {{",
        block(run),
        "}",
        *(f"output[{plus('pixel + k', j)}] = {finished(finish, j)};" for j in range(width)),
    ]


KERNEL = Kernel(name="conv2d_f32", operator=Conv2d, implement=implement)
