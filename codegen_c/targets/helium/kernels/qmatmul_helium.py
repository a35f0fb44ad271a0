"""Products of two quantized activations with Helium: two vectors by four columns of a matrix, 16 products at a time.

int8 or uint8, sums in int32. A head's matrix is packed in scratch, for all vectors of a call that it is multiplied
with; the more rows a call has, the less that costs. Either rounding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.matmul import qmatmul
from codegen_c.kernels.matmul.heads import head_by_head
from codegen_c.kernels.shared.layer import apart, image, shapes, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import QMatmul
from codegen_c.targets.helium.kernels.helium import LANES, PRODUCT_INCLUDES, Rescale, flip, signed_zero_point
from codegen_c.targets.helium.kernels.product_helium import CHANNEL_BLOCK, SCRATCH, Product, padded

LAYER = "tvm_ext_helium_matmul_layer"
TWO_VECTORS = [
    "const int8_t *x0", "const int8_t *x1", "uint8_t *y0", "uint8_t *y1", "const int8_t *matrix",
    "const int32_t *start", "const int32_t *restrict factors",
]  # fmt: skip
LONGEST_STEP = 8191
"""Elements from one to the next of a column: places of eight of them are gathered by 16 bits."""
PACK_INSTRUCTIONS, PAIR_INSTRUCTIONS = 14, 60


def sums_leave_room(operator: QMatmul, target: Target) -> bool:
    """where the factor is one quarter or more, sums must be small enough to be scaled up"""
    return _rescale(operator).fits(*qmatmul.bounds(operator))


def columns_are_near(operator: QMatmul, target: Target) -> bool:
    """the elements of a column of the second tensor must lie at most 8191 elements apart"""
    return operator.shape.steps[2] <= LONGEST_STEP


def _rescale(operator: QMatmul) -> Rescale:
    return Rescale.of(qmatmul.requantize(operator), *qmatmul.bounds(operator))


def implement(operator: QMatmul, target: Target, stored: StoredRows) -> Implementation:
    shape, (first, second) = operator.shape, operator.inputs
    product = Product.of(
        runs=1, run_bytes=shape.depth, channels=shape.columns, rescale=_rescale(operator), target=target
    )
    rings, layer = with_rings(LAYER, stored)
    vectors, output = qmatmul.images(operator)
    members: dict[str, Value] = {
        "input": image(vectors) | {"zero_point": signed_zero_point(first)}, "output": image(output),
        "second": qmatmul.second_members(operator) | {"zero_point": signed_zero_point(second)},
        "product": product.members(),
    }  # fmt: skip
    two = apart("$_two", TWO_VECTORS, ["tvm_ext_helium_matmul_two(&$_layer, x0, x1, y0, y1, matrix, start, factors);"])
    call = f"tvm_ext_helium_matmul({layer}, $_two, input, second, output, factors, scratch, row_begin, row_end);"
    columns, depth = -(-shape.columns // CHANNEL_BLOCK) * CHANNEL_BLOCK, padded(shape.depth)
    is_copied = depth != shape.depth or flip(first) != 0
    factors = Parameter(name="factors", ctype="int32_t", role="constant")
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*qmatmul.operands(operator), factors, SCRATCH, *ROW_PARAMETERS),
            body="\n".join([*rings, call]),
            helpers=f"{shapes(LAYER, members)}\n{two}",
            includes=("tvm_ext_helium_matmul.h", "tvm_ext_matrices.h", *PRODUCT_INCLUDES),
        ),
        reference=lambda inputs: qmatmul.reference(operator, inputs),
        constants=(("factors", product.rescale.table(np.zeros(LANES, np.int64), np.arange(LANES))),),
        scratch_bytes=4 * columns + columns * depth + (2 * depth if is_copied else 0),
        macs=qmatmul.num_macs(operator),
        instructions=_instructions(operator, product, stored),
        accumulation="products with c ascending in vectors of 16",
        spatial=replace(head_by_head(operator.shape), behind=2 * shape.rows if shape.heads_inside else 1),
        exact=True,
    )


def _instructions(operator: QMatmul, product: Product, stored: StoredRows) -> int:
    """Modelled instructions; with heads inside, each call packs all matrices."""
    shape = operator.shape
    at_once = min(stored.at_once or shape.rows, shape.rows)
    calls = -(-shape.rows // at_once) if shape.heads_inside else 1
    packed = calls * shape.heads * shape.columns * (10 + product.steps * PACK_INSTRUCTIONS)
    pairs = shape.heads * (calls * -(-at_once // 2) if shape.heads_inside else -(-shape.rows // 2))
    return packed + pairs * (PAIR_INSTRUCTIONS + product.instructions(2))


KERNEL = Kernel(
    name="qmatmul_helium",
    operator=QMatmul,
    implement=implement,
    constraints=(*qmatmul.KERNEL.constraints, sums_leave_room, columns_are_near),
)
