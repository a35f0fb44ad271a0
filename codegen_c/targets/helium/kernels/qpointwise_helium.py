"""1x1 conv2d of a QDQ chain with Helium: a matrix product, two pixels by four channels at a time.

int8 or uint8[N, H, W, C], int8[K, 1, 1, C] -> int8 or uint8[N, H, W, K], sums in int32. Pixels lie behind each
other, so pairs of them go on from row to row; the last one may be a pair with itself. Rounding "onnx".
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.layer import image, shapes, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import PackedQConv2d, QConv2d
from codegen_c.targets.helium.kernels.helium import PRODUCT_INCLUDES, flip
from codegen_c.targets.helium.kernels.product_helium import PARAMETERS, SCRATCH, Product, padded, step_blocks
from codegen_c.targets.helium.kernels.qconv2d_helium import passes, rescale, start, sums_leave_room

LAYER = "tvm_ext_helium_rows_layer"


def is_pointwise(operator: QConv2d, target: Target) -> bool:
    """the window must be 1x1, without stride, padding or groups"""
    return operator.window.is_pointwise and operator.groups == 1


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    depth, channels = source.shape[3], output.shape[3]
    product = Product.of(
        runs=1, run_bytes=depth, channels=channels, rescale=rescale(operator), target=target,
        in_nibbles=isinstance(operator, PackedQConv2d),
    )  # fmt: skip
    copies = needs_copy(operator)
    pairs = -(-output.num_elements // channels // 2)
    copying = 2 * (8 + depth // 4) if copies else 0
    spans = output.shape[0] == 1 and stored.output is None and stored.input(0) is None
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *PARAMETERS,
                *((SCRATCH,) if copies else ()),
                *ROW_PARAMETERS,
            ),
            body=_body(stored, copies=copies),
            helpers=f"{_shapes(operator, stored, product)}\n{product.function(2)}",
            includes=("tvm_ext_helium_rows.h", *PRODUCT_INCLUDES),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=product.constants(operator.weight, start(operator)),
        scratch_bytes=2 * padded(depth) if copies else 0,
        macs=output.num_elements * depth,
        instructions=pairs * (product.instructions(2) + copying + 14),
        passes=passes(operator, 2 * pairs if copies else 0),
        accumulation="products with c ascending in vectors of 16, then bias",
        # A pair of pixels may span two rows.
        spatial=replace(spatial(operator.window, source, output), behind=1 if spans else 0),
        exact=True,
        pitched=True,
    )


def needs_copy(operator: QConv2d) -> bool:
    """True where pixels must be turned into int8, or padded to a multiple of 16 channels."""
    depth = operator.inputs[0].shape[3]
    return depth != padded(depth) or flip(operator.inputs[0]) != 0


def _shapes(operator: QConv2d, stored: StoredRows, product: Product) -> str:
    """The layer's shapes as tvm_ext_helium_rows.h takes them."""
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, stored=stored),
        "product": product.members(),
    }
    return shapes(LAYER, members)


def _body(stored: StoredRows, *, copies: bool) -> str:
    """The loops of tvm_ext_helium_rows.h over pairs of pixels: of all rows where pairs may span them, else by rows."""
    rings, layer = with_rings(LAYER, stored)
    scratch = "scratch" if copies else "NULL"
    call = f"tvm_ext_helium_pointwise({layer}, $_two, input, output, weights, factors, {scratch}, row_begin, row_end);"
    return "\n".join([*rings, call])


KERNEL = Kernel(
    name="qpointwise_helium",
    operator=QConv2d,
    implement=implement,
    constraints=(is_pointwise, *qconv2d.SUMS_TOO, sums_leave_room),
    blocks=step_blocks,
)
