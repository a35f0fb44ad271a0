"""Kernel for quantized conv2d with Helium: four adjacent output pixels by two channels."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Passes, SharedWindows, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.conv_f32 import inner_columns
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.kernels.shared.shared_windows import has_whole_image
from codegen_c.kernels.shared.window import rows_of_calls
from codegen_c.operators.kinds import QConv2d, Window
from codegen_c.targets.helium.kernels.convolution import is_pointwise, num_whole_rows, start
from codegen_c.targets.helium.kernels.four_factors import NarrowFactors, RoundedFactors
from codegen_c.targets.helium.kernels.four_loop import BLOCK, PIXELS, STEP, Columns
from codegen_c.targets.helium.kernels.four_pixels import PACKED, FourPixels
from codegen_c.targets.helium.kernels.product import IM2COL_INCLUDES as PATCH_INCLUDES
from codegen_c.targets.helium.kernels.product import PRODUCT_INCLUDES, Im2col, flip, padded, patch_function

# Groups of four output pixels: their windows, and their number.
#
# Windows are read in place, copied one by one, or read from a copied strip; pixels left over from groups are computed
# one by one.


def is_pixel(operator: QConv2d) -> bool:
    """Return True for 1x1 windows, which are read in place."""
    return operator.window.is_pointwise


def columns_of(operator: QConv2d) -> Columns:
    """Return the windows as they are read: pixels, rows of columns, or single copies."""
    rows, taps, depth = operator.weight.shape[1:]
    if is_pixel(operator):
        return Columns(runs=1, taps=1, stride=1, column_bytes=depth, steps=padded(depth) // STEP)
    strip = Columns(runs=rows, taps=taps, stride=operator.window.strides[1], column_bytes=depth, steps=depth // STEP)
    if is_strip(operator) and strip.fits():
        return strip
    num_bytes = padded(rows * taps * depth)
    return Columns(runs=1, taps=1, stride=1, column_bytes=num_bytes, steps=num_bytes // STEP)


def is_strip(operator: QConv2d) -> bool:
    """Return True if columns of windows can be read in place from the input."""
    adjacent = operator.weight.shape[2] == 1 or operator.window.dilation[1] == 1
    return adjacent and operator.weight.shape[3] % STEP == 0 and flip(operator.inputs[0]) == 0


def takes_place_of_input(operator: QConv2d, stored: StoredRows) -> bool:
    """Return True if the output may take the memory of the input, pixel for pixel."""
    is_whole = stored.output is None and not any(stored.inputs) and stored.at_once is None
    same = operator.inputs[0].shape == operator.output.shape
    return is_pixel(operator) and is_whole and same and spans_rows(operator, stored)


def is_copied(operator: QConv2d) -> bool:
    """Return True if windows are copied one by one."""
    return not is_pixel(operator) and columns_of(operator).is_pixel


def is_short(operator: QConv2d) -> bool:
    """Return True if a copied row of a window is at most a vector."""
    _, taps, depth = operator.weight.shape[1:]
    return operator.window.dilation[1] == 1 and taps * depth <= STEP


def inside_columns(operator: QConv2d) -> tuple[int, int]:
    """Return the output columns whose windows lie in columns of the input, and are read or copied by rows."""
    if is_copied(operator) and not is_short(operator):
        return 0, 0
    return inner_columns(operator.window, operator.inputs[0].shape[2], operator.output.shape[2])


def spans_rows(operator: QConv2d, stored: StoredRows) -> bool:
    """Return True if a group of four pixels may span two rows, or if windows are copied, which is slower by rows."""
    in_rows = is_pixel(operator) and operator.output.shape[2] % PIXELS == 0
    return is_one_run(operator, stored) and not in_rows


def is_one_run(operator: QConv2d, stored: StoredRows) -> bool:
    """Return True if groups of four pixels continue from row to row."""
    is_stored = stored.output is None and (stored.input(0) is None or not is_pixel(operator))
    return columns_of(operator).is_pixel and operator.output.shape[0] == 1 and is_stored


def _runs(operator: QConv2d, stored: StoredRows) -> tuple[int, int]:
    """Return the number of runs of pixels, and the pixels of each."""
    images, rows, columns, _ = operator.output.shape
    return (1, rows * columns) if is_one_run(operator, stored) else (images * rows, columns)


def num_groups(operator: QConv2d, stored: StoredRows) -> int:
    """Return the number of groups of four pixels."""
    runs, pixels = _runs(operator, stored)
    return runs * (pixels // PIXELS if num_ones(operator, stored) else -(-pixels // PIXELS))


def num_ones(operator: QConv2d, stored: StoredRows) -> int:
    """Return the number of single pixels: one left over from a run, or all of a run that is too short."""
    runs, pixels = _runs(operator, stored)
    return runs * (pixels % PIXELS) if is_pixel(operator) and _leaves_ones(pixels) else 0


def has_ones(operator: QConv2d, stored: StoredRows) -> bool:
    """Return True if the run of a call has single pixels."""
    _, rows, columns, _ = operator.output.shape
    calls = rows_of_calls(rows, stored) if is_one_run(operator, stored) else {1}
    if calls is None:
        return is_pixel(operator) and columns % PIXELS != 0
    return is_pixel(operator) and any(_leaves_ones(count * columns) for count in calls)


def _leaves_ones(pixels: int) -> bool:
    """Return True if groups of four leave one pixel of a run, or if the run is too short for a group."""
    return pixels < PIXELS or pixels % PIXELS == 1


def num_inside(operator: QConv2d, stored: StoredRows) -> int:
    """Return the groups that are read in place; for copied windows, the pixels whose windows lie in the input."""
    if is_pixel(operator):
        return num_groups(operator, stored)
    (begin, end), columns = inside_columns(operator), operator.output.shape[2]
    if is_copied(operator):
        return num_whole_rows(operator, stored) * (end - begin)
    first = np.minimum(np.arange(0, columns, PIXELS), columns - PIXELS)
    return num_whole_rows(operator, stored) * int(((first >= begin) & (first + PIXELS <= end)).sum())


def has_outside(operator: QConv2d, stored: StoredRows) -> bool:
    """Return True if some windows do not lie in the input with contiguous rows."""
    num_all = operator.output.num_elements // operator.output.shape[3]
    return num_inside(operator, stored) < (num_all if is_copied(operator) else num_groups(operator, stored))


def strip_window(operator: QConv2d) -> Window:
    """Return the window of four pixels."""
    window = operator.window
    return replace(window, kernel=(window.kernel[0], window.kernel[1] + (PIXELS - 1) * window.strides[1]))


# Quantized conv2d with Helium: four adjacent output pixels by two channels at a time.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. Pixels of 1x1 windows are
# read in place, and so are windows of whole vectors that lie inside the input; a column that four of them share is read
# once. Other windows are copied to scratch first: as a strip, or one by one if a row of a window is no whole number of
# vectors. If pixels of 1x1 windows have as many output as input channels, the output may take the memory of the input:
# four pixels are in registers or in scratch before results are written. Results are the portable kernel's, in either
# rounding (four_pixels.py).

LAYER = "tvm_ext_helium_side_layer"
INCLUDES = (
    "tvm_ext_helium_side.h", "tvm_ext_helium_fours.h", "tvm_ext_helium_one.h", "tvm_ext_helium_conv2d.h",
    "tvm_ext_copy.h",
)  # fmt: skip
# Modelled instructions of a group of four pixels around its call; of a group whose columns are tested; of copying a
# window whose rows are at most a vector: around its rows, of one row, of three; of four vectors of a copy of four
# pixels.
GROUP, WINDOWED_GROUP, SHORT_COPY, SHORT_ROW, THREE_ROWS, COPIED_VECTORS = 10, 25, 16, 4, 12, 10


def takes_fours(operator: QConv2d, target: Target) -> bool:
    """output rows must have at least four pixels (for 1x1 windows, images), and channels be a multiple of four"""
    images, rows, columns, channels = operator.output.shape
    pixels = rows * columns if is_pixel(operator) and images == 1 else columns
    return pixels >= PIXELS and channels % BLOCK == 0


def is_for_speed(operator: QConv2d, target: Target) -> bool:
    """speed must matter more than size: its instructions are one long run"""
    return target.optimize == "speed"


def is_signed_where_read(operator: QConv2d, target: Target) -> bool:
    """pixels of 1x1 windows must be int8"""
    return not is_pointwise(operator, target) or flip(operator.inputs[0]) == 0


def blocks_fit(operator: QConv2d, target: Target) -> bool:
    """a window must have at most 40 vectors of 16 bytes"""
    return columns_of(operator).fits()


def has_factors(operator: QConv2d, target: Target) -> bool:
    """elements must have the full range of their type, and channels factors of one shift or TensorFlow Lite's roundings

    These are computed by rounded products and a shift of each channel.
    """
    return _factors(operator) is not None


def _factors(operator: QConv2d) -> NarrowFactors | RoundedFactors | None:
    requantize, (low, high) = qconv2d.requantize(operator), qconv2d.products(operator).range()
    return NarrowFactors.of(requantize, low, high) or RoundedFactors.of(requantize)


LOOPS = Loops(
    function="tvm_ext_helium_side", layer=LAYER, includes=(*INCLUDES, *PATCH_INCLUDES, *PRODUCT_INCLUDES),
    accumulation="products with r, c, s ascending in vectors of 16, then bias", row_pitched=False,
)  # fmt: skip


def side_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    output, factors, columns = operator.output, _factors(operator), columns_of(operator)
    assert factors is not None, "the kernel refuses layers without factors"
    fours = FourPixels(
        columns=columns, channels=output.shape[3], pitch=stored.pitch or output.shape[3], factors=factors,
        zero_point=quantization(output).zero_point, is_unsigned=output.dtype == "uint8",
    )  # fmt: skip
    groups, has_others = num_groups(operator, stored), has_outside(operator, stored)
    ones = num_ones(operator, stored)
    scratch_bytes = _scratch_bytes(operator, stored, has_others=has_others)
    in_place = takes_place_of_input(operator, stored)
    weight = operator.weight if not is_copied(operator) else operator.weight.reshape(output.shape[3], 1, 1, -1)
    function, other = _loops(operator, stored, has_others=has_others)
    members = _members(operator, stored, fours, has_others=has_others)
    patch = patch_function("tvm_ext_helium_side_copy", LAYER, stored) if has_others else ""
    return Parts(
        parameters=(PACKED,),
        constants=fours.constants(weight, start(operator)),
        members=members,
        function=function,
        functions=(
            fours.function(),
            *((fours.one_function(),) if has_ones(operator, stored) else ()),
            *([patch] if patch else ()),
        ),
        leading=("$_four", other),
        tables=("packed",),
        scratch="scratch" if scratch_bytes else "NULL",
        scratch_bytes=scratch_bytes,
        instructions=groups * (fours.instructions + GROUP)
        + ones * (fours.one_instructions + GROUP)
        + _copying(operator, stored),
        passes=_passes(operator, groups + ones),
        # In place, four pixels are read before results are written; elsewhere, channel after channel reads them again.
        rows_still_read=-(-(PIXELS - 1) // output.shape[2]) if spans_rows(operator, stored) and not in_place else 0,
        is_in_place=in_place,
        windows=_windows(operator, stored, fours, members, patch),
    )


def _windows(
    operator: QConv2d, stored: StoredRows, fours: FourPixels, members: dict[str, Value], patch: str
) -> SharedWindows | None:
    """Return the windows as other layers can share them, if they are copied one by one; else None."""
    if not is_copied(operator) or not has_whole_image(operator, stored):
        return None
    count = prod(operator.output.shape[:3])
    return SharedWindows(
        form=(LOOPS.function, operator.inputs[0], operator.window, operator.output.shape[:3]),
        pixels=count,
        at_once=PIXELS,
        first=f"tvm_ext_helium_first_of_four(m, {count})",
        fill=(
            f"tvm_ext_helium_copy_four(&$_layer, {'$_patch' if patch else 'NULL'}, (int8_t *)scratch, "
            "(const uint8_t *)input, 0, first);",
        ),
        compute=("$_four((const int8_t *)scratch, 0, &((uint8_t *)output)[first * $_layer.output.pitch], packed);",),
        definitions="\n".join([LOOPS.shapes(operator, stored, members), fours.function()]),
        fill_definitions=patch,
        fill_instructions=_copying(operator, stored),
        compute_instructions=num_groups(operator, stored) * fours.instructions,
    )


def _scratch_bytes(operator: QConv2d, stored: StoredRows, *, has_others: bool) -> int:
    """Return the bytes of scratch.

    It holds the last pixels if vectors reach beyond them; in place these, and four others if they are not kept in
    registers; copies of four windows; or a strip if one is copied.
    """
    depth, columns = operator.weight.shape[3], columns_of(operator)
    if is_pixel(operator):
        is_in_place = takes_place_of_input(operator, stored)
        last = (PIXELS - 1) * depth + padded(depth) if depth % STEP or is_in_place else 0
        return last + (PIXELS * padded(depth) if is_in_place and columns.steps > 1 else 0)
    if is_copied(operator):
        return PIXELS * columns.column_bytes + (STEP if is_short(operator) else 0)
    kernel = strip_window(operator).kernel
    return kernel[0] * kernel[1] * depth if has_others else 0


def _copying(operator: QConv2d, stored: StoredRows) -> int:
    """Return the modelled instructions of all copies, and of the choice between them."""
    source, depth = operator.inputs[0], operator.weight.shape[3]
    groups, inside = num_groups(operator, stored), num_inside(operator, stored)
    if is_pixel(operator):
        steps = columns_of(operator).steps
        return groups * steps * COPIED_VECTORS if takes_place_of_input(operator, stored) and steps > 1 else 0
    if is_copied(operator):
        each = Im2col(window=operator.window, source=source, depth=depth).instructions
        by_rows = operator.weight.shape[1] * SHORT_ROW + SHORT_COPY
        short = THREE_ROWS if operator.weight.shape[1] == 3 and not flip(source) else by_rows
        return inside * short + (PIXELS * groups - inside) * (each + SHORT_COPY)
    each = Im2col(window=strip_window(operator), source=source, depth=depth).instructions
    return groups * (WINDOWED_GROUP - GROUP) + (groups - inside) * each


def _passes(operator: QConv2d, groups: int) -> Passes:
    """Return the traffic of four pixels by two channels; only the first vectors of pixels stay in registers."""
    reads = groups * columns_of(operator).num_steps * STEP * PIXELS * operator.output.shape[3] / 2
    return Passes(
        constants=max(1.0, groups),
        input=max(1.0, reads / operator.inputs[0].num_elements),
        scratch=groups * (1 + operator.output.shape[3] / 2) if is_copied(operator) else 2.0,
    )


def _members(operator: QConv2d, stored: StoredRows, fours: FourPixels, *, has_others: bool) -> dict[str, Value]:
    """Return the layer's members in tvm_ext_helium_side.h for windows in place and copied windows."""
    begin, end = inside_columns(operator)
    return {
        "inside_begin": begin, "inside_end": end,
        "reads_beyond": operator.weight.shape[3] % STEP > 0 and is_pixel(operator),
        "is_in_place": takes_place_of_input(operator, stored),
        "is_copied": is_copied(operator), "has_others": has_others, "fours": fours.members(),
    }  # fmt: skip


def _loops(operator: QConv2d, stored: StoredRows, *, has_others: bool) -> tuple[str, str]:
    """Return the loops of tvm_ext_helium_side.h for these windows, and the function they call for other pixels."""
    if is_pixel(operator):
        return "tvm_ext_helium_side_pixels", "$_one" if has_ones(operator, stored) else "NULL"
    name = "tvm_ext_helium_side_copies" if is_copied(operator) else "tvm_ext_helium_side"
    return name, "$_patch" if has_others else "NULL"


SIDE = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=side_parts)
KERNEL = SIDE.kernel(
    Family(
        name="qconv2d_side_helium",
        title="Quantized convolution, four adjacent output pixels by two channels at a time",
        operator=QConv2d,
        constraints=(
            qconv2d.is_ungrouped, is_for_speed, takes_fours, is_signed_where_read, *qconv2d.CONSTRAINTS, blocks_fit,
            has_factors,
        ),
    )
)  # fmt: skip
