"""conv2d and dense layers of a QDQ chain on Armv6-M, by products of pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.c_text.text import structure
from codegen_c.kernels.contract import Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.dense.qdense import DenseKernel, DenseParts
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.requantize import Products
from codegen_c.kernels.shared.vector_rows import rows_of
from codegen_c.operators.kinds import Array, QConv2d, QDense, TensorType
from codegen_c.targets.armv6m.kernels.requantize import HEADERS, PARAMETER, NarrowRequantize, for_speed

PARAMETERS = (Parameter(name="weights", ctype="int8_t", role="constant"), PARAMETER)

# Weights for products of pairs: runs of taps whose sums separate, as `tvm_ext_armv6m_product.h` reads them.
#
# A word holds two activations x + y * 2^16; such words times weights add up to the sums of both, as long as the lower
# one stays within 16 bits. Runs are as long as that is certain, whatever the activations: from the weights alone.

PAIRS = 4
"""Words side by side, 8 pixels."""
LARGEST = (1 << 15) - 1
MOST_TAPS = 127
"""Longest run, so that a byte says how long it is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeparableRuns:
    """Runs of weights, channel after channel.

    stream: int8: of each run -1 less the number of its weights, and these; -1 behind the last run of a channel.
    num_runs: int64[K].
    """

    stream: Array
    num_runs: Array

    @classmethod
    def of(cls, weight: Array) -> Self:
        """weight: int8[K, ...]."""
        taps = weight.reshape(weight.shape[0], -1)
        begins = _run_begins(taps)
        num_runs = begins.sum(axis=1)
        length = taps.shape[1]
        # A byte before each run, and one behind each channel.
        place = np.arange(length) + begins.cumsum(axis=1)
        first = np.concatenate([[0], np.cumsum(length + num_runs + 1)])
        stream = np.full(first[-1], -1, np.int8)
        stream[place + first[:-1, np.newaxis]] = taps
        channel, tap = np.nonzero(begins)
        end = np.append(tap[1:], length)
        end[np.append(channel[1:] != channel[:-1], True)] = length
        stream[place[channel, tap] + first[channel] - 1] = -1 - (end - tap)
        return cls(stream=stream, num_runs=num_runs)

    @property
    def offset(self) -> Array:
        """Surplus of the C code's sums, int64[K]: 2^15 for each run."""
        return self.num_runs.astype(np.int64) << 15

    def instructions(self) -> int:
        """Modelled instructions of all channels of 8 pixels, before they are requantized."""
        num_taps = len(self.stream) - int(self.num_runs.sum()) - len(self.num_runs)
        return 12 * num_taps + 40 * int(self.num_runs.sum()) + 52 * len(self.num_runs)


def _run_begins(taps: Array) -> Array:
    """Taps that begin a run, bool[K, T]: from each on as many as any activations from -128 to 127 leave in 16 bits."""
    channels, length = (int(extent) for extent in taps.shape)
    wide = taps.astype(np.int64)
    positive, negative = np.maximum(wide, 0), np.maximum(-wide, 0)
    zeros = np.zeros((channels, 1), np.int64)
    highest = np.concatenate([zeros, np.cumsum(127 * positive + 128 * negative, axis=1)], axis=1)
    lowest = np.concatenate([zeros, np.cumsum(128 * positive + 127 * negative, axis=1)], axis=1)
    begins = np.zeros((channels, length + 1), bool)
    place, rows = np.zeros(channels, np.int64), np.arange(channels)
    ends = np.minimum(_ends(highest, LARGEST), _ends(lowest, LARGEST + 1))
    while (place < length).any():
        begins[rows, place] = True
        end = np.minimum(ends[rows, np.minimum(place, length - 1)], place + MOST_TAPS)
        place = np.where(place < length, end, length)
    return begins[:, :length]


def _ends(sums: Array, most: int) -> Array:
    """The last place up to which sums that rise have grown by no more than `most`, from each place on: int64[K, T]."""
    channels, places = (int(extent) for extent in sums.shape)
    apart: Array = (int(sums.max()) + most + 1) * np.arange(channels)[:, np.newaxis]
    ends: Array = np.searchsorted((sums + apart).ravel(), (sums + apart)[:, :-1] + most, side="right") - 1
    return ends - places * np.arange(channels)[:, np.newaxis]


def byte_offset(source: TensorType) -> int:
    """Number taken off activations, so that they are from -128 to 127."""
    return 128 if source.dtype == "uint8" else 0


# conv2d of a QDQ chain on Armv6-M: eight output pixels by one channel at a time, two products by one instruction.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. The windows of eight pixels
# are packed in scratch, two to a word, padding as zero points; all channels then read them. The zero point is taken
# off with the bias. Either rounding.

LOOPS = Loops(
    function="tvm_ext_armv6m_conv2d", layer="tvm_ext_armv6m_conv2d_layer",
    includes=("tvm_ext_armv6m_conv2d.h", "tvm_ext_armv6m_product.h", *HEADERS),
    columns_at_once=1, is_read_first=True,
)  # fmt: skip
PIXELS = 2 * PAIRS
WORD_INSTRUCTIONS, RUN_INSTRUCTIONS, PIXEL_INSTRUCTIONS = 9, 34, 30
"""Modelled instructions of a word of two elements, of a run of such words, and of finding a pixel."""
PIXELS_PARAMETERS = [
    "uint8_t *const output[TVM_EXT_ARMV6M_PIXELS]", "const int8_t *weights", "const int32_t *factors",
    "const uint32_t *cells",
]  # fmt: skip


def is_ungrouped(operator: QConv2d, target: Target) -> bool:
    """the convolution must have one group"""
    return operator.groups == 1


def convolution_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    paired = SeparableRuns.of(operator.weight)
    finish = narrow(operator, paired.offset)
    num_taps, channels = operator.weight[0].size, operator.output.shape[3]
    num_pixels = operator.output.num_elements // channels
    return Parts(
        parameters=PARAMETERS,
        constants=(("weights", paired.stream), *finish.constants()),
        members={"requantize": finish.members()},
        functions=(_pixels(),),
        leading=("$_pixels",),
        scratch_bytes=4 * PAIRS * num_taps,
        instructions=_instructions(operator, stored, finish, paired),
        passes=Passes(
            constants=max(1.0, num_pixels / PIXELS),
            input=max(1.0, num_pixels * num_taps / operator.inputs[0].num_elements),
            scratch=num_pixels / PIXELS * (1 + channels),
        ),
        grows_weights=True,
    )


def narrow(operator: QConv2d, offset: Array | int) -> NarrowRequantize:
    """Requantization of sums over elements from -128 to 127. offset: what these sums have too much, int64[K]."""
    low, high = qconv2d.products(operator).range()
    start = start_of(operator) + byte_offset(operator.inputs[0]) * taps_of(operator)
    return NarrowRequantize.of(qconv2d.requantize(operator), low=low, high=high, start=start - offset)


def start_of(operator: QConv2d) -> Array:
    """Initial sums of x * w, int64[K]: bias less zero point times weights; padding is then a zero point."""
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=False).start


def taps_of(operator: QConv2d) -> Array:
    """Sums of weights, int64[K]."""
    return operator.weight.reshape(operator.weight.shape[0], -1).sum(axis=1, dtype="int64")


def _instructions(operator: QConv2d, stored: StoredRows, finish: NarrowRequantize, paired: SeparableRuns) -> int:
    """Modelled instructions: packed windows, then products and results; a call's last group may lack pixels."""
    batch, height, columns, channels = operator.output.shape
    at_once = stored.at_once or height
    calls = [min(at_once, height - h) for h in range(0, height, at_once)]
    groups = sum(-(-batch * rows * columns // PIXELS) for rows in calls)
    pairs = -(-batch * height * columns // 2)
    window = operator.window
    runs = window.kernel[0] * (window.kernel[1] if window.dilation[1] > 1 else 1)
    pack = 2 * PIXEL_INSTRUCTIONS + runs * RUN_INSTRUCTIONS + WORD_INSTRUCTIONS * operator.weight[0].size
    return pairs * pack + groups * (paired.instructions() + channels * (14 + PIXELS * finish.instructions))


def _pixels() -> str:
    """`$_pixels(...)`, a tvm_ext_armv6m_pixels."""
    call = "tvm_ext_armv6m_conv2d_pixels(&$_layer, output, weights, factors, cells);"
    return apart("$_pixels", PIXELS_PARAMETERS, [call], linkage="TVM_EXT_ARMV6M_SHARED")


CONVOLUTION = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=convolution_parts)
QCONV2D = CONVOLUTION.kernel(
    Family(
        name="qconv2d_armv6m",
        operator=QConv2d,
        constraints=(for_speed, is_ungrouped, *qconv2d.CONSTRAINTS),
    )
)


# Dense layer of a QDQ chain on Armv6-M: one row by four output channels at a time.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], sums in int32, without scratch. The zero point is taken
# off with the bias. Either rounding.

WIDTH = 4
BLOCK_INSTRUCTIONS, ELEMENT_INSTRUCTIONS = 64, 15
"""Modelled instructions of four channels, and of one element of theirs."""


def has_four_channels(operator: QDense, target: Target) -> bool:
    """there must be at least 4 output channels"""
    return operator.weight.shape[0] >= WIDTH


def dense_layer(operator: QDense, target: Target) -> Callable[[QDense], DenseParts]:
    (channels, depth), sums = operator.weight.shape, qdense.products(operator)
    low, high = sums.range()
    finish = NarrowRequantize.of(qdense.requantize(operator), low=low, high=high, start=sums.start)
    rows = operator.output.num_elements // channels
    block = BLOCK_INSTRUCTIONS + depth * ELEMENT_INSTRUCTIONS + WIDTH * (finish.instructions + 6)

    def parts(part: QDense) -> DenseParts:
        part_channels = part.weight.shape[0]
        part_rows = part.output.num_elements // part_channels
        layer = structure("tvm_ext_armv6m_dense_layer", "layer", {
            "rows": part_rows, "depth": depth, "channels": part_channels,
            "has_unsigned_input": operator.inputs[0].dtype == "uint8", "requantize": finish.members(),
        })  # fmt: skip
        return DenseParts(
            parameters=PARAMETERS,
            constants=(("weights", operator.weight), *finish.constants()),
            body="\n".join([*layer, "tvm_ext_armv6m_dense(&layer, input, output, weights, factors);"]),
            includes=("tvm_ext_armv6m_dense.h", *HEADERS),
            instructions=part_rows * -(-part_channels // WIDTH) * block,
            passes=Passes(constants=max(1.0, rows), input=max(1.0, channels / WIDTH)),
            grows_weights=True,
        )

    return parts


def has_wide_rows(operator: QDense) -> bool:
    """Return True if a row of the result has as many channels as are computed together."""
    rows = rows_of(operator.output.shape)
    return rows is None or rows.length >= WIDTH


QDENSE = DenseKernel(name="qdense_armv6m", layer=dense_layer, has_rows=has_wide_rows).kernel(
    (for_speed, has_four_channels, *qdense.CONSTRAINTS)
)


KERNELS = (QCONV2D, QDENSE)
