"""Windows over sequences, images of one column, computed as windows over images of one row.

Both images have the same bytes, [N, T, 1, C] and [N, 1, T, C]. Memory is planned along the rows of the first. Kernels
compute several columns of the second at a time, which share the loads of weights.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation
from codegen_c.kernels.shared.window import spatial
from codegen_c.operators.kinds import Conv2d, Operator, Pool2d, QConv2d, QPool2d, TensorType, Window

WINDOWS = (Conv2d, QConv2d, Pool2d, QPool2d)


def as_one_row(operator: Operator) -> Operator | None:
    """Return a window over an image of one column as the same window over an image of one row; None otherwise."""
    if not isinstance(operator, WINDOWS) or operator.window.kernel[1] != 1:
        return None
    tensors = (*operator.inputs, *operator.outputs)
    if any(len(tensor.shape) != 4 or tensor.shape[2] != 1 for tensor in tensors):
        return None
    window, sides = operator.window, (operator.window.padding[1], operator.window.padding[3])
    if any(sides) or operator.output.shape[1] == 1:
        return None
    turned = Window(
        kernel=(1, window.kernel[0]), strides=(1, window.strides[0]), dilation=(1, window.dilation[0]),
        padding=(0, window.padding[0], 0, window.padding[2]),
    )  # fmt: skip
    changes = {"weight": operator.weight.swapaxes(1, 2)} if isinstance(operator, Conv2d | QConv2d) else {}
    return replace(
        operator, inputs=tuple(map(_one_row, operator.inputs)), outputs=tuple(map(_one_row, operator.outputs)),
        window=turned, **changes,
    )  # fmt: skip


def along_columns(operator: Operator, row: Implementation) -> Implementation:
    """Return the kernel of an image of one row as a kernel of the image of one column that `as_one_row` took.

    It computes all rows of that image in one call. Its output may overlap the input if the kernel writes the columns of
    a row in ascending order.
    """
    assert isinstance(operator, WINDOWS) and row.spatial is not None, "windows have rows"
    rows = spatial(operator.window, operator.inputs[0], operator.output, len(operator.inputs) - 1)
    begin_end = ["const int32_t row_begin = 0;", "const int32_t row_end = 1;"]
    function = replace(
        row.function, parameters=tuple(parameter for parameter in row.function.parameters if parameter.role != "row"),
        body="\n".join([*begin_end, row.function.body]),
    )  # fmt: skip
    still_read = (row.spatial.columns_at_once or rows.output_rows) - 1
    return replace(row, function=function, spatial=replace(rows, rows_still_read=still_read, descends=False))


def _one_row(tensor: TensorType) -> TensorType:
    batch, rows, _, channels = tensor.shape
    return replace(tensor, shape=(batch, 1, rows, channels))
