"""A pool over a whole image of a QDQ chain, integers only, that takes rows as they come (`accumulate_pool`).

int8 or uint8[1, H, W, C] -> int8 or uint8[1, 1, 1, C], and int32[C] of sums, or largest elements, between the calls.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import Accumulating, CFunction, Implementation, Parameter, StoredRows
from codegen_c.kernels.pooling import accumulate_pool
from codegen_c.kernels.pooling.pool_sums import average, counted_taps, reference, window_sums
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, image, rescale, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.requantize import Requantize
from codegen_c.kernels.shared.window import ROW_PARAMETERS, accumulated
from codegen_c.operators.kinds import QPool2d, TensorType

LAYER = "tvm_ext_qpool2d_layer"


def accumulating(operator: QPool2d) -> Accumulating | None:
    """A pool over the whole image takes its rows as they come."""
    if not accumulate_pool.is_global(operator):
        return None
    return Accumulating(
        row_counts=(operator.inputs[0].shape[1],),
        implement=lambda rows, stored: _by_rows(operator, stored),
    )


def pool_shapes(operator: QPool2d, stored: StoredRows, finish: Requantize | None) -> str:
    """The layer's shapes as tvm_ext_qpool2d.h takes them. finish: of an average that is brought to another scale."""
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window),
        "is_maximum": operator.method == "max",
        "divides": operator.method == "average" and finish is None,
        "fewest": int(counted_taps(operator).min()),
        "rescale": rescale(finish) if finish else {"low": operator.low, "high": operator.high},
    }
    return shapes(LAYER, members)


def factors_text(finish: Requantize | None) -> str:
    """Arguments for the tables of factors."""
    return "multiplier, shift" if finish else "NULL, NULL"


def _by_rows(operator: QPool2d, stored: StoredRows) -> Implementation:
    """One sum, or largest element, for each channel. Without padding all windows have the same taps, so one factor."""
    finish = average(operator) if operator.has_factor else None
    channels, rings = operator.output.shape[3], with_rings(LAYER, stored)
    arguments = f"{rings[1]}, input, output, sums, {factors_text(finish)}, row_begin, row_end"
    tables = finish.tables() if finish else []
    function = CFunction(
        parameters=(
            Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
            Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
            Parameter(name="sums", ctype="int32_t", role="output"),
            *(finish.parameters() if finish else ()),
            *ROW_PARAMETERS,
        ),
        body="\n".join([*rings[0], *tables, f"tvm_ext_qpool2d_add({arguments});"]),
        helpers=pool_shapes(operator, stored, finish),
        includes=("tvm_ext_qpool2d.h", *BLOCK_INCLUDES),
    )
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
