"""Dense layer of a QDQ chain on Armv6-M: one row by four output channels at a time.

int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], sums in int32, without scratch. The zero point is taken off
with the bias. Either rounding.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import C_TYPES, structure
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.dense.dense_rows import MakeInRows, in_rows
from codegen_c.kernels.shared.vector_rows import Rows, rows_of
from codegen_c.operators.kinds import QDense
from codegen_c.targets.armv6m.kernels.requantize_armv6m import HEADERS, PARAMETER, NarrowRequantize, for_speed

WIDTH = 4
BLOCK_INSTRUCTIONS, ELEMENT_INSTRUCTIONS = 64, 15
"""Modelled instructions of four channels, and of one element of theirs."""


def has_four_channels(operator: QDense, target: Target) -> bool:
    """there must be at least 4 output channels"""
    return operator.weight.shape[0] >= WIDTH


def implement(operator: QDense, target: Target, stored: StoredRows) -> Implementation:
    channels, depth = operator.weight.shape
    sums = qdense.products(operator)
    low, high = sums.range()
    finish = NarrowRequantize.of(qdense.requantize(operator), low=low, high=high, start=sums.start)
    rows = operator.output.num_elements // channels
    block = BLOCK_INSTRUCTIONS + depth * ELEMENT_INSTRUCTIONS + WIDTH * (finish.instructions + 6)

    def row(part: QDense, cut: Rows) -> Implementation:
        return replace(whole, function=_function(part, finish), instructions=-(-cut.length // WIDTH) * block)

    whole = Implementation(
        kernel=KERNEL.name,
        function=_function(operator, finish),
        reference=lambda inputs: qdense.reference(operator, inputs),
        constants=(("weights", operator.weight), *finish.constants()),
        macs=operator.output.num_elements * depth,
        instructions=rows * -(-channels // WIDTH) * block,
        passes=Passes(constants=max(1.0, rows), input=max(1.0, channels / WIDTH)),
        accumulation="exact",
        exact=True,
        grows_weights=True,
        accumulating=qdense.accumulating(operator),
    )
    return replace(whole, in_rows=_in_rows(operator, target) or in_rows(operator, row))


def _in_rows(operator: QDense, target: Target) -> MakeInRows | None:
    """The portable layer by rows, where a row of the result has too few channels."""
    rows = rows_of(operator.output.shape)
    few = rows is not None and rows.length < WIDTH
    return qdense.implement(operator, target, StoredRows()).in_rows if few else None


def _function(operator: QDense, finish: NarrowRequantize) -> CFunction:
    """`operator` may be a part of the layer."""
    source, (channels, depth) = operator.inputs[0], operator.weight.shape
    layer = structure("tvm_ext_armv6m_dense_layer", "layer", {
        "rows": operator.output.num_elements // channels, "depth": depth, "channels": channels,
        "has_unsigned_input": source.dtype == "uint8", "requantize": finish.members(),
    })  # fmt: skip
    return CFunction(
        parameters=(
            Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
            Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
            Parameter(name="weights", ctype="int8_t", role="constant"),
            PARAMETER,
        ),
        body="\n".join([*layer, "tvm_ext_armv6m_dense(&layer, input, output, weights, factors);"]),
        includes=("tvm_ext_armv6m_dense.h", *HEADERS),
    )


KERNEL = Kernel(
    name="qdense_armv6m",
    operator=QDense,
    implement=implement,
    constraints=(for_speed, has_four_channels, *qdense.CONSTRAINTS),
)
