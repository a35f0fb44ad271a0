"""Depthwise conv2d of a QDQ chain with Helium: 16 channels of one output pixel at a time.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32. Products are summed in
16 bits over groups of taps whose weights are small enough together, and the groups' sums in 32 bits. Pixels
whose window lies inside the input are read in place; windows of all other pixels are copied to scratch first,
padding filled in with the zero point. Rounding "onnx".
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels import qconv2d
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.conv_f32 import inner_columns
from codegen_c.kernels.helium import LANES, PRODUCT_INCLUDES, Limits, Rescale, flip, has_helium
from codegen_c.kernels.patch_helium import Patch
from codegen_c.kernels.product_helium import PARAMETERS, SCRATCH
from codegen_c.kernels.qconv2d_helium import rescale, start, sums_leave_room
from codegen_c.kernels.qdepthwise import is_depthwise, pack
from codegen_c.kernels.requantize import signed
from codegen_c.kernels.window import ROW_PARAMETERS, slot, spatial
from codegen_c.operators import Array, QConv2d
from codegen_c.text import C_TYPES, block, times

VECTOR = 16
# Sums of products with weights that add up to this many stay within 16 bits, whatever the int8 input.
MOST_WEIGHT = 255
MOST_TAPS = 49
PARTS = range(VECTOR // LANES)
# Widening a vector of bytes twice leaves these channels in the lanes of its four parts.
ORDER = np.array([0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15])


def few_taps(operator: QConv2d, target: Target) -> bool:
    """the window must have 49 taps or fewer, as each has its own code"""
    return operator.window.kernel[0] * operator.window.kernel[1] <= MOST_TAPS


def groups_of_taps(weight: Array) -> list[list[int]]:
    """Taps (r * S + s) whose products may be summed in 16 bits, for every channel: first fit, in order."""
    taps = np.abs(pack(weight).reshape(-1, weight.shape[0]).astype(np.int64))
    groups: list[list[int]] = []
    for tap in range(len(taps)):
        fitting = (g for g in groups if (taps[g].sum(axis=0) + taps[tap]).max() <= MOST_WEIGHT)
        group = next(fitting, None)
        if group is None:
            groups.append([tap])
        else:
            group.append(tap)
    return groups


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    num_channels = source.shape[3]
    depth = -(-num_channels // VECTOR) * VECTOR
    groups, finish = groups_of_taps(operator.weight), rescale(operator)
    limits = Limits(output=output, low=operator.low, high=operator.high)
    patch = Patch(window=operator.window, source=source, depth=depth)
    taps = np.zeros((operator.weight[0].size, depth), dtype=np.int8)
    taps[:, :num_channels] = pack(operator.weight).reshape(-1, num_channels)
    in_order = taps[[tap for group in groups for tap in group]]
    weights = np.ascontiguousarray(in_order.reshape(len(taps), -1, VECTOR).transpose(1, 0, 2))
    num_pixels = output.num_elements // num_channels
    copied = num_pixels - _num_in_place(operator, stored)
    each = len(taps) * 6 + len(groups) * 7 + 40 + LANES * finish.instructions
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *PARAMETERS,
                SCRATCH,
                *ROW_PARAMETERS,
            ),
            body=_body(operator, stored, depth),
            helpers=f"{_pixel(operator, groups, finish, limits, depth)}\n{patch.function(stored)}",
            includes=PRODUCT_INCLUDES,
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=(("weights", weights), ("factors", finish.table(start(operator), ORDER))),
        scratch_bytes=patch.num_bytes,
        macs=output.num_elements * len(taps),
        instructions=num_pixels * (40 + depth // VECTOR * each) + copied * patch.instructions,
        accumulation="products of r, s in groups, then bias",
        spatial=spatial(operator.window, source, output),
        exact=True,
    )


def _reads_in_place(operator: QConv2d) -> bool:
    """Whether a window inside the input can be read as it is: whole vectors of int8 side by side."""
    source = operator.inputs[0]
    return operator.window.dilation[1] == 1 and source.shape[3] % VECTOR == 0 and flip(source) == 0


def _inside(operator: QConv2d) -> tuple[int, int]:
    """Output columns that are read in place, where the rows of the window lie inside the input."""
    if not _reads_in_place(operator):
        return 0, 0
    return inner_columns(operator.window, operator.inputs[0].shape[2], operator.output.shape[2])


def _num_in_place(operator: QConv2d, stored: StoredRows) -> int:
    """Output pixels that are read in place, about."""
    begin, end = _inside(operator)
    rows = sum(1 for top in range(operator.output.shape[1]) if _row_is_inside(operator, stored, top))
    return rows * (end - begin) * operator.output.shape[0]


def _row_is_inside(operator: QConv2d, stored: StoredRows, row: int) -> bool:
    window, kept = operator.window, stored.input(0)
    top, reach = row * window.strides[0] - window.padding[0], (window.kernel[0] - 1) * window.dilation[0]
    return top >= 0 and top + reach < operator.inputs[0].shape[1] and (kept is None or top % kept + reach < kept)


def _pixel(operator: QConv2d, groups: list[list[int]], finish: Rescale, limits: Limits, depth: int) -> str:
    """Definition of `$_pixel`: all channels; x: its window, whose rows are `pitch` bytes apart."""
    (kernel_rows, kernel_columns), num_channels = operator.window.kernel, operator.output.shape[3]
    middle = kernel_columns // 2  # loads reach 127 bytes to either side of a pointer
    lines = [f"const int8_t *x0 = x + k{signed(middle * depth)};"]
    lines += [f"const int8_t *x{r} = x{r - 1} + pitch;" for r in range(1, kernel_rows)]
    lines += ["tvm_ext_i16x8 even, odd;"]
    lines += [f"tvm_ext_i32x4 sum{part} = tvm_ext_i32x4_load(factors{signed(part * LANES)});" for part in PARTS]
    position = 0
    for group in groups:
        for tap in group:
            r, s = divmod(tap, kernel_columns)
            place, weight = f"&x{r}[{(s - middle) * depth}]", f"&weights[{position * VECTOR}]"
            lines += _tap(place, weight, is_first=tap == group[0])
            position += 1
        lines += _widen()
    for part in PARTS:
        multiplier, shift = (f"tvm_ext_i32x4_load(factors + {(row * len(PARTS) + part) * LANES})" for row in (1, 2))
        lines += [f"sum{part} = {finish.scaled(f'sum{part}', multiplier, shift)};"]
    narrow = ("tvm_ext_i16x8_narrow(sum0, sum1)", "tvm_ext_i16x8_narrow(sum2, sum3)")
    count = f", {num_channels} - k" if num_channels % VECTOR else ""
    store = "tvm_ext_i8x16_store_first" if count else "tvm_ext_i8x16_store"
    lines += [
        f"{store}(&y[k], {limits.bytes(*narrow)}{count});",
        f"weights += {position * VECTOR};",
        f"factors += {3 * VECTOR};",
    ]
    parameters = [
        "const int8_t *x",
        "int32_t pitch",
        f"{C_TYPES[operator.output.dtype]} *y",
        "const int8_t *restrict weights",
        "const int32_t *restrict factors",
    ]
    body = [f"for (int32_t k = 0; k < {num_channels}; k += {VECTOR}) {{", block(lines), "}"]
    unused = ["(void)pitch;"] if kernel_rows == 1 else []
    head = "TVM_EXT_STEP void $_pixel(\n" + block(",\n".join(parameters)) + ")"
    return f"{head}\n{{\n{block([*unused, *body])}\n}}\n"


def _tap(place: str, weight: str, *, is_first: bool) -> list[str]:
    """Products of one tap, kept or added to the group's sums."""
    return [f"TVM_EXT_{'MULTIPLY' if is_first else 'MULTIPLY_ADD'}_I8X16(even, odd, {place}, {weight});"]


def _widen() -> list[str]:
    """The group's sums, added to those of 32 bits."""
    halves = ("even(even)", "odd(even)", "even(odd)", "odd(odd)")
    sums = [f"sum{part} = tvm_ext_i32x4_add(sum{part}, tvm_ext_i32x4_{half});" for part, half in enumerate(halves)]
    return [*sums, "TVM_EXT_IN_ORDER(sum0, sum1);", "TVM_EXT_IN_ORDER(sum2, sum3);"]


def _body(operator: QConv2d, stored: StoredRows, depth: int) -> str:
    """Row by row: columns that are read in place, then all others."""
    batch, height, columns, num_channels = operator.inputs[0].shape
    output, window, kept = operator.output.shape, operator.window, stored.input(0)
    begin, end = _inside(operator)
    image = "input" if batch == 1 else "image"
    row = slot("h", stored.output) if batch == 1 else f"n * {output[1]} + h"
    lines = [f"{C_TYPES[operator.output.dtype]} *row = &output[{times(f'({row})', output[2] * num_channels)}];"]
    patch = [
        f"$_patch(patch, {image}, h, w);",
        f"$_pixel(patch, {window.kernel[1] * depth}, &row[{times('w', num_channels)}], weights, factors);",
    ]
    if end > begin:
        reach = (window.kernel[0] - 1) * window.dilation[0]
        conditions = ["top >= 0"] if window.padding[0] else []
        conditions += [f"top + {reach} < {height}"] if window.padding[2] else []
        conditions += [f"top % {kept} + {reach} < {kept}"] if kept is not None and reach else []
        inside = [f"w >= {begin}"] if begin else []
        inside += [f"w < {end}"] if end < output[2] else []
        top = times("h", window.strides[0]) + signed(-window.padding[0])
        left = times("w", window.strides[1]) + signed(-window.padding[1])
        stored_top = slot("top", kept)
        first = f"({times(f'({stored_top})', columns)} + {left}) * {num_channels}"
        pitch = window.dilation[0] * columns * num_channels
        direct = f"$_pixel(&{image}[{first}], {pitch}, &row[{times('w', num_channels)}], weights, factors);"
        lines += [f"const int32_t top = {top};"]
        lines += [f"const bool whole = {' && '.join(conditions)};"] if conditions else []
        test = " && ".join([*(["whole"] if conditions else []), *inside])
        pixel = [f"if ({test}) {{", block(direct), "} else {", block(patch), "}"] if test else [direct]
    else:
        pixel = patch
    lines += [f"for (int32_t w = 0; w < {output[2]}; ++w) {{", block(pixel), "}"]
    lines = ["int8_t *patch = (int8_t *)scratch;", "for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]
    if batch > 1:
        place = f"const {C_TYPES[operator.inputs[0].dtype]} *image = &input[n * {height * columns * num_channels}];"
        lines = [f"for (int32_t n = 0; n < {batch}; ++n) {{", block([place, *lines]), "}"]
    return "\n".join(lines)


KERNEL = Kernel(
    name="qdepthwise_helium",
    operator=QConv2d,
    implement=implement,
    constraints=(has_helium, is_depthwise, few_taps, *qconv2d.CONSTRAINTS, sums_leave_room),
)
