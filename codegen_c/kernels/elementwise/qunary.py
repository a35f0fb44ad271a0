"""Any function of one QDQ tensor, element by element: a table of 256 results worked out at compile time.

int8 or uint8[...] -> int8 or uint8[...]. A result is the float32 function of the dequantized element, divided
by the output scale, rounded "onnx" (halves to even) and clamped to the type; nan becomes the least. What
rounding "tflite" means here: tflite_table.py.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.elementwise.qbinary import rows_of
from codegen_c.kernels.elementwise.tflite_table import tflite_table
from codegen_c.kernels.passes import Passes
from codegen_c.kernels.shared.layer import image, one_image, shapes, with_rings
from codegen_c.kernels.shared.requantize import quantization, quantized_bytes, results_fit, scale_of
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import QUnary

LAYER = "tvm_ext_qunary_layer"
ELEMENT_INSTRUCTIONS = 4
"""Modelled: two loads, and what puts eight results together as GCC 12 does for a Cortex-M4, 30 instructions in all."""


def reference(operator: QUnary, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    return [np.take(table(operator), inputs[0].view(np.uint8))]


def depends_on_element_alone(operator: QUnary, target: Target) -> bool:
    """the function must depend on the element alone, not on a second tensor or on the channel"""
    operands = [o for instruction in operator.finish.instructions for o in instruction.operands]
    return all(o.kind in ("value", "number") or (o.kind == "input" and o.index == 0) for o in operands)


def steps_fit(operator: QUnary, target: Target) -> bool:
    """one step of the input must be less than 2^22 steps of the output"""
    ratio = scale_of(operator.inputs[0]) / scale_of(operator.output)
    return operator.rounding == "onnx" or results_fit(np.array(-255), np.array(255), np.array(ratio))


def table(operator: QUnary) -> np.ndarray:
    """Results by the input's bit pattern (0 to 255), [256] of the output's type."""
    if operator.rounding == "tflite":
        return tflite_table(operator)
    source, output = operator.inputs[0], operator.output
    patterns = np.arange(256, dtype=np.uint8).view(source.dtype).astype(np.int32)
    element = (patterns - quantization(source).zero_point).astype(np.float32) * np.float32(scale_of(source))
    value = operator.finish.run(element, [element])
    with np.errstate(over="ignore"):
        steps = np.rint(value / np.float32(scale_of(output)))
    limits = np.iinfo(output.dtype)
    shifted = np.nan_to_num(steps, nan=-np.inf) + np.float32(quantization(output).zero_point)
    return np.clip(shifted, limits.min, limits.max).astype(output.dtype)


def implement(operator: QUnary, target: Target, stored: StoredRows) -> Implementation:
    source, output = C_TYPES[operator.inputs[0].dtype], C_TYPES[operator.output.dtype]
    operands = (
        Parameter(name="input", ctype=source, role="input"),
        Parameter(name="output", ctype=output, role="output"),
    )
    rows = rows_of(operator.output, num_inputs=1)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                *operands,
                Parameter(name="table", ctype=output, role="constant"),
                *(ROW_PARAMETERS if rows else ()),
            ),
            body=_body(stored, by_rows=rows is not None),
            helpers=_shapes(operator, stored),
            includes=("tvm_ext_qunary.h", "tvm_ext_layer.h"),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("table", table(operator)),),
        instructions=ELEMENT_INSTRUCTIONS * operator.output.num_elements + 20,
        passes=Passes(constants=operator.output.num_elements / 256),
        spatial=rows,
        in_place=(0,),
        exact=True,
        pitched=True,
        row_pitched=rows is not None,
    )


def _shapes(operator: QUnary, stored: StoredRows) -> str:
    """The layer's shapes as tvm_ext_qunary.h takes them."""
    output = image(one_image(operator.output), stored=stored)
    return shapes(LAYER, {"input": image(one_image(operator.inputs[0])), "output": output})


def _body(stored: StoredRows, *, by_rows: bool) -> str:
    """The loops of tvm_ext_qunary.h, over the rows of a call or over all."""
    rings, layer = with_rings(LAYER, stored)
    rows = "row_begin, row_end" if by_rows else "0, 1"
    return "\n".join([*rings, f"tvm_ext_qunary({layer}, input, output, table, {rows});"])


KERNEL = Kernel(
    name="qunary_i8",
    operator=QUnary,
    implement=implement,
    constraints=(quantized_bytes, depends_on_element_alone, steps_fit),
)
