"""Kernel for quantized depthwise conv2d with Helium: 16 channels of one output pixel at a time.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], or its sums, int32. Products are summed in 16
bits over groups of taps with small weights, and the groups' sums in 32 bits. Pixels whose window lies inside the input
are read in place; windows of all other pixels are copied to scratch first, with the zero point as padding. If channels
are no whole vectors, the last 16 are a vector of their own, which overlaps the vector before: no load reaches beyond a
pixel. Rounding "onnx".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.conv_f32 import inner_columns
from codegen_c.kernels.convolution.qdepthwise import is_depthwise, pack
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.requantize import signed
from codegen_c.kernels.shared.window import over
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.helium.kernels.convolution import rescale, start, sums_leave_room
from codegen_c.targets.helium.kernels.product import IM2COL_INCLUDES as PATCH_INCLUDES
from codegen_c.targets.helium.kernels.product import (
    LANES,
    PARAMETERS,
    PRODUCT_INCLUDES,
    Im2col,
    Rescale,
    flip,
    patch_function,
)

VECTOR = 16
# Limit of the sum of weights for which products stay within 16 bits, for every int8 input.
MOST_WEIGHT = 255
MOST_TAPS = 49
LAYER = "tvm_ext_helium_depthwise_layer"
LOOPS = Loops(
    function="tvm_ext_helium_depthwise", layer=LAYER,
    includes=("tvm_ext_helium_depthwise.h", *PATCH_INCLUDES, *PRODUCT_INCLUDES),
    accumulation="products of r, s in groups, then bias",
)  # fmt: skip
PIXEL_PARAMETERS = [
    "const int8_t *x", "int32_t pitch", "uint8_t *y", "const int8_t *restrict weights",
    "const int32_t *restrict factors", "int32_t count",
]  # fmt: skip
# Widening a vector of bytes twice leaves these channels in the lanes of its four parts.
ORDER = np.array([0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15])


def few_taps(operator: QConv2d, target: Target) -> bool:
    """the window must have at most 49 taps, because the code of each is unrolled"""
    return operator.window.kernel[0] * operator.window.kernel[1] <= MOST_TAPS


def groups_of_taps(weight: Array) -> list[list[int]]:
    """Return groups of taps (r * S + s) whose products may be summed in 16 bits, for every channel:

    first fit, in order.
    """
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


def depthwise_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output = operator.inputs[0], operator.output
    groups, finish = groups_of_taps(operator.weight), _by_lane(rescale(operator), _lanes(operator))
    patch = _patch(operator)
    num_calls = output.shape[0] * output.shape[1] * -(-output.shape[2] // pixels_at_once(operator))
    copied = num_calls - _num_in_place(operator, stored)
    num_blocks = -(-source.shape[3] // VECTOR)
    each = operator.weight[0].size * 6 + len(groups) * 7 + 40 + LANES * finish.instructions
    begin, end = _inside(operator)
    return Parts(
        parameters=PARAMETERS,
        constants=(
            ("weights", _pack(operator, groups)),
            ("factors", finish.table(start(operator)[_lanes(operator)], ORDER)),
        ),
        members={
            "pixels": pixels_at_once(operator), "tap_bytes": _tap_bytes(operator), "in_place_begin": begin,
            "in_place_end": end, "has_copies": copied > 0, "rescale": finish.members(),
        },
        functions=(
            _pixel(operator, groups),
            *((patch_function("tvm_ext_helium_depthwise_copy", LAYER, stored),) if copied else ()),
        ),
        leading=("$_pixel", "$_patch" if copied else "NULL"),
        scratch="scratch" if copied else "NULL",
        scratch_bytes=patch.num_bytes if copied else 0,
        instructions=num_calls * (40 + num_blocks * each) + copied * patch.instructions,
        passes=Passes(
            constants=max(1.0, num_calls),
            input=max(1.0, output.num_elements * operator.weight[0].size / source.num_elements),
            scratch=copied * (1 + operator.weight[0].size / pixels_at_once(operator)) if copied else 0.0,
        ),
        pitched=pixels_at_once(operator) == 1,
    )  # fmt: skip


def pixels_at_once(operator: QConv2d) -> int:
    """Return the adjacent pixels in a vector of fewer than 16 channels, if windows advance by one pixel; else 1."""
    channels, window = operator.inputs[0].shape[3], operator.window
    fits = channels < VECTOR and VECTOR % channels == 0 and window.strides[1] == window.dilation[1] == 1
    return VECTOR // channels if fits else 1


def _lanes(operator: QConv2d) -> Array:
    """Return int[lanes]: the channel in each lane of consecutive vectors; the last vector may have unused lanes."""
    channels = np.arange(operator.inputs[0].shape[3])
    if len(channels) < VECTOR:
        return np.tile(channels, pixels_at_once(operator))
    whole = len(channels) // VECTOR * VECTOR
    return np.concatenate([channels[:whole], channels[-VECTOR:] if whole < len(channels) else channels[:0]])


def _by_lane(finish: Rescale, lanes: Array) -> Rescale:
    """Return the factors of each lane's channel."""
    one = finish.requantize
    if one.is_uniform:
        return finish
    return replace(finish, requantize=replace(one, mantissa=one.mantissa[lanes], shift=one.shift[lanes]))


def _tap_bytes(operator: QConv2d) -> int:
    """Return the bytes from tap to tap in a copied window: its channels, or a vector if it is of one pixel."""
    channels = operator.inputs[0].shape[3]
    return channels if pixels_at_once(operator) > 1 else max(channels, VECTOR)


def _patch(operator: QConv2d) -> Im2col:
    """Return the window of all pixels in a vector: one column wider for each further pixel."""
    (rows, columns), padding, more = operator.window.kernel, operator.window.padding, pixels_at_once(operator) - 1
    # The last vector of a row may reach beyond the last pixel.
    wider = replace(
        operator.window, kernel=(rows, columns + more), padding=(*padding[:3], padding[3] + more)
    )  # fmt: skip
    return Im2col(window=wider, source=operator.inputs[0], depth=_tap_bytes(operator))


def _pack(operator: QConv2d, groups: list[list[int]]) -> Array:
    """Pack int8[blocks, taps, 16]: taps in the order of the groups, zeros after the last channel."""
    taps = pack(operator.weight).reshape(operator.weight[0].size, -1)[:, _lanes(operator)]
    full = np.zeros((len(taps), -(-taps.shape[1] // VECTOR) * VECTOR), dtype=np.int8)
    full[:, : taps.shape[1]] = taps[[tap for group in groups for tap in group]]
    return np.ascontiguousarray(full.reshape(len(taps), -1, VECTOR).transpose(1, 0, 2))


def _inside(operator: QConv2d) -> tuple[int, int]:
    """Return the output columns that can be read in place: vectors of int8 inside the input, channels adjacent."""
    source = operator.inputs[0]
    whole = source.shape[3] >= VECTOR or pixels_at_once(operator) > 1
    if operator.window.dilation[1] > 1 or not whole or flip(source) != 0:
        return 0, 0
    return inner_columns(operator.window, source.shape[2], operator.output.shape[2])


def _num_in_place(operator: QConv2d, stored: StoredRows) -> int:
    """Return the number of vectors of output pixels that are read in place."""
    (begin, end), pixels = _inside(operator), pixels_at_once(operator)
    rows = sum(1 for top in range(operator.output.shape[1]) if _row_is_inside(operator, stored, top))
    columns = sum(1 for w in range(0, operator.output.shape[2], pixels) if begin <= w and w + pixels <= end)
    return rows * columns * operator.output.shape[0]


def _row_is_inside(operator: QConv2d, stored: StoredRows, row: int) -> bool:
    window, kept = operator.window, stored.input(0)
    top, reach = row * window.strides[0] - window.padding[0], (window.kernel[0] - 1) * window.dilation[0]
    return (
        top >= 0
        and top + reach < operator.inputs[0].shape[1]
        and (kept is None or kept.slot(top) + reach < kept.stored)
    )


def _pixel(operator: QConv2d, groups: list[list[int]]) -> str:
    """Return `$_pixel`, a tvm_ext_helium_pixel: products of all taps, unrolled in the order of the groups."""
    depth, pixels = _tap_bytes(operator), pixels_at_once(operator)
    (kernel_rows, kernel_columns), num_channels = operator.window.kernel, operator.output.shape[3]
    middle = kernel_columns // 2  # loads reach 127 bytes to either side of a pointer
    lines = [f"const int8_t *x0 = x + k{signed(middle * depth)};"]
    lines += [f"const int8_t *x{r} = x{r - 1} + pitch;" for r in range(1, kernel_rows)]
    lines += ["tvm_ext_i16x8 even;", "tvm_ext_i16x8 odd;", "tvm_ext_i32x4 sums[4];"]
    lines += ["tvm_ext_helium_begin_sums(sums, factors);"]
    position = 0
    for group in groups:
        for tap in group:
            r, s = divmod(tap, kernel_columns)
            place, weight = f"&x{r}[{(s - middle) * depth}]", f"&weights[{position * VECTOR}]"
            function = "MULTIPLY" if tap == group[0] else "MULTIPLY_ADD"
            lines.append(f"TVM_EXT_{function}_I8X16(even, odd, {place}, {weight});")
            position += 1
        lines.append("tvm_ext_helium_widen(sums, even, odd);")
    lines.append("tvm_ext_helium_end_sums(&$_layer, y, k, sums, factors, count);")
    between = [f"weights += {position * VECTOR};", f"factors += {3 * VECTOR};"]
    last = num_channels - VECTOR
    if last > 0 and num_channels % VECTOR:
        lines = [f"const int32_t k = next < {last} ? next : {last};", *lines]
        body = over("next", 0, num_channels, lines, step=VECTOR, between=between)
    else:
        body = over("k", 0, num_channels, lines, step=VECTOR, between=between)
    unused = ["(void)pitch;"] if kernel_rows == 1 else []
    unused += ["(void)count;"] if pixels == 1 else []
    return apart("$_pixel", PIXEL_PARAMETERS, [*unused, *body])


DEPTHWISE = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=depthwise_parts)
KERNEL = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_helium",
        title="Quantized depthwise convolution, 16 channels of an output pixel at a time",
        operator=QConv2d,
        constraints=(is_depthwise, few_taps, *qconv2d.SUMS_TOO, sums_leave_room),
    )
)
