"""Kernels that convert float32 to int8 or uint8 and back, by one scale and zero point for the whole tensor.

To integers: x / scale rounded half to even, or in rounding "tflite" half away from zero, or in rounding "litert" x
times the float32 number 1 / scale, half to even; plus the zero point, clamped; NaN becomes the least integer. To
floats: (q - zero point) * scale in float32. Images [1, H, W, C] are converted row by row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, float_literal
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.layer import image, one_image, shapes, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS, row_by_row
from codegen_c.operators.kinds import Convert

LAYER = "tvm_ext_convert_layer"


def has_float(operator: Convert, target: Target) -> bool:
    """the processor must have an FPU"""
    return target.has_float


def reference(operator: Convert, inputs: list[np.ndarray]) -> list[np.ndarray]:
    scale, zero = np.float32(operator.quantization.scale), operator.quantization.zero_point
    if operator.output.dtype == "float32":
        return [(inputs[0].astype(np.int32) - zero).astype(np.float32) * scale]
    limits = np.iinfo(operator.output.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        steps = inputs[0] * (np.float32(1) / scale) if operator.rounding == "litert" else inputs[0] / scale
        whole = _rounded_away(steps) if operator.rounding == "tflite" else np.rint(steps)
        value = whole + np.float32(zero)
    raised = np.where(value > limits.min, value, np.float32(limits.min))
    return [np.where(raised < limits.max, raised, np.float32(limits.max)).astype(operator.output.dtype)]


def _rounded_away(steps: np.ndarray) -> np.ndarray:
    """Return the nearest integers, halves away from zero; all floats from 2^23 on are integers."""
    whole = np.trunc(steps)
    return whole + np.where(np.abs(steps - whole) >= np.float32(0.5), np.copysign(np.float32(1), steps), np.float32(0))


def implement(operator: Convert, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    by_rows = len(output.shape) == 4 and output.shape[0] == 1
    parameters = (
        Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
        Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
        *(ROW_PARAMETERS if by_rows else ()),
    )
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=parameters, body=_body(operator, stored, by_rows=by_rows), helpers=_shapes(operator),
            includes=("tvm_ext_convert.h", "tvm_ext_layer.h"),
        ),
        reference=lambda inputs: reference(operator, inputs),
        instructions=output.num_elements * (6 if output.dtype == "float32" else 12),
        spatial=row_by_row(output.shape[1]) if by_rows else None,
        correctly_rounded=True,  # one division, one rounding; or one product
    )  # fmt: skip


def _shapes(operator: Convert) -> str:
    """Return the layer's shapes for tvm_ext_convert.h."""
    source, output = (one_image(replace(tensor, quantization=None)) for tensor in (*operator.inputs, operator.output))
    if output.dtype == "float32":
        source = replace(source, quantization=operator.quantization)
    else:
        output = replace(output, quantization=operator.quantization)
    images: dict[str, Value] = {"input": image(source), "output": image(output)}
    return shapes(LAYER, images | scale_members(operator))


def scale_members(operator: Convert) -> dict[str, Value]:
    """Return the members of a `tvm_ext_convert_layer` that say how its numbers are scaled."""
    scale = operator.quantization.scale
    if operator.output.dtype != "float32" and operator.rounding == "litert":
        return {"scale": float_literal(float(np.float32(1) / np.float32(scale))), "has_reciprocal": True}
    rounds_away = operator.rounding == "tflite" and operator.output.dtype != "float32"
    members: dict[str, Value] = {"scale": float_literal(scale)}
    return members | ({"rounds_away": True} if rounds_away else {})


def _body(operator: Convert, stored: StoredRows, *, by_rows: bool) -> str:
    """Return a call of the loops of tvm_ext_convert.h, over the rows of a call or over all rows."""
    rings, layer = with_rings(LAYER, stored)
    function = "tvm_ext_dequantize" if operator.output.dtype == "float32" else "tvm_ext_quantize"
    return "\n".join([*rings, f"{function}({layer}, input, output, {'row_begin, row_end' if by_rows else '0, 1'});"])


KERNEL = Kernel(
    name="convert_quantized",
    title="Conversion of float32 to int8 or uint8 and back",
    operator=Convert,
    implement=implement,
    constraints=(has_float,),
)
