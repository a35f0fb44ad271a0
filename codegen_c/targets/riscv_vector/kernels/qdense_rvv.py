"""Dense layer of a QDQ chain with RISC-V's vectors: one row, or three, by groups of output channels.

int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], sums in int32. The zero point is taken off with the bias.
Either rounding.
"""

from __future__ import annotations

from codegen_c.c_text.text import C_TYPES, structure
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.dense import qdense
from codegen_c.operators.kinds import QDense
from codegen_c.targets.riscv_vector.kernels.qconv2d_rvv import product_instructions
from codegen_c.targets.riscv_vector.kernels.rescale_rvv import HEADERS, PARAMETERS, SCRATCH, SUM_BYTES, GroupedRescale

ROWS_AT_ONCE = 3
ROW_INSTRUCTIONS = 20
"""Modelled instructions around the products and results of a row."""


def sums_leave_room(operator: QDense, target: Target) -> bool:
    """where a channel's factor is one quarter or more, its sums must be small enough to be scaled up"""
    return _rescale(operator).fits(*qdense.products(operator).range())


def _rescale(operator: QDense) -> GroupedRescale:
    return GroupedRescale.of(qdense.requantize(operator), *qdense.products(operator).range())


def implement(operator: QDense, target: Target, stored: StoredRows) -> Implementation:
    source, (channels, depth) = operator.inputs[0], operator.weight.shape
    rows, finish = operator.output.num_elements // channels, _rescale(operator)
    at_once = ROWS_AT_ONCE if rows >= ROWS_AT_ONCE else 1
    layer = structure("tvm_ext_rvv_dense_layer", "layer", {
        "rows": rows, "depth": depth, "channels": channels, "has_unsigned_input": source.dtype == "uint8",
        "at_once": at_once, "requantize": finish.members(),
    })  # fmt: skip
    calls = -(-rows // at_once)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *PARAMETERS,
                SCRATCH,
            ),
            body="\n".join([*layer, "tvm_ext_rvv_dense(&layer, input, output, weights, factors, scratch);"]),
            includes=("tvm_ext_rvv_dense.h", "tvm_ext_rvv_product.h", *HEADERS),
        ),
        reference=lambda inputs: qdense.reference(operator, inputs),
        constants=finish.constants(operator.weight.T, qdense.products(operator).start),
        scratch_bytes=at_once * SUM_BYTES * channels,
        macs=operator.output.num_elements * depth,
        instructions=calls * product_instructions(depth, channels, at_once)
        + calls * at_once * (ROW_INSTRUCTIONS + finish.instructions(channels)),
        passes=Passes(constants=max(1.0, calls), input=1.0),
        accumulation="exact",
        exact=True,
        # Weights of a run of channels do not lie together: by rows of the result, and in parts, in portable code.
        in_rows=qdense.implement(operator, target, StoredRows()).in_rows,
        accumulating=qdense.accumulating(operator),
    )


KERNEL = Kernel(
    name="qdense_rvv",
    operator=QDense,
    implement=implement,
    constraints=(*qdense.CONSTRAINTS, sums_leave_room),
)
