"""conv2d of a QDQ chain with Helium: four output pixels side by side by two channels at a time.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. Pixels of 1x1 windows are read
in place, and so are windows of whole vectors that lie inside the input, a column of four of them once. Other windows
are copied to scratch first: as a strip, or one by one where a row of a window is no whole vectors. Where pixels of 1x1
windows have as many channels behind the layer as before it, the output may take the input's place: four pixels are in
registers or in scratch before results are written. Results are the portable kernel's, whatever the rounding
(narrow_factors.py).
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.helium.kernels.four_pixels import BLOCK, PACKED, PIXELS, STEP, FourPixels
from codegen_c.targets.helium.kernels.groups_of_four import (
    columns_of,
    has_ones,
    has_outside,
    inside_columns,
    is_copied,
    is_pixel,
    is_short,
    num_groups,
    num_inside,
    num_ones,
    spans_rows,
    strip_window,
    takes_place_of_input,
)
from codegen_c.targets.helium.kernels.helium import PRODUCT_INCLUDES, flip
from codegen_c.targets.helium.kernels.im2col_helium import INCLUDES as PATCH_INCLUDES
from codegen_c.targets.helium.kernels.im2col_helium import Im2col, patch_function
from codegen_c.targets.helium.kernels.narrow_factors import NarrowFactors
from codegen_c.targets.helium.kernels.product_helium import SCRATCH, padded
from codegen_c.targets.helium.kernels.qconv2d_helium import has_no_groups, start
from codegen_c.targets.helium.kernels.qpointwise_helium import is_pointwise

LAYER = "tvm_ext_helium_side_layer"
INCLUDES = (
    "tvm_ext_helium_side.h", "tvm_ext_helium_fours.h", "tvm_ext_helium_one.h", "tvm_ext_helium_conv2d.h",
    "tvm_ext_copy.h",
)  # fmt: skip
# Modelled instructions of a group of four pixels around its call; of one whose columns are looked at; of the copy of
# a window whose rows are a vector or less: around its rows, of one, of three; of four vectors of a copy of four pixels.
GROUP, WINDOWED_GROUP, SHORT_COPY, SHORT_ROW, THREE_ROWS, COPIED_VECTORS = 10, 25, 16, 4, 12, 10


def takes_fours(operator: QConv2d, target: Target) -> bool:
    """rows of the output (of 1x1 windows, the image) must have four pixels or more, pixels a multiple of four
    channels"""
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
    """a window must have no more than 24 vectors of 16 bytes"""
    return columns_of(operator).fits()


def has_narrow_factors(operator: QConv2d, target: Target) -> bool:
    """elements must have all values of their type, and channels factors of one shift"""
    return _factors(operator) is not None


def _factors(operator: QConv2d) -> NarrowFactors | None:
    return NarrowFactors.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    factors, columns = _factors(operator), columns_of(operator)
    assert factors is not None, "the kernel refuses layers without narrow factors"
    fours = FourPixels(
        columns=columns, channels=output.shape[3], pitch=stored.pitch or output.shape[3], factors=factors,
        zero_point=quantization(output).zero_point, is_unsigned=output.dtype == "uint8",
    )  # fmt: skip
    groups, has_others = num_groups(operator, stored), has_outside(operator, stored)
    ones = num_ones(operator, stored)
    scratch_bytes = _scratch_bytes(operator, stored, has_others=has_others)
    in_place = takes_place_of_input(operator, stored)
    weight = operator.weight if not is_copied(operator) else operator.weight.reshape(output.shape[3], 1, 1, -1)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                PACKED,
                *((SCRATCH,) if scratch_bytes else ()),
                *ROW_PARAMETERS,
            ),
            body=_body(operator, stored, has_scratch=scratch_bytes > 0, has_others=has_others),
            helpers=_helpers(operator, stored, fours, has_others=has_others),
            includes=(*INCLUDES, *PATCH_INCLUDES, *PRODUCT_INCLUDES),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=fours.constants(weight, start(operator)),
        scratch_bytes=scratch_bytes,
        macs=output.num_elements * operator.weight[0].size,
        instructions=groups * (fours.instructions + GROUP)
        + ones * (fours.one_instructions + GROUP)
        + _copying(operator, stored),
        passes=_passes(operator, groups + ones),
        accumulation="products with r, c, s ascending in vectors of 16, then bias",
        # In place, four pixels of two rows are read before results are written.
        spatial=replace(
            spatial(operator.window, source, output), behind=1 if spans_rows(operator, stored) and not in_place else 0
        ),
        in_place=(0,) if in_place else (),
        exact=True,
        pitched=True,
    )


def _scratch_bytes(operator: QConv2d, stored: StoredRows, *, has_others: bool) -> int:
    """The last pixels, where vectors reach beyond them; in place those, and four others where they are not kept in
    registers; copies of four windows; or a strip, where one is copied."""
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
    """Modelled instructions of all copies, and of the choice between them."""
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
    """Four pixels by two channels; the first vectors of pixels stay in registers, of other windows none."""
    reads = groups * columns_of(operator).num_steps * STEP * PIXELS * operator.output.shape[3] / 2
    return Passes(
        constants=max(1.0, groups),
        input=max(1.0, reads / operator.inputs[0].num_elements),
        scratch=groups * (1 + operator.output.shape[3] / 2) if is_copied(operator) else 2.0,
    )


def _helpers(operator: QConv2d, stored: StoredRows, fours: FourPixels, *, has_others: bool) -> str:
    """The layer's shapes as tvm_ext_helium_side.h takes them, `$_four` and `$_patch`."""
    begin, end = inside_columns(operator)
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]), "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window), "inside_begin": begin, "inside_end": end,
        "reads_beyond": operator.weight.shape[3] % STEP > 0 and is_pixel(operator),
        "is_in_place": takes_place_of_input(operator, stored),
        "is_copied": is_copied(operator), "has_others": has_others, "fours": fours.members(),
    }  # fmt: skip
    functions = [fours.function(), *([fours.one_function()] if has_ones(operator, stored) else [])]
    if has_others:
        functions.append(patch_function("tvm_ext_helium_side_copy", LAYER, stored))
    return "\n".join([shapes(LAYER, members), *functions])


def _body(operator: QConv2d, stored: StoredRows, *, has_scratch: bool, has_others: bool) -> str:
    """The loops of tvm_ext_helium_side.h."""
    rings, layer = with_rings(LAYER, stored)
    scratch = "scratch" if has_scratch else "NULL"
    places = f"input, output, packed, {scratch}, row_begin, row_end"
    if is_pixel(operator):
        one = "$_one" if has_ones(operator, stored) else "NULL"
        return "\n".join([*rings, f"tvm_ext_helium_side_pixels({layer}, $_four, {one}, {places});"])
    patch = "$_patch" if has_others else "NULL"
    name = "tvm_ext_helium_side_copies" if is_copied(operator) else "tvm_ext_helium_side"
    return "\n".join([*rings, f"{name}({layer}, $_four, {patch}, {places});"])


KERNEL = Kernel(
    name="qconv2d_side_helium",
    operator=QConv2d,
    implement=implement,
    constraints=(
        has_no_groups, is_for_speed, takes_fours, is_signed_where_read, *qconv2d.CONSTRAINTS, blocks_fit,
        has_narrow_factors,
    ),
)  # fmt: skip
