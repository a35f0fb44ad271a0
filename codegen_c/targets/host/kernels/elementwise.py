"""Kernel for quantized add and subtract of one shape in vectors: 16 elements at a time.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...]. Factors are split into two parts of 16 bits, whose
products with elements are summed in 32 bits each; all pairs are tried to verify that no two elements lead to a tie.
Rounding "onnx".
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.shared.layer import shapes, with_rings
from codegen_c.operators.kinds import QBinary
from codegen_c.targets.host.kernels.products import SUM_INCLUDES

LAYER = "tvm_ext_host_qbinary_layer"
HALF = 1 << 15
LEAST_SHIFT, MOST_SHIFT = 17, 46
INSTRUCTIONS = 26
AT_ONCE = 16


def adds_and_rounds_once(operator: QBinary, target: Target) -> bool:
    """the operator must be a sum or a difference that is rounded once, as in ONNX"""
    return operator.rounding == "onnx" and operator.function in ("add", "subtract")


def factors_in_range(operator: QBinary, target: Target) -> bool:
    """ratios of input to output scale must be from 2^-15 up to 2^14, and no sum halfway between two results"""
    *factors, shift = qbinary.common_shift(operator)
    fit = all(-HALF <= part < HALF for factor in factors for part in _parts(factor))
    return fit and LEAST_SHIFT <= shift <= MOST_SHIFT and not qbinary.has_ties(operator)


def _parts(factor: int) -> tuple[int, int]:
    """(high, low) with factor = high * 2^16 + low, low from -2^15 to 2^15 - 1."""
    high = (factor + HALF) >> 16
    return high, factor - (high << 16)


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    portable = qbinary.implement(operator, target, stored)
    *factors, _ = qbinary.common_shift(operator)
    (first_high, first_low), (second_high, second_low) = map(_parts, factors)
    members: dict[str, Value] = {
        "layer": qbinary.layer_members(operator, stored),
        "high": f"{{{first_high}, {second_high}}}", "low": f"{{{first_low}, {second_low}}}",
    }  # fmt: skip
    rings, layer = with_rings(LAYER, stored, ("layer.first", "layer.second"), output="layer.output")
    rows = "row_begin, row_end" if portable.spatial else "0, 1"
    body = "\n".join([*rings, f"tvm_ext_host_qbinary({layer}, input0, input1, output, {rows});"])
    includes = ("tvm_ext_host_qbinary.h", *SUM_INCLUDES, *qbinary.INCLUDES)
    return replace(
        portable,
        kernel=KERNEL.name,
        function=replace(portable.function, body=body, helpers=shapes(LAYER, members), includes=includes),
        instructions=-(-operator.output.num_elements // AT_ONCE) * INSTRUCTIONS,
    )


KERNEL = Kernel(
    name="qbinary_host",
    title="Quantized add and subtract of tensors of one shape, 16 elements at a time",
    operator=QBinary,
    implement=implement,
    constraints=(adds_and_rounds_once, *qbinary.QBINARY.constraints, factors_in_range),
)
