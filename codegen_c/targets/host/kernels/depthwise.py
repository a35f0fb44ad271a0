"""Kernels for quantized depthwise conv2d in vectors of 8 sums, with weights of 8 or 4 bits."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np

from codegen_c.c_text.text import block
from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qconv2d import QCONV2D_PACKED_CONSTRAINTS
from codegen_c.kernels.convolution.qdepthwise import is_depthwise, pack
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.window import over
from codegen_c.kernels.shared.winograd import for_speed
from codegen_c.operators.kinds import Array, PackedQConv2d, QConv2d, Window
from codegen_c.targets.host.kernels.products import (
    ORDER,
    STORED_AT_ONCE,
    SUM_INCLUDES,
    UNIT,
    UNPACK_INSTRUCTIONS,
    WEIGHTS_BYTES,
    in_four_bits,
    packed_parameters,
    rescale,
    row_numbers,
    start,
    sums_leave_room,
)

# Quantized depthwise conv2d in vectors of 8 sums: 16 channels of four output pixels, two taps at once.
#
# int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32, modulo 2^32. Rows that
# windows read are copied to scratch, with the zero point as padding. Either rounding. Two vertically adjacent taps are
# widened once for all adjacent pixels.

Tap = tuple[int, int]
"""Row and column of a window."""

PIXELS = 4
"""Adjacent output pixels: their sums and shared operands stay in registers."""
MOST_TAPS = 49
TAPS_INSTRUCTIONS = 8
"""Instructions of two taps of a unit."""
ROW_INSTRUCTIONS = 20
"""Instructions of a copied row, beside its bytes."""
LOOPS = Loops(
    function="tvm_ext_host_depthwise", layer="tvm_ext_host_depthwise_layer",
    includes=("tvm_ext_host_depthwise.h", "tvm_ext_host_rows.h", *SUM_INCLUDES),
    accumulation="products in pairs of taps, modulo 2^32",
)  # fmt: skip


def few_taps(operator: QConv2d, target: Target) -> bool:
    """the window must have at most 49 taps, because the code of each pair is unrolled"""
    return operator.window.kernel[0] * operator.window.kernel[1] <= MOST_TAPS


def depthwise_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output, finish = operator.inputs[0], operator.output, rescale(operator)
    window, is_packed, weights = operator.window, isinstance(operator, PackedQConv2d), _pack(operator)
    units = output.num_elements // output.shape[3] * weights.shape[0]
    copied = window.kernel[0] * row_numbers(window, source, source.shape[3])
    taps = weights.shape[1] * (TAPS_INSTRUCTIONS + (UNPACK_INSTRUCTIONS if is_packed else 0))
    copies = window.kernel[0] * ROW_INSTRUCTIONS + copied // UNIT
    return Parts(
        parameters=packed_parameters(is_packed=is_packed),
        constants=(
            ("weights", in_four_bits(weights) if is_packed else weights), ("factors", finish.table(start(operator))),
        ),
        members={"rescale": finish.members()},
        functions=(_row(operator, stored, is_packed),),
        leading=("$_row",),
        scratch_bytes=copied + STORED_AT_ONCE,
        instructions=units * (taps + finish.finish_instructions) + output.shape[0] * output.shape[1] * copies,
        passes=Passes(
            constants=max(1.0, output.num_elements // output.shape[3]), input=max(1.0, window.kernel[0]),
            scratch=max(1.0, output.num_elements * operator.weight[0].size / copied),
        ),
        grows_weights=not is_packed,
    )  # fmt: skip


def _pairs(window: Window) -> list[tuple[Tap, Tap | None]]:
    """Return the taps in vertical pairs, so that neighbours in a row share them; horizontal pairs in a last odd row."""
    rows, columns = window.kernel
    above = [((r, s), (r + 1, s)) for r in range(0, rows - 1, 2) for s in range(columns)]
    last = [(rows - 1, s) for s in range(columns)] if rows % 2 else []
    return [*above, *zip_longest(last[::2], last[1::2])]


def _pack(operator: QConv2d) -> Array:
    """Pack int16[units, pairs of taps, 16 lanes, 2]: taps in the order of `_pairs`, padded with 0."""
    taps = pack(operator.weight).reshape(*operator.window.kernel, -1)
    none = np.zeros_like(taps[0, 0])
    both = np.array(
        [[taps[first], none if second is None else taps[second]] for first, second in _pairs(operator.window)]
    )
    full = np.pad(both.astype(np.int16), ((0, 0), (0, 0), (0, -both.shape[2] % UNIT)))
    return np.ascontiguousarray(full.reshape(*full.shape[:2], -1, UNIT)[..., ORDER].transpose(2, 0, 3, 1))


def _row(operator: QConv2d, stored: StoredRows, is_packed: bool) -> str:
    """Return `$_row`, a tvm_ext_host_depthwise_row: adjacent pixels, which share elements, are computed together."""
    columns, channels = operator.output.shape[2], operator.output.shape[3]
    at_once = min(columns, PIXELS)
    whole = columns - columns % at_once
    groups = [(0, whole, at_once), *([(whole, columns, columns - whole)] if whole < columns else [])]
    body: list[str] = []
    for begin, end, pixels in groups:
        places = [
            f"const uint8_t *const x = &rows[w * {operator.window.strides[1] * channels}];",
            f"uint8_t *const pixel = &y[w * {stored.pitch or channels}];",
        ]
        lines = _unit(operator, stored.pitch or channels, pixels, is_packed)
        loop = over("w", begin, end, [*places, *over("k", 0, channels, lines, step=UNIT)], step=pixels)
        body += ["{", block(loop), "}"] if len(groups) > 1 else loop
    row_parameters = [
        "const uint8_t *restrict rows", "uint8_t *y", "const void *restrict weights", "const int32_t *restrict factors",
    ]  # fmt: skip
    return apart("$_row", row_parameters, body)


def _unit(operator: QConv2d, pitch: int, pixels: int, is_packed: bool) -> list[str]:
    """Return a unit of channels of some pixels: products of all taps, unrolled, two at a time."""
    window, (source,), channels = operator.window, operator.inputs, operator.output.shape[3]
    length, is_unsigned = row_numbers(window, source, channels), "true" if source.dtype == "uint8" else "false"
    pairs, packed, step = _pairs(window), "true" if is_packed else "false", WEIGHTS_BYTES[is_packed]

    def place(tap: Tap, p: int) -> str:
        return f"&x[k + {tap[0] * length + (tap[1] * window.dilation[1] + p * window.strides[1]) * channels}]"

    lines = [f"const uint8_t *const f = &((const uint8_t *)weights)[k * {len(pairs) * step // UNIT}];"]
    lines += ["const int32_t *const unit = &factors[k * TVM_EXT_HOST_NUMBERS];"]
    lines += [f"tvm_ext_host_sums sums{p} = tvm_ext_host_begin(unit);" for p in range(pixels)]
    for index, (first, second) in enumerate(pairs):
        weights = f"tvm_ext_host_load_weights(&f[{index * step}], {packed})"
        for p in range(pixels):
            taps = f"{place(first, p)}, {place(second or first, p)}"
            lines.append(f"tvm_ext_host_add_taps(&sums{p}, {taps}, {is_unsigned}, {weights});")
    for p in range(pixels):
        target = f"&pixel[k + {p * pitch}]" if p else "&pixel[k]"
        lines.append(f"tvm_ext_host_end(&$_layer.rescale, {target}, sums{p}, unit, {channels} - k);")
    return lines


DEPTHWISE = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=depthwise_parts)
QDEPTHWISE = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_host",
        title="Quantized depthwise convolution, 16 channels of an output pixel at a time",
        operator=QConv2d,
        constraints=(for_speed, is_depthwise, few_taps, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)
# Weights of 4 bits: the code of each pair of taps unpacks bytes.
QDEPTHWISE_PACKED = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_packed_host",
        title="Quantized depthwise convolution with weights of 4 bits, 16 channels of a pixel at a time",
        operator=PackedQConv2d,
        constraints=(is_depthwise, few_taps, *QCONV2D_PACKED_CONSTRAINTS, sums_leave_room),
    )
)


KERNELS = (QDEPTHWISE, QDEPTHWISE_PACKED)
