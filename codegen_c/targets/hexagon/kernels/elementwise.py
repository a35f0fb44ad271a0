"""Kernel for quantized add and subtract of one shape with HVX: 128 elements at a time.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...], by factors of 32 bits that give every pair of elements its
result (narrow_sums.py). Either rounding.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.shared.layer import image, one_image, shapes, with_rings
from codegen_c.kernels.shared.narrow_sums import narrow_sums
from codegen_c.operators.kinds import QBinary
from codegen_c.targets.hexagon.kernels.products import HEADERS, VECTOR_BYTES

LAYER = "tvm_ext_hvx_qbinary_layer"
RUN_INSTRUCTIONS, VECTOR_INSTRUCTIONS = 20, 50
"""Modelled instructions of a row of elements, and of 128 of them."""


def has_narrow_sums(operator: QBinary, target: Target) -> bool:
    """the operator must be a sum or difference for which factors of 32 bits give each pair of elements its result"""
    return narrow_sums(operator) is not None


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    portable, narrow, output = qbinary.implement(operator, target, stored), narrow_sums(operator), operator.output
    assert narrow is not None, "a constraint has looked"
    first, second = (image(one_image(tensor)) for tensor in operator.inputs)
    rings, layer = with_rings(LAYER, stored, ("first", "second"))
    rows = "row_begin, row_end" if portable.spatial else "0, 1"
    helpers = shapes(LAYER, {
        "first": first, "second": second, "output": image(one_image(output), stored=stored),
        "start": narrow.start + (1 << (narrow.shift - 1)), "first_factor": narrow.first,
        "second_factor": narrow.second, "shift": narrow.shift, "low": operator.low, "high": operator.high,
    })  # fmt: skip
    _, height, columns, channels = one_image(output).shape
    vectors = -(-columns * channels // VECTOR_BYTES)
    return replace(
        portable,
        kernel=KERNEL.name,
        function=replace(
            portable.function,
            body="\n".join([*rings, f"tvm_ext_hvx_qbinary_rows({layer}, input0, input1, output, {rows});"]),
            helpers=helpers,
            includes=("tvm_ext_hvx_qbinary.h", *HEADERS),
        ),
        instructions=height * (RUN_INSTRUCTIONS + vectors * VECTOR_INSTRUCTIONS),
    )


KERNEL = Kernel(
    name="qbinary_hvx",
    title="Quantized add and subtract of tensors of one shape, 128 elements at a time",
    operator=QBinary,
    implement=implement,
    constraints=(*qbinary.QBINARY.constraints, has_narrow_sums),
)
