"""A pool over a whole image of a QDQ chain, integers only, that takes rows as they come (`accumulate_pool`).

int8 or uint8[1, H, W, C] -> int8 or uint8[1, 1, 1, C], and int32[C] of sums, or largest elements, between the calls.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import Accumulating, Implementation, StoredRows
from codegen_c.kernels.pooling import accumulate_pool
from codegen_c.kernels.pooling.pool_sums import average, counted_taps, reference, window_sums
from codegen_c.kernels.shared import requantize_tflite
from codegen_c.kernels.shared.requantize import INCLUDES, quantization
from codegen_c.kernels.shared.window import accumulated
from codegen_c.operators.kinds import QPool2d, TensorType


def accumulating(operator: QPool2d) -> Accumulating | None:
    """A pool over the whole image takes its rows as they come."""
    if not accumulate_pool.is_global(operator):
        return None
    return Accumulating(
        row_counts=(operator.inputs[0].shape[1],),
        implement=lambda rows, stored: _by_rows(operator, stored),
    )


def _by_rows(operator: QPool2d, stored: StoredRows) -> Implementation:
    """One sum, or largest element, for each channel. Without padding all windows have the same taps, so one factor."""
    finish = average(operator) if operator.method == "average" and operator.rounding == "onnx" else None
    count, channels, ctype = int(counted_taps(operator)[0, 0]), operator.output.shape[3], C_TYPES[operator.output.dtype]
    zero_points = -quantization(operator.inputs[0]).zero_point * count

    def end(value: str, channel: str) -> str:
        if finish:
            return finish.call(value, "0")
        taken = f"tvm_ext_average({value}, {count})" if operator.method == "average" else value
        return f"({ctype})tvm_ext_clamp({taken}, {operator.low}, {operator.high})"

    is_max = operator.method == "max"
    sums = accumulate_pool.RowSums(
        ctype="int32_t",
        sums="sums",
        start=str(operator.low if is_max else zero_points if finish else 0),
        add=lambda value, x: f"{value} = {x} > {value} ? {x} : {value};" if is_max else f"{value} += {x};",
        finish=end,
    )
    function = accumulate_pool.function(
        sums, operator, stored, finish.parameters() if finish else (), helpers=finish.helper() if finish else "",
        includes=INCLUDES if operator.rounding == "onnx" else requantize_tflite.INCLUDES,
    )  # fmt: skip
    whole = operator.inputs[0].num_elements * 2 + channels * 20
    return Implementation(
        kernel="qpool2d_i8_by_rows",
        function=function,
        reference=lambda inputs: [*reference(operator, inputs), window_sums(operator, inputs[0]).astype(np.int32)],
        constants=finish.constants() if finish else (),
        instructions=accumulate_pool.instructions(operator, whole),
        accumulation="r, s ascending",
        spatial=accumulated(operator.inputs[0].shape[1]),
        exact=True,
        sums=TensorType(shape=(1, 1, 1, channels), dtype="int32"),
    )
