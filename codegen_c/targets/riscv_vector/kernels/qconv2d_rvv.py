"""conv2d of a QDQ chain with RISC-V's vectors: three or six output pixels by groups of channels.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. Windows of one pixel are read
where they lie, others from copies in scratch, padding as zero points, which are taken off with the bias. Either
rounding.
"""

from __future__ import annotations

from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.riscv_vector.kernels.rescale_rvv import (
    HEADERS,
    PARAMETERS,
    SCRATCH,
    SUM_BYTES,
    GroupedRescale,
    num_groups,
    start_of,
    sums_leave_room,
)

LAYER = "tvm_ext_rvv_conv2d_layer"
INCLUDES = ("tvm_ext_rvv_conv2d.h", "tvm_ext_rvv_product.h", *HEADERS)
REGISTERS = {1: 8, 3: 8, 6: 4}
"""Registers of the sums of each of so many pixels."""
PIXEL_INSTRUCTIONS, COPY_INSTRUCTIONS, ROW_INSTRUCTIONS, CALL_INSTRUCTIONS = 24, 40, 20, 40
"""Modelled instructions of a pixel, of a copy of its window and of each of its rows, and of a group of channels."""


def is_ungrouped(operator: QConv2d, target: Target) -> bool:
    """the convolution must have one group"""
    return operator.groups == 1


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    finish, pixels, depth = GroupedRescale.of_convolution(operator), pixels_at_once(operator), operator.weight[0].size
    num_pixels, channels = output.num_elements // output.shape[3], output.shape[3]
    copies = not is_in_place(operator)
    rings, layer = with_rings(LAYER, stored)
    call = f"tvm_ext_rvv_conv2d({layer}, input, output, weights, factors, scratch, row_begin, row_end);"
    weights = operator.weight.reshape(channels, depth).T
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*operands(operator), *PARAMETERS, SCRATCH, *ROW_PARAMETERS),
            body="\n".join([*rings, call]),
            helpers=shapes(LAYER, {
                "input": image(source), "output": image(output, stored=stored),
                "window": sliding_window(operator.window), "pixels": pixels, "requantize": finish.members(),
            }),
            includes=INCLUDES,
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=finish.constants(weights, start_of(operator)),
        scratch_bytes=pixels * (SUM_BYTES * channels + (depth if copies else 0)),
        macs=output.num_elements * depth,
        instructions=-(-num_pixels // pixels) * product_instructions(depth, channels, pixels)
        + num_pixels * (PIXEL_INSTRUCTIONS + finish.instructions(channels) + (_copy(operator) if copies else 0)),
        passes=Passes(
            constants=max(1.0, num_pixels / pixels),
            input=max(1.0, num_pixels * depth / source.num_elements),
            scratch=num_pixels / pixels * (1 + num_groups(channels, REGISTERS[pixels])),
        ),
        accumulation="exact",
        spatial=spatial(operator.window, source, output),
        # All channels of some pixels are summed before they are written.
        in_place=(0,) if operator.window.is_pointwise and source.shape == output.shape else (),
        exact=True,
        pitched=True,
        row_pitched=True,
    )  # fmt: skip


def operands(operator: QConv2d) -> tuple[Parameter, ...]:
    """Input and output."""
    return (
        Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
        Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
    )


def is_in_place(operator: QConv2d) -> bool:
    """True where windows are single pixels of the image."""
    return operator.window.kernel == (1, 1) and not any(operator.window.padding)


def pixels_at_once(operator: QConv2d) -> int:
    """The number of pixels whose products take less."""
    depth, channels = operator.weight[0].size, operator.output.shape[3]
    return min((3, 6), key=lambda pixels: product_instructions(depth, channels, pixels) / pixels)


def product_instructions(depth: int, channels: int, pixels: int) -> int:
    """Modelled instructions of the sums of some pixels."""
    fours, rest = divmod(depth, 4)
    tap = 3 + 2 * pixels
    each = CALL_INSTRUCTIONS + 4 * pixels + depth * tap + (fours + rest) * (pixels + 2)
    return num_groups(channels, REGISTERS[pixels]) * each


def _copy(operator: QConv2d) -> int:
    """Modelled instructions of a copied window."""
    rows, columns = operator.window.kernel
    runs = rows * (columns if operator.window.dilation[1] > 1 else 1)
    return COPY_INSTRUCTIONS + runs * ROW_INSTRUCTIONS


KERNEL = Kernel(
    name="qconv2d_rvv",
    operator=QConv2d,
    implement=implement,
    constraints=(is_ungrouped, *qconv2d.CONSTRAINTS, sums_leave_room),
)
