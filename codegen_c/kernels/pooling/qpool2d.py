"""Max and average pooling of a QDQ chain, integers only: four channels of one output pixel at a time.

int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]. Max takes the largest tap inside the input. Average adds
x - zero point in int32, r then s ascending, and multiplies by input scale / (output scale * number of taps): of
those inside the input, or of the whole window (padding then being real zeros); rounded once, halves to even. In
rounding "tflite" the integers themselves are averaged, on one scale, halves away from zero.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, plus, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution.qconv2d import input_row, pixel_offset
from codegen_c.kernels.pooling.pool_by_rows import accumulating
from codegen_c.kernels.pooling.pool_sums import average, counted_taps, factors, reference
from codegen_c.kernels.shared import requantize_tflite
from codegen_c.kernels.shared.requantize import (
    INCLUDES,
    Requantize,
    quantization,
    quantized_bytes,
    results_fit,
    signed,
)
from codegen_c.kernels.shared.window import (
    CHANNEL_BLOCK,
    ROW_PARAMETERS,
    clip,
    offset,
    over,
    over_channel_blocks,
    over_pixels,
    spatial,
    tap_range,
    zero_point_of,
)
from codegen_c.operators.kinds import QPool2d


def keeps_quantization(operator: QPool2d, target: Target) -> bool:
    """max pooling, and averages as TFLite takes them, must have one type, scale and zero point on both sides"""
    source, output = operator.inputs[0], operator.output
    same = source.dtype == output.dtype and quantization(source) == quantization(output)
    return same or (operator.method == "average" and operator.rounding == "onnx")


def counts_what_it_reads(operator: QPool2d, target: Target) -> bool:
    """an average as TFLite takes it must leave padding out of its count"""
    return operator.rounding == "onnx" or not operator.count_include_pad


def windows_meet_input(operator: QPool2d, target: Target) -> bool:
    """every window of an average must hold at least one element of the input"""
    return operator.method == "max" or counted_taps(operator).min() > 0


def sums_fit(operator: QPool2d, target: Target) -> bool:
    """a window must add up to no more than an int32 holds, and to less than 2^30 steps of the output"""
    if operator.method == "max":
        return True
    largest = np.array(255 * operator.window.kernel[0] * operator.window.kernel[1])
    return bool(largest < 1 << 31) and results_fit(-largest, largest, factors(operator))


def implement(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    finish = average(operator) if operator.method == "average" and operator.rounding == "onnx" else None
    num_taps = operator.output.num_elements * operator.window.kernel[0] * operator.window.kernel[1]
    per_tap = 2 if operator.method == "average" and not any(operator.window.padding) else 3
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *(finish.parameters() if finish else ()),
                *ROW_PARAMETERS,
            ),
            body=_body(operator, stored, finish),
            helpers=finish.helper() if finish else "",
            includes=INCLUDES if operator.rounding == "onnx" else requantize_tflite.INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants() if finish else (),
        instructions=num_taps * per_tap
        + num_taps // CHANNEL_BLOCK * 6
        + operator.output.num_elements * (20 if operator.method == "average" else 6),
        passes=Passes(input=max(1.0, num_taps / operator.inputs[0].num_elements)),
        accumulation="r, s ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output),
        exact=True,
        pitched=True,
        accumulating=accumulating(operator),
    )


def _body(operator: QPool2d, stored: StoredRows, finish: Requantize | None) -> str:
    """All channels of a pixel, in blocks and a tail, over all pixels."""
    window, (_, height, columns, channels) = operator.window, operator.inputs[0].shape
    lines = clip(1, window, columns, "w", names=("left", "s_begin", "s_end"))
    lines += [pixel_offset(operator.output, stored)]
    if (finish and not finish.is_uniform) or _divides(operator):
        lines += [f"const int32_t count = {_count(operator)};"]
    lines += over_channel_blocks(channels, lambda width: _tile(operator, stored, finish, width))
    rows = clip(0, window, height, "h", names=("top", "r_begin", "r_end"))
    return "\n".join([*_declared(operator, finish), over_pixels(rows, lines, operator.output.shape)])


def _declared(operator: QPool2d, finish: Requantize | None) -> list[str]:
    """The zero point where each element is less it, or what all of a window are less, where none is cut."""
    number = quantization(operator.inputs[0]).zero_point
    if not finish:
        return []
    if any(operator.window.padding):
        return zero_point_of(number)[0]
    count = operator.window.kernel[0] * operator.window.kernel[1]
    return [f"const int32_t start = {-number * count}; /* {count} elements, each less the zero point of {number} */"]


def _divides(operator: QPool2d) -> bool:
    return operator.method == "average" and operator.rounding == "tflite"


def _count(operator: QPool2d) -> str:
    """C expression of the number of taps inside the input."""
    spans: list[str] = []
    for axis, names in enumerate((("r_begin", "r_end"), ("s_begin", "s_end"))):
        begin, end = tap_range(axis, operator.window, names)
        spans.append(end if begin == "0" else f"({end} - {begin})")
    return " * ".join(spans)


def _tile(operator: QPool2d, stored: StoredRows, finish: Requantize | None, width: int) -> list[str]:
    """`width` channels of one pixel, from channel k on."""
    window, source = operator.window, operator.inputs[0]
    columns, channels = source.shape[2:]
    zero_point = quantization(source).zero_point
    r_begin, r_end = tap_range(0, window, ("r_begin", "r_end"))
    s_begin, s_end = tap_range(1, window, ("s_begin", "s_end"))
    column = offset({"left": 1, "s": window.dilation[1]})
    pixel = f"{times(input_row(source, window, stored), columns)} + {column}"
    if finish:
        # Without padding every window has the same taps: their zero points are taken off at once.
        padded = any(window.padding)
        name, start = "sum", "0" if padded else "start"
        taken = zero_point_of(zero_point)[1] if padded else ""
        steps = [f"sum{j} += x[{j}]{taken};" for j in range(width)]
        index = f"count{signed(-int(counted_taps(operator).min()))}"
        results = [finish.call(f"sum{j}", index) for j in range(width)]
    elif _divides(operator):
        name, start, ctype = "sum", "0", C_TYPES[operator.output.dtype]
        steps = [f"sum{j} += x[{j}];" for j in range(width)]
        results = [
            f"({ctype})tvm_ext_clamp(tvm_ext_average(sum{j}, count), {operator.low}, {operator.high})"
            for j in range(width)
        ]
    else:
        name, start, ctype = "max", str(operator.low), C_TYPES[operator.output.dtype]
        steps = [f"max{j} = x[{j}] > max{j} ? x[{j}] : max{j};" for j in range(width)]
        results = [f"({ctype})tvm_ext_clamp(max{j}, {operator.low}, {operator.high})" for j in range(width)]
    pointer = f"const {C_TYPES[source.dtype]} *x = &input[{times(pixel, channels)} + k];"
    return [
        *(f"int32_t {name}{j} = {start};" for j in range(width)),
        *over("r", r_begin, r_end, over("s", s_begin, s_end, [pointer, *steps])),
        *(f"output[pixel + {plus('k', j)}] = {result};" for j, result in enumerate(results)),
    ]


KERNEL = Kernel(
    name="qpool2d_i8",
    operator=QPool2d,
    implement=implement,
    constraints=(quantized_bytes, keeps_quantization, counts_what_it_reads, windows_meet_input, sums_fit),
)
