"""1x1 conv2d of a QDQ chain with Helium, of up to 16 input channels: weights stay in registers for a row of pixels.

int8[N, H, W, C], int8[K, 1, 1, C] -> int8 or uint8[N, H, W, K], sums in int32. For each four output channels, whose
weights are four vectors, pixels of a row are read in pairs, 16 bytes each; weights of zero meet bytes behind a
pixel. Pixels at the end of a row, behind which there are no such bytes, are read from a copy. Rounding "onnx".
"""

from __future__ import annotations

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.layer import image, shapes, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.helium.kernels.helium import PRODUCT_INCLUDES, flip
from codegen_c.targets.helium.kernels.product_helium import CHANNEL_BLOCK, PARAMETERS, SCRATCH, STEP, Product
from codegen_c.targets.helium.kernels.qconv2d_helium import rescale, start, sums_leave_room
from codegen_c.targets.helium.kernels.qpointwise_helium import is_pointwise

LAYER = "tvm_ext_helium_kept_layer"


def is_narrow(operator: QConv2d, target: Target) -> bool:
    """pixels must be int8 of 16 channels or fewer, rows two pixels or more"""
    source = operator.inputs[0]
    return source.shape[3] <= STEP and source.shape[2] >= 2 and flip(source) == 0


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    depth, channels, columns = source.shape[3], output.shape[3], output.shape[2]
    finish = rescale(operator)
    product = Product.of(runs=1, run_bytes=depth, channels=channels, rescale=finish, target=target)
    rows, blocks, in_place = output.shape[0] * output.shape[1], -(-channels // CHANNEL_BLOCK), _in_place(operator)
    pairs = in_place // 2 + -(-(columns - in_place) // 2)
    copied = columns - in_place
    rings, layer = with_rings(LAYER, stored)
    members: dict[str, Value] = {
        "input": image(source), "output": image(output, stored=stored), "in_place": in_place,
        "product": product.members(),
    }  # fmt: skip
    scratch = "scratch" if copied else "NULL"
    call = f"tvm_ext_helium_kept({layer}, input, output, weights, factors, {scratch}, row_begin, row_end);"
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *PARAMETERS,
                *((SCRATCH,) if copied else ()),
                *ROW_PARAMETERS,
            ),
            body="\n".join([*rings, call]),
            helpers=shapes(LAYER, members),
            includes=("tvm_ext_helium_kept.h", *PRODUCT_INCLUDES),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=product.constants(operator.weight, start(operator)),
        scratch_bytes=(copied + 1) * depth + STEP if copied else 0,
        macs=output.num_elements * depth,
        instructions=rows * (40 + blocks * (18 + pairs * (34 + 2 * (finish.instructions - 2)))),
        passes=Passes(constants=max(1.0, rows), input=max(1.0, blocks), scratch=rows * (1 + blocks) if copied else 0.0),
        accumulation="products with c ascending in vectors of 16, then bias",
        spatial=spatial(operator.window, source, output),
        exact=True,
        pitched=True,
        row_pitched=True,
    )


def _in_place(operator: QConv2d) -> int:
    """Pixels of a row behind whose beginnings it has 16 bytes, an even number."""
    columns, depth = operator.inputs[0].shape[2:]
    return max(0, (columns * depth - STEP) // depth + 1) // 2 * 2


KERNEL = Kernel(
    name="qpointwise_kept_helium",
    operator=QConv2d,
    implement=implement,
    constraints=(is_pointwise, is_narrow, *qconv2d.CONSTRAINTS, sums_leave_room),
)
