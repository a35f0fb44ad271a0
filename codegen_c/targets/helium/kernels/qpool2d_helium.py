"""Max and average pooling of a QDQ chain with Helium: 16 channels of one output pixel at a time.

int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]. Elements are read as int8 (uint8 less 128). Average sums
up to 255 of them in 16 bits, then takes off the zero point in 32 bits. Rounding "onnx".
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.pooling.pool_by_rows import accumulating
from codegen_c.kernels.pooling.pool_sums import average, counted_taps, reference
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.operators.kinds import QPool2d
from codegen_c.targets.helium.kernels.helium import LAYER_INCLUDES, Rescale, flip, rounds_once
from codegen_c.targets.helium.kernels.pool_cost import VECTOR, pool_instructions

LAYER = "tvm_ext_helium_pool2d_layer"
MOST_TAPS = 255


def few_taps(operator: QPool2d, target: Target) -> bool:
    """the window of an average must have 255 taps or fewer, as they are summed in 16 bits"""
    return operator.method == "max" or operator.window.kernel[0] * operator.window.kernel[1] <= MOST_TAPS


def sums_leave_room(operator: QPool2d, target: Target) -> bool:
    """where the factor of an average is one quarter or more, its sums must be small enough to be scaled up"""
    return operator.method == "max" or _rescale(operator).fits(*_bounds(operator))


def _bounds(operator: QPool2d) -> tuple[np.ndarray, np.ndarray]:
    largest = np.array([255 * operator.window.kernel[0] * operator.window.kernel[1]])
    return -largest, largest


def _rescale(operator: QPool2d) -> Rescale:
    return Rescale.of(average(operator), *_bounds(operator))


def implement(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    finish = _rescale(operator) if operator.method == "average" else None
    tables = [("multiplier", 0), ("shift", 1)] if finish and not finish.requantize.is_uniform else []
    num_blocks = operator.output.num_elements // operator.output.shape[3] * -(-operator.output.shape[3] // VECTOR)
    num_taps = num_blocks * operator.window.kernel[0] * operator.window.kernel[1]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *(Parameter(name=name, ctype="int32_t", role="constant") for name, _ in tables),
                *ROW_PARAMETERS,
            ),
            body=_body(stored, finish),
            helpers=_shapes(operator, stored, finish),
            includes=("tvm_ext_helium_pool2d.h", *LAYER_INCLUDES),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=tuple((name, finish.factors()[index]) for name, index in tables) if finish else (),
        instructions=pool_instructions(operator, finish.instructions if finish else 0),
        passes=Passes(input=max(1.0, num_taps * VECTOR / operator.inputs[0].num_elements)),
        accumulation="r, s ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output),
        exact=True,
        pitched=True,
        row_pitched=True,
        accumulating=accumulating(operator),
    )


def _shapes(operator: QPool2d, stored: StoredRows, finish: Rescale | None) -> str:
    """The layer's shapes as tvm_ext_helium_pool2d.h takes them. Limits of a maximum are those of elements as int8."""
    turned = flip(operator.output)
    limits: dict[str, Value] = {"low": operator.low + turned, "high": operator.high + turned}
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window),
        "is_maximum": finish is None,
        "fewest": int(counted_taps(operator).min()),
        "factor_step": 0 if finish is None or finish.requantize.is_uniform else 1,
        "rescale": finish.members() if finish else limits,
    }
    return shapes(LAYER, members)


def _body(stored: StoredRows, finish: Rescale | None) -> str:
    """The loops of tvm_ext_helium_pool2d.h."""
    rings, layer = with_rings(LAYER, stored)
    tables: list[str] = []
    if finish and finish.requantize.is_uniform:
        values = zip(("multiplier", "shift"), finish.factors(), strict=True)
        tables = [f"static const int32_t {name}[] = {{{array[0]}}};" for name, array in values]
    factors = "multiplier, shift" if finish else "NULL, NULL"
    call = f"tvm_ext_helium_pool2d({layer}, input, output, {factors}, row_begin, row_end);"
    return "\n".join([*rings, *tables, call])


KERNEL = Kernel(
    name="qpool2d_helium",
    operator=QPool2d,
    implement=implement,
    constraints=(rounds_once, *qpool2d.KERNEL.constraints, few_taps, sums_leave_room),
)
