"""Kernel for an input or output that goes through a function of the application. Any element type.

Images [1, H, ...] are passed by rows, each once and in order; all other tensors in one piece. An input image may have
several readers, each of some of its columns.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Spatial, StoredRows, Target
from codegen_c.kernels.user_functions import Callback
from codegen_c.operators.kinds import Stream
from tvm_ext.core.row_access import RowAccess

INSTRUCTIONS_PER_ROW = 20
"""Instructions of the call alone: those of the application's function are unknown."""


def implement(operator: Stream, target: Target, stored: StoredRows) -> Implementation:
    is_read = operator.direction == "read"
    kept = operator.output if is_read else operator.inputs[0]
    by_rows = len(kept.shape) == 4 and kept.shape[0] == 1
    rows = kept.shape[1] if by_rows else 1
    access = RowAccess.whole(rows) if is_read else RowAccess.same(rows)  # outside is one row, always available
    layout = operator.axes if is_read else tuple(int(axis) for axis in np.argsort(operator.axes))
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(parameters=(), body=""),
        reference=lambda inputs: [_handed_over(operator, inputs[0])],
        instructions=rows * INSTRUCTIONS_PER_ROW,
        spatial=Spatial(output_rows=rows, inputs=(access,)) if by_rows else None,
        exact=True,
        callback=Callback(direction=operator.direction, rows=rows, layout=layout, columns=operator.columns),
    )


def _handed_over(operator: Stream, array: np.ndarray) -> np.ndarray:
    turned = array.transpose(operator.axes)
    return np.ascontiguousarray(turned[:, :, slice(*operator.columns)] if operator.columns else turned)


KERNEL = Kernel(
    name="stream",
    title="Input or output that goes through a function of the application, any element type",
    operator=Stream,
    implement=implement,
)
