"""conv2d of a QDQ chain with Helium: two output pixels by four channels at a time.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. Where a row of the
window is a whole number of vectors, pixels whose window lies inside the input are read in place; windows of all
other pixels are copied to scratch first, padding filled in with the zero point. Rounding "onnx".
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.conv_f32 import inner_columns
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import Array, PackedQConv2d, QConv2d
from codegen_c.targets.helium.kernels.helium import (
    PRODUCT_INCLUDES,
    Rescale,
    flip,
    signed_zero_point,
)
from codegen_c.targets.helium.kernels.im2col_helium import INCLUDES as PATCH_INCLUDES
from codegen_c.targets.helium.kernels.im2col_helium import Im2col, patch_function
from codegen_c.targets.helium.kernels.product_helium import (
    CHANNEL_BLOCK,
    PARAMETERS,
    SCRATCH,
    STEP,
    Product,
    padded,
    step_blocks,
)

LAYER = "tvm_ext_helium_conv2d_layer"
# Modelled instructions of the copy of a window whose rows are a vector or less: around its rows, and of one.
SHORT_COPY, SHORT_ROW = 14, 5


def has_no_groups(operator: QConv2d, target: Target) -> bool:
    """the convolution must not have groups"""
    return operator.groups == 1


def sums_leave_room(operator: QConv2d, target: Target) -> bool:
    """where a channel's factor is one quarter or more, its sums must be small enough to be scaled up"""
    return rescale(operator).fits(*qconv2d.products(operator).range())


def rescale(operator: QConv2d) -> Rescale:
    return Rescale.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())


def start(operator: QConv2d) -> Array:
    """int64[K]: bias less the zero point times all weights, as padding is read like the input."""
    taps = operator.weight.reshape(operator.weight.shape[0], -1).astype(np.int64)
    return operator.bias.astype(np.int64) - signed_zero_point(operator.inputs[0]) * taps.sum(axis=1)


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    kernel_rows, _, depth = operator.weight.shape[1:]
    runs = kernel_rows if _reads_in_place(operator) else 1
    product = Product.of(
        runs=runs, run_bytes=operator.weight[0].size // runs, channels=output.shape[3], rescale=rescale(operator),
        target=target, in_nibbles=isinstance(operator, PackedQConv2d),
    )  # fmt: skip
    patch = Im2col(window=operator.window, source=source, depth=depth)
    num_pixels = output.num_elements // output.shape[3]
    copied = num_pixels - _num_in_place(operator, stored)
    begin, end = _short_columns(operator)
    short = num_whole_rows(operator, stored) * (end - begin)
    copies = copied > 0
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *PARAMETERS,
                *((SCRATCH,) if copies else ()),
                *ROW_PARAMETERS,
            ),
            body=_body(operator, stored, copies=copies),
            helpers=_helpers(operator, stored, product, copies=copies),
            includes=("tvm_ext_helium_conv2d.h", *PATCH_INCLUDES, *PRODUCT_INCLUDES),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=product.constants(operator.weight, start(operator)),
        scratch_bytes=2 * padded(patch.num_bytes) + (STEP if _has_short_rows(operator) else 0) if copies else 0,
        macs=output.num_elements * operator.weight[0].size,
        instructions=-(-num_pixels // 2) * (product.instructions(2) + 16)
        + (copied - short) * (patch.instructions + 10)
        + short * (SHORT_COPY + SHORT_ROW * kernel_rows),
        passes=passes(operator, copied),
        accumulation="products with r, s, c ascending in vectors of 16, then bias",
        spatial=spatial(operator.window, source, output),
        exact=True,
        pitched=True,
    )


def passes(operator: QConv2d, copied: int) -> Passes:
    """Two pixels by four channels; `copied` pixels are copied first and read from the copy."""
    channels = operator.output.shape[3]
    num_pixels, taps = operator.output.num_elements // channels, operator.weight[0].size
    blocks = -(-channels // CHANNEL_BLOCK)
    reads = taps * ((num_pixels - copied) * blocks + copied)
    return Passes(
        constants=max(1.0, num_pixels / 2),
        input=max(1.0, reads / operator.inputs[0].num_elements),
        scratch=copied / 2 * (1 + blocks),
    )


def _reads_in_place(operator: QConv2d) -> bool:
    """True where a window inside the input can be read in place: its rows are whole vectors of int8."""
    kernel_columns, depth = operator.weight.shape[2:]
    adjacent = kernel_columns == 1 or operator.window.dilation[1] == 1
    return adjacent and kernel_columns * depth % STEP == 0 and flip(operator.inputs[0]) == 0


def _inside(operator: QConv2d) -> tuple[int, int]:
    """Output columns that are read in place, where the rows of the window lie inside the input: pairs only."""
    if not _reads_in_place(operator):
        return 0, 0
    begin, end = inner_columns(operator.window, operator.inputs[0].shape[2], operator.output.shape[2])
    return begin, begin + (end - begin) // 2 * 2


def _has_short_rows(operator: QConv2d) -> bool:
    """True where a row of the window is one run of a vector or less."""
    kernel_columns, depth = operator.weight.shape[2:]
    return operator.window.dilation[1] == 1 and kernel_columns * depth <= STEP and not _reads_in_place(operator)


def _short_columns(operator: QConv2d) -> tuple[int, int]:
    """Output columns whose windows lie in columns of the input and are copied a row a vector."""
    if not _has_short_rows(operator):
        return 0, 0
    return inner_columns(operator.window, operator.inputs[0].shape[2], operator.output.shape[2])


def _num_in_place(operator: QConv2d, stored: StoredRows) -> int:
    """Output pixels that are read in place."""
    begin, end = _inside(operator)
    return num_whole_rows(operator, stored) * (end - begin)


def num_whole_rows(operator: QConv2d, stored: StoredRows) -> int:
    """Output rows of all images whose windows' rows lie inside the input, one behind the other in memory."""
    window, height = operator.window, operator.inputs[0].shape[1]
    reach = (window.kernel[0] - 1) * window.dilation[0]
    tops = np.arange(operator.output.shape[1]) * window.strides[0] - window.padding[0]
    whole = (tops >= 0) & (tops + reach < height)
    kept = stored.input(0)
    if kept is not None:
        whole &= (tops + kept.shift) % kept.stored + reach < kept.stored
    return int(whole.sum()) * operator.output.shape[0]


def _helpers(operator: QConv2d, stored: StoredRows, product: Product, *, copies: bool) -> str:
    """The layer's shapes as tvm_ext_helium_conv2d.h takes them, `$_two` and `$_patch`."""
    begin, end = _inside(operator)
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window),
        "in_place_begin": begin,
        "in_place_end": end,
        "has_copies": copies,
        "inside_begin": _short_columns(operator)[0],
        "inside_end": _short_columns(operator)[1],
        **({"is_inside": True} if _is_inside(operator, stored) else {}),
        "product": product.members(),
    }
    functions = [product.function(2)]
    if copies and not _is_inside(operator, stored):
        functions.append(patch_function("tvm_ext_helium_conv2d_copy", LAYER, stored))
    return "\n".join([shapes(LAYER, members), *functions])


def _is_inside(operator: QConv2d, stored: StoredRows) -> bool:
    """True where all windows are copied a row a vector, so that no other copy is made."""
    begin, end = _short_columns(operator)
    rows, columns = operator.output.shape[1:3]
    whole = num_whole_rows(operator, stored) == rows and (begin, end) == (0, columns)
    return whole and operator.output.shape[0] == 1 and stored.output is None


def _body(operator: QConv2d, stored: StoredRows, *, copies: bool) -> str:
    """The loops of tvm_ext_helium_conv2d.h."""
    rings, layer = with_rings(LAYER, stored)
    patch = "$_patch" if copies and not _is_inside(operator, stored) else "NULL"
    scratch = "scratch" if copies else "NULL"
    call = (
        f"tvm_ext_helium_conv2d({layer}, $_two, {patch}, input, output, weights, factors, {scratch}, row_begin, "
        "row_end);"
    )
    return "\n".join([*rings, call])


KERNEL = Kernel(
    name="qconv2d_helium",
    operator=QConv2d,
    implement=implement,
    constraints=(has_no_groups, *qconv2d.SUMS_TOO, sums_leave_room),
    blocks=step_blocks,
)
