"""Depthwise conv2d of a QDQ chain on Armv6-M: four channels of one output pixel at a time.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32. Taps outside the image read a
pixel of zero points in scratch, so that the zero point is taken off with the bias. Either rounding.
"""

from __future__ import annotations

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d, qdepthwise
from codegen_c.kernels.shared.layer import apart, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.armv6m.kernels.products import SCRATCH, parameters, start_of, windowed_shapes
from codegen_c.targets.armv6m.kernels.requantize import HEADERS, NarrowRequantize, for_speed

LAYER = "tvm_ext_armv6m_depthwise_layer"
WIDTH = 4
MOST_TAPS = 49
BLOCK_INSTRUCTIONS, TAP_INSTRUCTIONS = 54, 22
"""Modelled instructions of four channels, and of one of their taps."""
PIXEL_INSTRUCTIONS, PLACE_INSTRUCTIONS = 30, 10
"""Modelled instructions of a pixel, and of finding one of its taps."""
PIXEL_PARAMETERS = [
    "uint8_t *output", "const uint8_t *const *taps", "const int8_t *weights", "const int32_t *factors",
]  # fmt: skip


def has_few_taps(operator: QConv2d, target: Target) -> bool:
    """windows must have no more than 49 taps"""
    return operator.weight[0].size <= MOST_TAPS


def has_four_channels(operator: QConv2d, target: Target) -> bool:
    """there must be at least 4 channels"""
    return operator.output.shape[3] >= WIDTH


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output, window = operator.inputs[0], operator.output, operator.window
    low, high = qconv2d.products(operator).range()
    finish = NarrowRequantize.of(qconv2d.requantize(operator), low=low, high=high, start=start_of(operator))
    num_taps, num_pixels = operator.weight[0].size, output.num_elements // output.shape[3]
    is_padded = any(window.padding)
    block = BLOCK_INSTRUCTIONS + num_taps * TAP_INSTRUCTIONS + WIDTH * (finish.instructions + 6)
    pixel = PIXEL_INSTRUCTIONS + num_taps * PLACE_INSTRUCTIONS + -(-output.shape[3] // WIDTH) * block
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*parameters(operator), *((SCRATCH,) if is_padded else ()), *ROW_PARAMETERS),
            body=_body(operator, stored),
            helpers="\n".join((windowed_shapes(LAYER, operator, stored, finish), _pixel())),
            includes=("tvm_ext_armv6m_depthwise.h", "tvm_ext_taps.h", *HEADERS),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=(("weights", qdepthwise.pack(operator.weight)), *finish.constants()),
        scratch_bytes=source.shape[3] if is_padded else 0,
        macs=output.num_elements * num_taps,
        instructions=num_pixels * pixel,
        passes=Passes.of_product(
            output.num_elements * num_taps, source.num_elements, num_pixels, pixels=1, channels=1
        ),
        accumulation="exact",
        spatial=spatial(window, source, output, columns_at_once=1),
        exact=True,
        pitched=True,
        row_pitched=True,
        grows_weights=True,
    )  # fmt: skip


def _pixel() -> str:
    """`$_pixel(...)`, a tvm_ext_armv6m_channels."""
    call = "tvm_ext_armv6m_depthwise_pixel(&$_layer, output, taps, weights, factors);"
    return apart("$_pixel", PIXEL_PARAMETERS, [call], linkage="TVM_EXT_ARMV6M_SHARED")


def _body(operator: QConv2d, stored: StoredRows) -> str:
    rings, layer = with_rings(LAYER, stored)
    padding = "scratch" if any(operator.window.padding) else "NULL"
    call = (
        f"tvm_ext_armv6m_depthwise({layer}, $_pixel, taps, input, output, weights, factors, {padding}, row_begin, "
        "row_end);"
    )
    return "\n".join([*rings, f"const uint8_t *taps[{operator.weight[0].size + 1}]; /* of a window, and NULL */", call])


KERNEL = Kernel(
    name="qdepthwise_armv6m",
    operator=QConv2d,
    implement=implement,
    constraints=(for_speed, qdepthwise.is_depthwise, has_few_taps, has_four_channels, *qconv2d.CONSTRAINTS),
)
