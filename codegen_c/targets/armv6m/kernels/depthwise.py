"""Kernel for quantized depthwise conv2d on Armv6-M: four channels of one output pixel at a time.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32. Taps outside the image read a
pixel of zero points in scratch, so that the bias can subtract the zero point. Either rounding.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d, qdepthwise
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.armv6m.kernels.products import PARAMETERS
from codegen_c.targets.armv6m.kernels.requantize import HEADERS, NarrowRequantize, for_speed

LOOPS = Loops(
    function="tvm_ext_armv6m_depthwise", layer="tvm_ext_armv6m_depthwise_layer",
    includes=(
        "tvm_ext_armv6m_depthwise.h", "tvm_ext_armv6m_depthwise_fours.h", "tvm_ext_armv6m_fours.h", "tvm_ext_taps.h",
        *HEADERS,
    ),
    columns_at_once=1,
)  # fmt: skip
WIDTH = 4
MOST_TAPS = 49
BLOCK_INSTRUCTIONS, TAP_INSTRUCTIONS = 54, 22
"""Modelled instructions of four channels, and of one of their taps."""
PIXEL_INSTRUCTIONS, PLACE_INSTRUCTIONS = 30, 10
"""Modelled instructions of a pixel, and of computing the address of one of its taps."""
PIXEL_PARAMETERS = [
    "uint8_t *output", "const uint8_t *const *taps", "const int8_t *weights", "const int32_t *factors",
    "bool is_aligned",
]  # fmt: skip


def has_few_taps(operator: QConv2d, target: Target) -> bool:
    """windows must have at most 49 taps"""
    return operator.weight[0].size <= MOST_TAPS


def has_four_channels(operator: QConv2d, target: Target) -> bool:
    """there must be at least 4 channels"""
    return operator.output.shape[3] >= WIDTH


def depthwise_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output = operator.inputs[0], operator.output
    low, high = qconv2d.products(operator).range()
    finish = NarrowRequantize.of(qconv2d.requantize(operator), low=low, high=high, start=qconv2d.start_of(operator))
    num_taps, num_pixels = operator.weight[0].size, output.num_elements // output.shape[3]
    is_padded = any(operator.window.padding)
    is_interleaved = finish.fraction_bits > 0 and output.shape[3] % WIDTH == 0
    block = BLOCK_INSTRUCTIONS + num_taps * TAP_INSTRUCTIONS + WIDTH * (finish.instructions + 6)
    pixel = PIXEL_INSTRUCTIONS + num_taps * PLACE_INSTRUCTIONS + -(-output.shape[3] // WIDTH) * block
    return Parts(
        parameters=PARAMETERS,
        constants=(
            ("weights", interleaved(operator.weight) if is_interleaved else qdepthwise.pack(operator.weight)),
            *finish.constants(),
        ),
        members={"is_interleaved": is_interleaved, "requantize": finish.members()},
        functions=(_pixel(),),
        leading=("$_pixel", "taps"),
        statements=(f"const uint8_t *taps[{num_taps + 1}]; /* of a window, and NULL */",),
        scratch="scratch" if is_padded else "NULL",
        scratch_bytes=source.shape[3] if is_padded else 0,
        instructions=num_pixels * pixel,
        passes=Passes.of_product(
            output.num_elements * num_taps, source.num_elements, num_pixels, pixels=1, channels=1
        ),
        grows_weights=True,
    )  # fmt: skip


def interleaved(weight: Array) -> Array:
    """Return int8[C, R, S, 1] as int8[C / 4, R * S, 4]: a word for each tap of four channels."""
    return np.ascontiguousarray(weight.reshape(-1, WIDTH, weight[0].size).transpose(0, 2, 1))


def _pixel() -> str:
    """Return `$_pixel(...)`, a tvm_ext_armv6m_channels."""
    call = "tvm_ext_armv6m_depthwise_pixel(&$_layer, output, taps, weights, factors, is_aligned);"
    return apart("$_pixel", PIXEL_PARAMETERS, [call], linkage="TVM_EXT_ARMV6M_SHARED")


DEPTHWISE = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=depthwise_parts)
KERNEL = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_armv6m",
        title="Quantized depthwise convolution, four channels of an output pixel at a time",
        operator=QConv2d,
        constraints=(for_speed, qdepthwise.is_depthwise, has_few_taps, has_four_channels, *qconv2d.CONSTRAINTS),
    )
)
