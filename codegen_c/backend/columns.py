"""Columns, or rows, of an operator's inputs that those of its result depend on, where images can be cut."""

from __future__ import annotations

from codegen_c.kernels.movement.permute import CHANNELS_LAST
from codegen_c.operators.half_floats import HalfCast
from codegen_c.operators.kinds import (
    Conv2d,
    Conv2dTranspose,
    Convert,
    Elementwise,
    Operator,
    Pool2d,
    QBinary,
    QConv2d,
    QConv2dTranspose,
    QPool2d,
    QUnary,
    TensorType,
    Window,
)
from codegen_c.operators.movement import Concat, Permute, Stream
from tvm_ext.core.columns import ColumnOperator, ColumnReader

ROWS, COLUMNS = 1, 2
"""Axes of an image that it can be cut along."""


def columns_of(operator: Operator, axis: int = COLUMNS) -> ColumnOperator | None:
    """Columns of an operator; None where a tensor is no image of one batch, rows are read whole, or columns repeat.

    axis: that of columns; or of rows, for which the same holds.
    """
    if isinstance(operator, Permute):
        by_rows = operator.axes == CHANNELS_LAST and not operator.first and _is_image(operator.output)
        return ColumnOperator(num_columns=operator.output.shape[axis], readers=(None,)) if by_rows else None
    if isinstance(operator, Stream):
        by_rows = operator.direction == "read" and axis == COLUMNS and _is_image(operator.output)
        return ColumnOperator(num_columns=operator.output.shape[axis], readers=(None,)) if by_rows else None
    windows = _windows(operator)
    if windows is None or not all(_is_image(kind) for kind in (*operator.inputs, operator.output)):
        return None
    columns = operator.output.shape[axis]
    readers = tuple(
        ColumnReader(
            input_columns=kind.shape[axis], stride=window.strides[axis - 1], left=window.padding[axis - 1],
            extent=(window.kernel[axis - 1] - 1) * window.dilation[axis - 1] + 1,
        )
        for kind, window in zip(operator.inputs, windows, strict=True)
    )  # fmt: skip
    repeats = any(
        window.is_pointwise and kind.shape[axis] != columns
        for kind, window in zip(operator.inputs, windows, strict=True)
    )
    return None if repeats else ColumnOperator(num_columns=columns, readers=readers)


def _is_image(kind: TensorType) -> bool:
    return len(kind.shape) == 4 and kind.shape[0] == 1


def _windows(operator: Operator) -> list[Window] | None:
    """Window that slides over each input; None for an operator that has no columns."""
    each = Window(kernel=(1, 1))
    match operator:
        case Conv2dTranspose() | QConv2dTranspose():
            return None
        case Conv2d() | QConv2d() | Pool2d() | QPool2d():
            return [operator.window, *[each] * (len(operator.inputs) - 1)]
        case Elementwise() | QBinary() | QUnary() | Convert() | HalfCast():
            return [each] * len(operator.inputs)
        case Concat() if operator.axis == 3:
            return [each] * len(operator.inputs)
        case _:
            return None
