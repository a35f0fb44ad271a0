"""Max and average pooling of a QDQ chain, integers only: four channels of one output pixel at a time.

int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]. Max takes the largest tap inside the input. Average adds
x - zero point in int32, r then s ascending, and multiplies by input scale / (output scale * number of taps): of
those inside the input, or of the whole window (padding then being real zeros); rounded once, halves to even. In
rounding "tflite" the integers themselves are averaged, on one scale, halves away from zero; but a mean has a factor,
with TensorFlow Lite's roundings.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.pooling.accumulate_pool import is_global
from codegen_c.kernels.pooling.pool_by_rows import LAYER, accumulating, factors_text, pool_shapes
from codegen_c.kernels.pooling.pool_sums import average, counted_taps, factors, reference
from codegen_c.kernels.shared.copies import SHORTEST_LOOP
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, with_rings
from codegen_c.kernels.shared.requantize import Requantize, largest_distance, quantization, quantized_bytes, results_fit
from codegen_c.kernels.shared.window import CHANNEL_BLOCK, ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import QPool2d


def keeps_quantization(operator: QPool2d, target: Target) -> bool:
    """max pooling, and averages as TFLite takes them, must have one type, scale and zero point on both sides"""
    source, output = operator.inputs[0], operator.output
    same = source.dtype == output.dtype and quantization(source) == quantization(output)
    return same or operator.has_factor


def counts_what_it_reads(operator: QPool2d, target: Target) -> bool:
    """an average as TFLite takes it must leave padding out of its count"""
    return operator.rounding == "onnx" or not operator.count_include_pad


def windows_meet_input(operator: QPool2d, target: Target) -> bool:
    """every window of an average must hold at least one element of the input"""
    return operator.method == "max" or counted_taps(operator).min() > 0


def sums_fit(operator: QPool2d, target: Target) -> bool:
    """a window must add up to no more than an int32 holds, and to less than 2^30 steps of the output"""
    if operator.method == "max":
        return True
    farthest = largest_distance(operator.inputs[0])
    largest = np.array(farthest * operator.window.kernel[0] * operator.window.kernel[1])
    return bool(largest < 1 << 31) and results_fit(-largest, largest, factors(operator))


def implement(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    finish = average(operator) if operator.has_factor else None
    num_taps = operator.output.num_elements * operator.window.kernel[0] * operator.window.kernel[1]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *(finish.parameters() if finish else ()),
                *ROW_PARAMETERS,
            ),
            body=_body(stored, finish),
            helpers=pool_shapes(operator, stored, finish),
            includes=("tvm_ext_qpool2d.h", *BLOCK_INCLUDES),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants() if finish else (),
        instructions=_instructions(operator, num_taps),
        passes=Passes(input=max(1.0, num_taps / operator.inputs[0].num_elements)),
        accumulation="r, s ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output),
        exact=True,
        pitched=True,
        row_pitched=True,
        accumulating=accumulating(operator),
    )


def _instructions(operator: QPool2d, num_taps: int) -> int:
    """Modelled; of a window that is the whole image, whose loops are long, measured on a Cortex-M4."""
    elements, average_taken = operator.output.num_elements, operator.method == "average"
    if average_taken and is_global(operator):
        return num_taps * 2 + num_taps // CHANNEL_BLOCK + elements * 10
    is_inside = not any(operator.window.padding)
    per_tap = 2 if average_taken and is_inside else 3
    is_written_out = is_inside and operator.window.kernel[0] * operator.window.kernel[1] <= SHORTEST_LOOP + 1
    loops = 0 if is_written_out else num_taps // CHANNEL_BLOCK * 6
    return num_taps * per_tap + loops + elements * (13 if average_taken else 6)


def _body(stored: StoredRows, finish: Requantize | None) -> str:
    """The loops of tvm_ext_qpool2d.h."""
    rings, layer = with_rings(LAYER, stored)
    call = f"tvm_ext_qpool2d({layer}, input, output, {factors_text(finish)}, row_begin, row_end);"
    return "\n".join([*rings, *(finish.tables() if finish else []), call])


WINDOWS = (keeps_quantization, counts_what_it_reads, windows_meet_input, sums_fit)
KERNEL = Kernel(
    name="qpool2d_i8",
    operator=QPool2d,
    implement=implement,
    constraints=(quantized_bytes, *WINDOWS),
)
