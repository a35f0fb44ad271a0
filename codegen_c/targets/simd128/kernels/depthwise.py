"""Kernel for quantized depthwise conv2d: 8 channels of adjacent output pixels, two taps at once.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], int32 sums modulo 2^32. Rows that windows read
are copied to scratch as numbers of 16 bits, with the zero point as padding. Two vertically adjacent taps are
interleaved once for all adjacent pixels. Any rounding.
"""

from __future__ import annotations

from itertools import zip_longest

import numpy as np

from codegen_c.c_text.text import block
from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qdepthwise import is_depthwise, pack
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.requantize import quantized_bytes
from codegen_c.kernels.shared.window import over
from codegen_c.operators.kinds import Array, QConv2d, Window
from codegen_c.targets.simd128.kernels.products import (
    INCLUDES,
    NUMBER_BYTES,
    PARAMETERS,
    STORED_AT_ONCE,
    copied_numbers,
    nine_bits,
    offset_member,
    rescale,
    stored_weights,
    sums_leave_room,
)
from codegen_c.targets.simd128.kernels.rescale import UNIT

Tap = tuple[int, int]
"""Row and column of a window."""

PIXELS = 4
MOST_TAPS = 49
TAPS_INSTRUCTIONS = 8
"""Instructions of two taps of a unit of a pixel."""
LOOPS = Loops(
    function="tvm_ext_simd128_depthwise", layer="tvm_ext_simd128_depthwise_layer",
    includes=("tvm_ext_simd128_depthwise.h", *INCLUDES), accumulation="products in pairs of taps, modulo 2^32",
)  # fmt: skip


def few_taps(operator: QConv2d, target: Target) -> bool:
    """the window must have at most 49 taps, because the code of each pair is unrolled"""
    return operator.window.kernel[0] * operator.window.kernel[1] <= MOST_TAPS


def depthwise_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output, finish, weights = operator.inputs[0], operator.output, rescale(operator), _pack(operator)
    window, pixels = operator.window, output.num_elements // output.shape[3]
    copied = copied_numbers(window, source)
    each = weights.shape[1] * TAPS_INSTRUCTIONS + finish.finish_instructions
    return Parts(
        parameters=PARAMETERS,
        constants=(("weights", weights), ("factors", finish.table(qconv2d.start_of(operator)))),
        members={"rescale": finish.members(), **offset_member(operator.weight)},
        functions=(_row(operator, stored),),
        leading=("$_row",),
        scratch_bytes=NUMBER_BYTES * (copied + STORED_AT_ONCE),
        instructions=pixels * weights.shape[0] * each + output.shape[0] * output.shape[1] * copied * 3 // 8,
        passes=Passes(
            constants=max(1.0, pixels), input=max(1.0, window.kernel[0]),
            scratch=max(1.0, output.num_elements * operator.weight[0].size / copied),
        ),
    )  # fmt: skip


def _pairs(window: Window) -> list[tuple[Tap, Tap | None]]:
    """Return the taps in vertical pairs, so that neighbours in a row share them; horizontal pairs in a last odd row."""
    rows, columns = window.kernel
    above = [((r, s), (r + 1, s)) for r in range(0, rows - 1, 2) for s in range(columns)]
    last = [(rows - 1, s) for s in range(columns)] if rows % 2 else []
    return [*above, *zip_longest(last[::2], last[1::2])]


def _pack(operator: QConv2d) -> Array:
    """Pack int8[units, pairs of taps, 8 channels, 2]: taps in the order of `_pairs`, padded with weights of 0."""
    stored, offset = stored_weights(operator.weight)
    taps = pack(stored).reshape(*operator.window.kernel, -1)
    none = np.full_like(taps[0, 0], -offset)
    both = np.array(
        [[taps[first], none if second is None else taps[second]] for first, second in _pairs(operator.window)]
    )
    full = np.pad(both.astype(np.int8), ((0, 0), (0, 0), (0, -both.shape[2] % UNIT)))
    return np.ascontiguousarray(full.reshape(*full.shape[:2], -1, UNIT).transpose(2, 0, 3, 1))


def _row(operator: QConv2d, stored: StoredRows) -> str:
    """Return `$_row`, a tvm_ext_simd128_depthwise_row: adjacent pixels, which share operands, together."""
    columns, channels = operator.output.shape[2], operator.output.shape[3]
    pitch, at_once = stored.pitch or channels, min(columns, PIXELS)
    whole = columns - columns % at_once
    groups = [(0, whole, at_once), *([(whole, columns, columns - whole)] if whole < columns else [])]
    body: list[str] = []
    for begin, end, pixels in groups:
        places = [
            f"const int16_t *const x = &rows[w * {operator.window.strides[1] * channels}];",
            f"uint8_t *const pixel = &y[w * {pitch}];",
        ]
        lines = [*places, *over("k", 0, channels, _unit(operator, pitch, pixels), step=UNIT)]
        loop = over("w", begin, end, lines, step=pixels)
        body += ["{", block(loop), "}"] if len(groups) > 1 else loop
    parameters = [
        "const int16_t *restrict rows", "uint8_t *y", "const void *restrict weights", "const int32_t *restrict factors",
    ]  # fmt: skip
    return apart("$_row", parameters, body)


def _unit(operator: QConv2d, pitch: int, pixels: int) -> list[str]:
    """Return a unit of channels of some pixels: products of all taps, unrolled, two at a time."""
    window, (source,), channels = operator.window, operator.inputs, operator.output.shape[3]
    length, pairs = copied_numbers(window, source) // window.kernel[0], _pairs(window)

    def place(tap: Tap, p: int) -> str:
        return f"&x[k + {tap[0] * length + (tap[1] * window.dilation[1] + p * window.strides[1]) * channels}]"

    lines = [f"const uint8_t *const f = &((const uint8_t *)weights)[k * {2 * len(pairs)}];"]
    lines += ["const int32_t *const unit = &factors[k * (TVM_EXT_SIMD128_FACTORS / TVM_EXT_SIMD128_UNIT)];"]
    for p in range(pixels):
        lines.append(f"tvm_ext_i32x4 sums{p}[2] = {{tvm_ext_i32x4_load(unit), tvm_ext_i32x4_load(&unit[4])}};")
    for index, (first, second) in enumerate(pairs):
        for p in range(pixels):
            taps = f"{place(first, p)}, {place(second or first, p)}"
            lines.append(f"tvm_ext_simd128_add_taps(&$_layer, sums{p}, {taps}, &f[{16 * index}]);")
    for p in range(pixels):
        target = f"&pixel[k + {p * pitch}]" if p else "&pixel[k]"
        end = f"{target}, sums{p}[0], sums{p}[1], unit, {channels} - k"
        lines.append(f"tvm_ext_simd128_end(&$_layer.rescale, {end});")
    return lines


DEPTHWISE = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=depthwise_parts)
QDEPTHWISE = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_simd128",
        title="Quantized depthwise convolution, 8 channels of four output pixels at a time",
        operator=QConv2d,
        constraints=(is_depthwise, few_taps, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)
QDEPTHWISE_NINE_BITS = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_simd128_nine_bits",
        title="Quantized depthwise convolution with weights of 9 bits, 8 channels of four output pixels at a time",
        operator=QConv2d,
        constraints=(
            is_depthwise, few_taps, quantized_bytes, nine_bits, qconv2d.sums_fit, qconv2d.rescaled_sums_fit,
            sums_leave_room,
        ),
    )
)  # fmt: skip
KERNELS = (QDEPTHWISE, QDEPTHWISE_NINE_BITS)
