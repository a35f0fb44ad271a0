"""Kernel for quantized depthwise conv2d with one-column windows, by the DSP extension: four channels of a pixel.

int8 or uint8[N, H, W, C], int8[C, R, 1, 1] -> int8 or uint8[N, P, Q, C], sums in int32. The windows of layers over
time, [N, time, 1, C], have one column: adjacent outputs cannot share words of adjacent inputs, as they do in
`qdepthwise_dsp`. Without padding, because the bias contains the zero point, and without scratch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d, qdepthwise
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.requantize import wrapped
from codegen_c.kernels.shared.winograd import for_speed
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.dsp.kernels.depthwise import has_four_channels
from codegen_c.targets.dsp.kernels.product import (
    CALL_INSTRUCTIONS,
    HEADERS,
    INCLUDES,
    TABLES,
    FastRequantize,
    start,
)

WIDTH = 4
LOOPS = Loops(
    function="tvm_ext_dsp_depthwise_column", layer="tvm_ext_dsp_column_layer",
    includes=("tvm_ext_dsp_column.h", *INCLUDES, *HEADERS),
)  # fmt: skip
ROW_INSTRUCTIONS = 10
"""Four channels of one row of taps, and half of an iteration of the loop."""


def is_one_column(operator: QConv2d, target: Target) -> bool:
    """windows must be of one column and several rows"""
    return operator.window.kernel[1] == 1 and operator.window.kernel[0] > 1


def is_unpadded(operator: QConv2d, target: Target) -> bool:
    """there must be no padding"""
    return not any(operator.window.padding)


def column_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    finish = FastRequantize.of(qconv2d.requantize(operator), *qconv2d.bounds(operator))
    num_taps = operator.window.kernel[0]
    weights, *others = qconv2d.parameters(operator, finish.exact)[2:-2]
    return Parts(
        parameters=(replace(weights, ctype="int16_t"), *others),
        constants=(
            ("weights", pack(operator.weight.reshape(-1, num_taps))),
            ("bias", wrapped(start(operator.inputs[0], operator.weight, operator.bias))),
            *finish.constants(),
        ),
        members={"requantize": finish.members()},
        statements=finish.tables(),
        tables=TABLES,
        scratch=None,
        instructions=_instructions(operator, stored, finish),
        passes=Passes(
            constants=operator.output.num_elements / operator.output.shape[3],
            input=max(1.0, operator.output.num_elements * num_taps / operator.inputs[0].num_elements),
        ),
        grows_weights=True,
    )


def pack(weight: Array) -> Array:
    """Pack int8[C, taps] as int16[C / 4][taps][channels 0, 2, 1, 3].

    If four does not divide C, the last block shares some channels with the block before.
    """
    channels = weight.shape[0]
    first = [min(k, channels - WIDTH) for k in range(0, channels, WIDTH)]
    return np.stack([weight[k : k + WIDTH].T for k in first])[:, :, [0, 2, 1, 3]].astype(np.int16).ravel()


def _instructions(operator: QConv2d, stored: StoredRows, finish: FastRequantize) -> int:
    channels, num_taps = operator.output.shape[3], operator.window.kernel[0]
    blocks = operator.output.num_elements // channels * -(-channels // WIDTH)
    calls = num_taps if stored.input(0) else 1
    return blocks * (calls * CALL_INSTRUCTIONS + num_taps * ROW_INSTRUCTIONS + WIDTH * (finish.instructions + 2))


COLUMN = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=column_parts)
KERNEL = COLUMN.kernel(
    Family(
        name="qcolumn_dsp",
        title="Quantized depthwise convolution with windows of one column, four channels of a pixel at a time",
        operator=QConv2d,
        constraints=(
            qdepthwise.is_depthwise,
            is_one_column,
            is_unpadded,
            for_speed,
            has_four_channels,
            *qconv2d.CONSTRAINTS,
        ),
    )
)
