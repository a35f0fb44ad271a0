"""Max and average pooling of a QDQ chain with Helium: 16 channels of one output pixel at a time.

int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]. Elements are read as int8 (uint8 less 128). Average sums
up to 255 of them in 16 bits, then takes off the zero point in 32 bits. Rounding "onnx".
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution.qconv2d import input_row, pixel_offset
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.pooling.pool_by_rows import accumulating
from codegen_c.kernels.pooling.pool_sums import average, counted_taps, reference
from codegen_c.kernels.shared.window import (
    ROW_PARAMETERS,
    clip,
    num_taps,
    offset,
    over,
    over_pixels,
    spatial,
    tap_range,
)
from codegen_c.operators.kinds import QPool2d
from codegen_c.targets.helium.kernels.helium import (
    INCLUDES,
    OutputRange,
    Rescale,
    flip,
    rounds_once,
    signed_zero_point,
)

VECTOR = 16
MOST_TAPS = 255
PARTS = range(4)


def few_taps(operator: QPool2d, target: Target) -> bool:
    """the window of an average must have 255 taps or fewer, as they are summed in 16 bits"""
    return operator.method == "max" or operator.window.kernel[0] * operator.window.kernel[1] <= MOST_TAPS


def sums_leave_room(operator: QPool2d, target: Target) -> bool:
    """where the factor of an average is one quarter or more, its sums must be small enough to be scaled up"""
    return operator.method == "max" or _rescale(operator).fits(*_bounds(operator))


def _bounds(operator: QPool2d) -> tuple[np.ndarray, np.ndarray]:
    largest = np.array([255 * operator.window.kernel[0] * operator.window.kernel[1]])
    return -largest, largest


def _rescale(operator: QPool2d) -> Rescale:
    return Rescale.of(average(operator), *_bounds(operator))


def implement(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    finish = _rescale(operator) if operator.method == "average" else None
    tables = [("multiplier", 0), ("shift", 1)] if finish and not finish.requantize.is_uniform else []
    num_blocks = operator.output.num_elements // operator.output.shape[3] * -(-operator.output.shape[3] // VECTOR)
    num_taps = num_blocks * operator.window.kernel[0] * operator.window.kernel[1]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *(Parameter(name=name, ctype="int32_t", role="constant") for name, _ in tables),
                *ROW_PARAMETERS,
            ),
            body=_body(operator, stored, finish),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=tuple((name, finish.factors()[index]) for name, index in tables) if finish else (),
        instructions=num_taps * (9 if finish else 6) + num_blocks * (60 if finish else 24),
        passes=Passes(input=max(1.0, num_taps * VECTOR / operator.inputs[0].num_elements)),
        accumulation="r, s ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output),
        exact=True,
        pitched=True,
        accumulating=accumulating(operator),
    )


def _body(operator: QPool2d, stored: StoredRows, finish: Rescale | None) -> str:
    """All channels of a pixel, over all pixels."""
    window, (_, height, columns, channels) = operator.window, operator.inputs[0].shape
    lines = clip(1, window, columns, "w", names=("left", "s_begin", "s_end"))
    lines += [pixel_offset(operator.output, stored)]
    if finish:
        lines += _factors(operator, finish)
    tile = _tile(operator, stored, finish)
    lines += over("k", 0, channels, tile, step=VECTOR)
    rows = clip(0, window, height, "h", names=("top", "r_begin", "r_end"))
    return over_pixels(rows, lines, operator.output.shape)


def _factors(operator: QPool2d, finish: Rescale) -> list[str]:
    """Declarations of what depends on how many taps lie inside the input: start of the sums, vectors of factors."""
    spans = [
        num_taps(begin, end)
        for axis, names in enumerate((("r_begin", "r_end"), ("s_begin", "s_end")))
        for begin, end in [tap_range(axis, operator.window, names)]
    ]
    inside, taken = " * ".join(map(str, spans)), -signed_zero_point(operator.inputs[0])
    if finish.requantize.is_uniform:
        multiplier, shift = (str(array[0]) for array in finish.factors())
    else:
        least = int(counted_taps(operator).min())
        multiplier, shift = (f"{name}[{inside} - {least}]" for name in ("multiplier", "shift"))
    return [
        f"const int32_t start = {inside} * {taken};",
        f"const tvm_ext_i32x4 factor = tvm_ext_i32x4_splat({multiplier}), amount = tvm_ext_i32x4_splat({shift});",
    ]


def _tile(operator: QPool2d, stored: StoredRows, finish: Rescale | None) -> list[str]:
    """16 channels of one pixel, from channel k on."""
    window, source = operator.window, operator.inputs[0]
    columns, channels = source.shape[2:]
    count = str(VECTOR) if channels % VECTOR == 0 else f"{channels} - k"
    r_begin, r_end = tap_range(0, window, ("r_begin", "r_end"))
    s_begin, s_end = tap_range(1, window, ("s_begin", "s_end"))
    column = offset({"left": 1, "s": window.dilation[1]})
    pixel = f"{times(input_row(source, window, stored), columns)} + {column}"
    load = f"tvm_ext_i8x16_load_first(&input[{times(pixel, channels)} + k], {count})"
    if channels % VECTOR == 0:
        load = f"tvm_ext_i8x16_load(&input[{times(pixel, channels)} + k])"
    if flip(source):
        load = f"tvm_ext_i8x16_xor({load}, tvm_ext_i8x16_splat({flip(source)}))"
    step, first, last = _average(operator, finish) if finish else _max(operator)
    tap = [f"const tvm_ext_i8x16 x = {load};", *step]
    loops = over("r", r_begin, r_end, over("s", s_begin, s_end, tap))
    store = f"tvm_ext_i8x16_store_first(&output[pixel + k], result, {count});"
    return [*first, *loops, *last, store]


def _max(operator: QPool2d) -> tuple[list[str], list[str], list[str]]:
    """Statements for each tap, before all and behind all."""
    turned = flip(operator.output)
    low, high = (f"tvm_ext_i8x16_splat({bound + turned})" for bound in (operator.low, operator.high))
    result = f"tvm_ext_i8x16_min(largest, {high})"
    result = f"tvm_ext_i8x16_xor({result}, tvm_ext_i8x16_splat({turned}))" if turned else result
    return (
        ["largest = tvm_ext_i8x16_max(largest, x);"],
        [f"tvm_ext_i8x16 largest = {low};"],
        [f"const tvm_ext_i8x16 result = {result};"],
    )


def _average(operator: QPool2d, finish: Rescale) -> tuple[list[str], list[str], list[str]]:
    """Statements for each tap, before all and behind all."""
    limits = OutputRange(output=operator.output, low=operator.low, high=operator.high)
    halves = ("even(even)", "odd(even)", "even(odd)", "odd(odd)")
    last = [
        f"const tvm_ext_i32x4 sum{i} = tvm_ext_i32x4_add(tvm_ext_i32x4_{half}, tvm_ext_i32x4_splat(start));"
        for i, half in enumerate(halves)
    ]
    last += [f"const tvm_ext_i32x4 scaled{i} = {finish.scaled(f'sum{i}', 'factor', 'amount')};" for i in PARTS]
    narrow = [f"tvm_ext_i16x8_narrow(scaled{i}, scaled{i + 1})" for i in (0, 2)]
    names = ("low", "high")
    last += [f"const tvm_ext_i16x8 {name} = {value};" for name, value in zip(names, narrow, strict=True)]
    last += [f"const tvm_ext_i8x16 result = {limits.bytes(*names)};"]
    return (
        [
            "even = tvm_ext_i16x8_add(even, tvm_ext_i16x8_even(x));",
            "odd = tvm_ext_i16x8_add(odd, tvm_ext_i16x8_odd(x));",
        ],
        ["tvm_ext_i16x8 even = tvm_ext_i16x8_splat(0), odd = even;"],
        last,
    )


KERNEL = Kernel(
    name="qpool2d_helium",
    operator=QPool2d,
    implement=implement,
    constraints=(rounds_once, *qpool2d.KERNEL.constraints, few_taps, sums_leave_room),
)
