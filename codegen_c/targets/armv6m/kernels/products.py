"""Kernels for quantized convolutions and dense layers on Armv6-M, two products per multiplication."""

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
from codegen_c.kernels.shared.vector_rows import rows_of
from codegen_c.operators.kinds import Array, QConv2d, QDense, TensorType
from codegen_c.targets.armv6m.kernels.requantize import HEADERS, PARAMETER, NarrowRequantize, for_speed

PARAMETERS = (Parameter(name="weights", ctype="int8_t", role="constant"), PARAMETER)

# Weights in separable runs, in the layout that `tvm_ext_armv6m_product.h` reads.
#
# A word holds two activations, x + y * 2^16. One multiplication by a weight gives both products, and the words of a run
# add up to both sums. The two sums can be separated afterwards only if the lower one fits 16 bits. A run is as long
# as the weights guarantee that for any activations.

PAIRS = 4
"""Words that are computed together, which hold 8 pixels."""
LARGEST = (1 << 15) - 1
MOST_TAPS = 127
"""Longest run: its length must fit one signed byte."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeparableRuns:
    """Runs of weights, channel after channel.

    stream: int8. Each run is a byte -1 - n and its n weights; a byte -1 ends the channel.
    num_runs: runs of each channel, int64[K].
    """

    stream: Array
    num_runs: Array

    @classmethod
    def of(cls, weight: Array) -> Self:
        """Split weights, int8[K, ...], into runs that are as long as possible."""
        taps = weight.reshape(weight.shape[0], -1)
        begins = _run_begins(taps)
        num_runs = begins.sum(axis=1)
        length = taps.shape[1]
        # One byte before each run, and one after each channel.
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
        """Return what the accumulators of the C code have in excess, int64[K]: 2^15 for each run."""
        return self.num_runs.astype(np.int64) << 15

    def instructions(self) -> int:
        """Return the modelled instructions of all channels of 8 pixels, without requantization."""
        num_taps = len(self.stream) - int(self.num_runs.sum()) - len(self.num_runs)
        return 12 * num_taps + 40 * int(self.num_runs.sum()) + 52 * len(self.num_runs)


def _run_begins(taps: Array) -> Array:
    """Return the taps that begin a run, bool[K, T].

    A run takes as many taps as fit 16 bits for all activations from -128 to 127.
    """
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
    """Return for each place the last place up to which the ascending `sums` grow by at most `most`: int64[K, T]."""
    channels, places = (int(extent) for extent in sums.shape)
    apart: Array = (int(sums.max()) + most + 1) * np.arange(channels)[:, np.newaxis]
    ends: Array = np.searchsorted((sums + apart).ravel(), (sums + apart)[:, :-1] + most, side="right") - 1
    return ends - places * np.arange(channels)[:, np.newaxis]


def byte_offset(source: TensorType) -> int:
    """Return the number to subtract from activations so that they lie between -128 and 127."""
    return 128 if source.dtype == "uint8" else 0


# Quantized convolution on Armv6-M: eight output pixels of one channel at a time, two products per multiplication.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], int32 accumulators. The windows of eight
# pixels are packed in scratch, two activations per word, with zero points as padding; all channels then read them. The
# bias contains the correction for the zero point. Rounding "onnx" or "tflite".

LOOPS = Loops(
    function="tvm_ext_armv6m_conv2d", layer="tvm_ext_armv6m_conv2d_layer",
    includes=("tvm_ext_armv6m_conv2d.h", "tvm_ext_armv6m_pixels.h", "tvm_ext_armv6m_product.h", *HEADERS),
    columns_at_once=1, is_read_first=True,
)  # fmt: skip
PIXELS = 2 * PAIRS
WORD_INSTRUCTIONS, RUN_INSTRUCTIONS, PIXEL_INSTRUCTIONS = 9, 34, 30
"""Modelled instructions of a word of two elements, of a run of these words, and of locating a pixel."""
PIXELS_PARAMETERS = [
    "uint8_t *const output[TVM_EXT_ARMV6M_PIXELS]", "const int8_t *weights", "const int32_t *factors",
    "const uint32_t *cells",
]  # fmt: skip


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
    """Return the requantization of sums over elements from -128 to 127.

    offset: excess of these sums, int64[K].
    """
    low, high = qconv2d.products(operator).range()
    start = qconv2d.start_of(operator) + byte_offset(operator.inputs[0]) * taps_of(operator)
    return NarrowRequantize.of(qconv2d.requantize(operator), low=low, high=high, start=start - offset)


def taps_of(operator: QConv2d) -> Array:
    """Return the sum of the weights of each channel, int64[K]."""
    return operator.weight.reshape(operator.weight.shape[0], -1).sum(axis=1, dtype="int64")


def _instructions(operator: QConv2d, stored: StoredRows, finish: NarrowRequantize, paired: SeparableRuns) -> int:
    """Return the modelled instructions. The last group of a call may have fewer than eight pixels."""
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
    """Return the initializer `$_pixels(...)` of a tvm_ext_armv6m_pixels."""
    call = "tvm_ext_armv6m_conv2d_pixels(&$_layer, output, weights, factors, cells);"
    return apart("$_pixels", PIXELS_PARAMETERS, [call], linkage="TVM_EXT_ARMV6M_SHARED")


CONVOLUTION = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=convolution_parts)
QCONV2D = CONVOLUTION.kernel(
    Family(
        name="qconv2d_armv6m",
        title="Quantized convolution, eight output pixels of a channel at a time",
        operator=QConv2d,
        constraints=(for_speed, qconv2d.is_ungrouped, *qconv2d.CONSTRAINTS),
    )
)


# Quantized dense layer on Armv6-M: four output channels of one row at a time.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], int32 accumulators, no scratch. The bias contains the
# correction for the zero point. Rounding "onnx" or "tflite".

WIDTH = 4
BLOCK_INSTRUCTIONS, ELEMENT_INSTRUCTIONS = 64, 15
"""Modelled instructions of four channels, and of one of their elements."""


def has_four_channels(operator: QDense, target: Target) -> bool:
    """there must be at least 4 output channels"""
    return operator.weight.shape[0] >= WIDTH


def dense_layer(operator: QDense, target: Target) -> Callable[[QDense], DenseParts]:
    (channels, depth), sums = operator.weight.shape, qdense.products(operator)
    low, high = sums.range()
    finish = NarrowRequantize.of(qdense.requantize(operator), low=low, high=high, start=sums.start)
    rows = operator.output.num_elements // channels
    # Rows of a result have a multiple of four channels where all channels are one, so that they read whole words.
    is_interleaved = finish.fraction_bits > 0 and channels % WIDTH == 0
    weights = interleaved(operator.weight) if is_interleaved else operator.weight
    block = BLOCK_INSTRUCTIONS + depth * ELEMENT_INSTRUCTIONS + WIDTH * (finish.instructions + 6)

    def parts(part: QDense) -> DenseParts:
        part_channels = part.weight.shape[0]
        part_rows = part.output.num_elements // part_channels
        layer = structure("tvm_ext_armv6m_dense_layer", "layer", {
            "rows": part_rows, "depth": depth, "channels": part_channels,
            "has_unsigned_input": operator.inputs[0].dtype == "uint8", "is_interleaved": is_interleaved,
            "requantize": finish.members(),
        })  # fmt: skip
        return DenseParts(
            parameters=PARAMETERS,
            constants=(("weights", weights), *finish.constants()),
            body="\n".join([*layer, "tvm_ext_armv6m_dense(&layer, input, output, weights, factors);"]),
            includes=("tvm_ext_armv6m_dense.h", "tvm_ext_armv6m_dense_fours.h", "tvm_ext_armv6m_fours.h", *HEADERS),
            instructions=part_rows * -(-part_channels // WIDTH) * block,
            passes=Passes(constants=max(1.0, rows), input=max(1.0, channels / WIDTH)),
            grows_weights=True,
        )

    return parts


def interleaved(weight: Array) -> Array:
    """Return int8[K, C] as int8[K / 4, C, 4]: a word for each element of the input.

    Of its channels all but the last one are stored plus 128, modulo 256, as `tvm_ext_armv6m_dense_fours.h` reads them.
    """
    words = weight.reshape(-1, WIDTH, weight.shape[1]).transpose(0, 2, 1)
    flipped = np.array([0x80] * (WIDTH - 1) + [0], np.uint8)
    return np.ascontiguousarray((words.view(np.uint8) ^ flipped).view(np.int8))


def has_wide_rows(operator: QDense) -> bool:
    """Return True if a row of the result has at least as many channels as are computed together."""
    rows = rows_of(operator.output.shape)
    return rows is None or rows.length >= WIDTH


QDENSE = DenseKernel(
    name="qdense_armv6m",
    title="Quantized dense layer, four output channels of a row at a time",
    layer=dense_layer,
    has_rows=has_wide_rows,
).kernel((for_speed, has_four_channels, *qdense.CONSTRAINTS))


KERNELS = (QCONV2D, QDENSE)
