"""Kernel for quantized depthwise conv2d with HVX: 128 channels, or adjacent pixels and channels, at a time.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32. Four rows of the image are
interleaved in scratch, so that one instruction adds the products of four taps. Either rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d, qdepthwise
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.hexagon.kernels.products import (
    FACTORS,
    HEADERS,
    VECTOR_BYTES,
    WORD_BYTES,
    WORDS,
    WordRescale,
    sums_leave_room,
)

LOOPS = Loops(
    function="tvm_ext_hvx_depthwise", layer="tvm_ext_hvx_depthwise_layer",
    includes=("tvm_ext_hvx_depthwise.h", *HEADERS),
)  # fmt: skip
MOST_TAPS = 32
"""Words of taps for which the C code has room."""
QUAD = 4
"""Rows of the image in a word."""
CALL_INSTRUCTIONS, COPY_INSTRUCTIONS, RUN_INSTRUCTIONS, TAP_INSTRUCTIONS, GROUP_INSTRUCTIONS = 60, 25, 8, 4, 6
"""Modelled packets of a call, of 128 copied elements of four rows, of a run of results, of one tap of it, and of each
group of channels with its own weights."""


def has_few_taps(operator: QConv2d, target: Target) -> bool:
    """windows must have at most 32 taps, each row counted for four"""
    rows, columns = operator.window.kernel
    return -(-rows // QUAD) * columns <= MOST_TAPS


@dataclass(frozen=True, kw_only=True)
class RowLanes:
    """Layout of a row of outputs as vectors of words.

    width: words of a pixel, its channels or more. groups: vectors whose lanes have weights and factors of their own.
    """

    channels: int
    width: int

    @classmethod
    def of(cls, channels: int) -> Self:
        divides = WORDS % channels == 0
        return cls(channels=channels, width=channels if divides else -(-channels // WORDS) * WORDS)

    @property
    def groups(self) -> int:
        return max(1, self.width // WORDS)

    def spread(self, values: Array) -> Array:
        """Return values[K] of channels as values of the lanes of all groups; lanes without a channel are 0."""
        repeated = np.tile(values, max(1, WORDS // self.width))
        return np.pad(repeated, (0, self.groups * WORDS - len(repeated)))


def depthwise_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    output, window = operator.output, operator.window
    channels = output.shape[3]
    lanes, finish = RowLanes.of(channels), WordRescale.of_convolution(operator)
    quads, stride = -(-window.kernel[0] // QUAD), window.strides[1]
    span = (output.shape[2] - 1) * stride + (window.kernel[1] - 1) * window.dilation[1] + 1
    columns = -(-span // stride)
    words = quads * stride * columns * lanes.width
    members: dict[str, Value] = {
        "quads": quads, "span": span, "columns": columns, "lanes": lanes.width, "groups": lanes.groups,
        "requantize": finish.members(),
    }  # fmt: skip
    weights = _pack(operator, lanes, quads)
    return Parts(
        parameters=(Parameter(name="weights", ctype="int8_t", role="constant"), FACTORS),
        constants=(("weights", weights), ("factors", _factors(operator, finish, lanes))),
        members=members,
        scratch_bytes=WORD_BYTES * words + 5 * VECTOR_BYTES,
        instructions=_instructions(operator, lanes, finish, quads),
        passes=Passes(
            constants=max(1.0, output.num_elements / VECTOR_BYTES / lanes.groups),
            input=max(1.0, window.kernel[0] / window.strides[0]),
            scratch=max(1.0, output.num_elements * weights.shape[0] * WORD_BYTES / (WORD_BYTES * words)),
        ),
        pitched=lanes.width % WORDS == 0,
        grows_weights=weights.size > operator.weight.size,
    )  # fmt: skip


def _pack(operator: QConv2d, lanes: RowLanes, quads: int) -> Array:
    """Pack int8[quads * S, groups, 32 lanes, 4 rows]; rows beyond the window are 0."""
    taps = qdepthwise.pack(operator.weight)
    rows, columns, _ = taps.shape
    full = np.pad(taps, ((0, quads * QUAD - rows), (0, 0), (0, 0)))
    spread = np.array([[lanes.spread(tap) for tap in row] for row in full])
    by_quad = spread.reshape(quads, QUAD, columns, lanes.groups, WORDS).transpose(0, 2, 3, 4, 1)
    return np.ascontiguousarray(by_quad.reshape(quads * columns, lanes.groups, WORDS, QUAD).astype(np.int8))


def _factors(operator: QConv2d, finish: WordRescale, lanes: RowLanes) -> Array:
    """Return the factors of all lanes, int32[groups, 4, 32]."""
    table = finish.table(qconv2d.start_of(operator)).transpose(1, 0, 2).reshape(QUAD, -1)[:, : lanes.channels]
    spread = np.array([lanes.spread(row) for row in table])
    return np.ascontiguousarray(spread.reshape(QUAD, lanes.groups, WORDS).transpose(1, 0, 2))


def _instructions(operator: QConv2d, lanes: RowLanes, finish: WordRescale, quads: int) -> int:
    """Return the modelled packets: of copied rows, and of runs of four vectors of accumulators."""
    (images, rows, columns, channels), window = operator.output.shape, operator.window
    width = operator.inputs[0].shape[2]
    is_one_run = window.strides[1] == 1 and lanes.width == channels
    copied = -(-width * channels // VECTOR_BYTES) if is_one_run else width * -(-channels // VECTOR_BYTES)
    contiguous = lanes.width == channels
    fours = -(-columns * channels // VECTOR_BYTES) if contiguous else columns * -(-channels // VECTOR_BYTES)
    taps = quads * window.kernel[1] * TAP_INSTRUCTIONS
    each = RUN_INSTRUCTIONS + taps + 4 * finish.instructions + min(lanes.groups, 8) * GROUP_INSTRUCTIONS
    return CALL_INSTRUCTIONS + images * rows * (quads * copied * COPY_INSTRUCTIONS + fours * each)


DEPTHWISE = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=depthwise_parts)
KERNEL = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_hvx",
        title="Quantized depthwise convolution, 128 channels or adjacent pixels and channels at a time",
        operator=QConv2d,
        constraints=(qdepthwise.is_depthwise, has_few_taps, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)
