"""Kernel for interpolation of images, float32: weighted sums of a few elements of a few rows.

float32[N, H, W, C] -> float32[N, P, Q, C]. The rows of an output row are added first, in a line of the input's width,
in the order of their taps; then the columns of this line. Both sums begin with a product, and fused multiply-adds
follow where the processor has them.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.movement.qinterpolate import axes_are_short, input_rows, rows_in_order
from codegen_c.kernels.shared.lanes import native_lanes
from codegen_c.kernels.shared.layer import image, shapes, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import Interpolate

LAYER = "tvm_ext_interpolate_f32_layer"
SINGLE_INSTRUCTIONS, VECTOR_INSTRUCTIONS = (1.5, 12), (3.0, 18)
"""Modelled instructions, for single floats and for vectors: of one element of a line or pixel, not counting its taps,
and of one pixel. They were counted in code for a Cortex-M4 and for a Cortex-M55."""
TAP_INSTRUCTIONS = 2
"""Modelled instructions of one tap of an element."""


def reference(operator: Interpolate, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Compute the operator in numpy, with float64 for intermediate results."""
    x = inputs[0].astype(np.float64)
    rows = np.einsum("pt,nptwc->npwc", operator.rows[1], x[:, operator.rows[0]])
    return [np.einsum("qt,npqtc->npqc", operator.columns[1], rows[:, :, operator.columns[0]]).astype(np.float32)]


def implement(operator: Interpolate, target: Target, stored: StoredRows) -> Implementation:
    lanes = native_lanes(target).count
    _, _, width, channels = operator.inputs[0].shape
    tables = (
        ("rows", "int16_t", operator.rows[0].astype(np.int16)),
        ("row_weights", "float", operator.rows[1].astype(np.float32)),
        ("columns", "int16_t", operator.columns[0].astype(np.int16)),
        ("column_weights", "float", operator.columns[1].astype(np.float32)),
    )
    row_taps, column_taps = operator.rows[0].shape[1], operator.columns[0].shape[1]
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]), "output": image(operator.output, stored=stored), "row_taps": row_taps,
        "column_taps": column_taps,
    }  # fmt: skip
    rings, layer = with_rings(LAYER, stored)
    operands = f"{layer}, input, output, {', '.join(name for name, _, _ in tables)}, (float *)(void *)scratch"
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype="float", role="input"),
                Parameter(name="output", ctype="float", role="output"),
                *(Parameter(name=name, ctype=ctype, role="constant") for name, ctype, _ in tables),
                Parameter(name="scratch", ctype="uint8_t", role="scratch"),
                *ROW_PARAMETERS,
            ),
            body="\n".join([*rings, f"tvm_ext_interpolate_f32x{lanes}({operands}, row_begin, row_end);"]),
            helpers=shapes(LAYER, members),
            includes=(
                f"tvm_ext_interpolate_f32x{lanes}.h", f"tvm_ext_lanes_f32x{lanes}.h", f"tvm_ext_f32x{lanes}.h",
                "tvm_ext_layer.h",
            ),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=tuple((name, table.reshape(-1)) for name, _, table in tables),
        scratch_bytes=4 * width * channels,
        macs=operator.output.num_elements * (row_taps + column_taps),
        instructions=_instructions(operator, lanes),
        accumulation="rows, columns ascending",
        spatial=input_rows(operator),
        pitched=True,
        row_pitched=True,
    )  # fmt: skip


def _instructions(operator: Interpolate, lanes: int) -> int:
    """Return the modelled instructions of the whole image. Each output row needs a line, and then its pixels."""
    images, height, width, channels = operator.output.shape
    each, pixel = SINGLE_INSTRUCTIONS if lanes == 1 else VECTOR_INSTRUCTIONS
    row_taps, column_taps = (pair[0].shape[1] for pair in (operator.rows, operator.columns))
    line = -(-operator.inputs[0].shape[2] * channels // lanes) * (each + TAP_INSTRUCTIONS * row_taps)
    pixels = width * (pixel + -(-channels // lanes) * (each + TAP_INSTRUCTIONS * column_taps))
    return round(images * height * (line + pixels))


KERNEL = Kernel(
    name="interpolate_f32",
    title="Interpolation of images in float32: weighted sums of a few elements of a few rows",
    operator=Interpolate,
    implement=implement,
    constraints=(axes_are_short, rows_in_order),
)
