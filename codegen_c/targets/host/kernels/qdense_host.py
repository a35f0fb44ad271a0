"""Dense layer of a QDQ chain in vectors of 8 sums: one vector by up to 64 output channels at a time.

int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], sums in int32, modulo 2^32. Vectors are pixels that are read
in place. Layers that come or go by rows are portable C's. Either rounding.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.shared.layer import image, shapes, sliding_window
from codegen_c.kernels.shared.winograd import for_speed
from codegen_c.operators.kinds import PackedQDense, QDense, Window
from codegen_c.targets.host.kernels.sums_host import (
    MOST_UNITS,
    PRODUCT_INCLUDES,
    UNIT,
    LaneRescale,
    PixelProduct,
    parameters,
)

LAYER = "tvm_ext_host_conv2d_layer"


def sums_leave_room(operator: QDense, target: Target) -> bool:
    """where a channel's factor is one half or more, its sums must be small enough to be scaled up"""
    return _rescale(operator).fits(*qdense.products(operator).range())


def _rescale(operator: QDense) -> LaneRescale:
    return LaneRescale.of(qdense.requantize(operator), *qdense.products(operator).range())


def implement(operator: QDense, target: Target, stored: StoredRows) -> Implementation:
    source, output, (channels, depth) = operator.inputs[0], operator.output, operator.weight.shape
    vectors = output.num_elements // channels
    product = PixelProduct(
        runs=1, length=depth, channels=channels, rescale=_rescale(operator), is_widened=False,
        is_unsigned=source.dtype == "uint8", is_packed=isinstance(operator, PackedQDense),
    )  # fmt: skip
    layer = shapes(LAYER, {
        "input": image(replace(source, shape=(1, 1, vectors, depth))),
        "output": image(replace(output, shape=(1, 1, vectors, channels))),
        "window": sliding_window(Window(kernel=(1, 1))),
        "product": product.members(),
    })  # fmt: skip
    portable = qdense.implement(operator, target, stored)
    return replace(
        portable,
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*parameters(source, output, is_packed=product.is_packed),),
            body="tvm_ext_host_vectors(&$_layer, input, output, weights, factors);",
            helpers=layer,
            includes=PRODUCT_INCLUDES,
        ),
        constants=product.constants(operator.weight, qdense.products(operator).start),
        instructions=vectors * product.instructions,
        passes=Passes.of_product(
            output.num_elements * depth, source.num_elements, vectors, pixels=1, channels=UNIT * MOST_UNITS
        ),
        accumulation="products with c ascending in pairs, modulo 2^32",
        grows_weights=not product.is_packed,
    )


KERNEL = Kernel(
    name="qdense_host",
    operator=QDense,
    implement=implement,
    constraints=(for_speed, *qdense.CONSTRAINTS, sums_leave_room),
)
