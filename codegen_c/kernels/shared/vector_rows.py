"""Rows of tensors that are no images: runs of channels, vectors one after another, images of one pixel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from codegen_c.c_text.text import block, times
from codegen_c.kernels.contract import CFunction, Implementation, Spatial, StoredRows
from codegen_c.kernels.shared.window import ROW_PARAMETERS, slot
from codegen_c.operators.kinds import (
    Convert,
    Elementwise,
    HalfCast,
    Operator,
    QBinary,
    QConv2d,
    QDense,
    QUnary,
    TensorType,
    Window,
)
from tvm_ext.core.row_access import RowAccess
from tvm_ext.core.time_model import IN_ROWS

# Rows of tensors that are no images: a vector is split into runs of its channels, other tensors along their first axes.
#
# The writer and the readers of a vector [..., C] must agree on its rows, so these depend on C alone.

RUNS = (32, 16, 8, 4)
"""Channels of one run of a vector: the largest that divides it into several runs. Blocks of four never straddle
runs."""
ELEMENTWISE = (QUnary, QBinary, Elementwise, Convert, HalfCast)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """`count` rows of `length` elements. is_vector: True if they are runs of the last axis."""

    count: int
    length: int
    is_vector: bool


def rows_of(shape: Sequence[int]) -> Rows | None:
    """Return the rows of a tensor [..., C]; None for images, which have their own, and for indivisible vectors."""
    if not shape or len(shape) == 4:
        return None
    vectors, channels = prod(shape[:-1]), shape[-1]
    if vectors > 1:
        return Rows(count=vectors, length=channels, is_vector=False)
    run = next((run for run in RUNS if channels % run == 0 and channels > run), None)
    return Rows(count=channels // run, length=run, is_vector=True) if run else None


def as_image(operator: Operator) -> Operator | None:
    """Return an element-wise operator on images of its rows, one pixel each; None if it has no rows."""
    rows = rows_of(operator.output.shape)
    alike = all(kind.shape == operator.output.shape for kind in operator.inputs)
    if rows is None or not isinstance(operator, ELEMENTWISE) or not alike:
        return None
    if rows.is_vector and isinstance(operator, Elementwise | QUnary) and operator.finish.channel_constants:
        return None  # its constants are per channel of the last axis, here of a run

    def image(kind: TensorType) -> TensorType:
        return replace(kind, shape=(1, rows.count, 1, rows.length))

    return replace(operator, inputs=tuple(map(image, operator.inputs)), outputs=(image(operator.output),))


# Kernels that compute each vector along the last axis by itself, run by rows: one call of the kernel per row.
#
# A row is all vectors of one row of an image, or one vector of any other tensor.

ROW_INSTRUCTIONS = 20
"""Instructions of the call for one row."""

MakeRow = Callable[[int], Implementation]
"""Function that returns the kernel for a number of vectors."""


def in_turn(operator: Operator, make: MakeRow) -> Callable[[StoredRows], Implementation] | None:
    """Return the kernel by rows; None for an operator of a single row."""
    shape = operator.output.shape
    rows = shape[1] if len(shape) == 4 and shape[0] == 1 else prod(shape[:-1])
    if rows < 2:
        return None
    return lambda stored: _in_turn(make(prod(shape[:-1]) // rows), rows, prod(shape) // rows, stored)


def _in_turn(row: Implementation, rows: int, length: int, stored: StoredRows) -> Implementation:
    function = row.function
    places = {"input": slot("h", stored.input(0)), "output": slot("h", stored.output)}
    arguments = [
        f"&{parameter.name}[{times(places[parameter.role], length)}]" if parameter.role in places else parameter.name
        for parameter in function.parameters
    ]
    return replace(
        row,
        kernel=f"{row.kernel}{IN_ROWS}",
        function=row_by_row(function, arguments),
        instructions=rows * (row.instructions + ROW_INSTRUCTIONS),
        spatial=Spatial(output_rows=rows, inputs=(RowAccess.same(rows),)),
        in_rows=None,
    )


def row_by_row(function: CFunction, arguments: Sequence[str]) -> CFunction:
    """Return a function of rows [row_begin, row_end) that calls the function of one row with row h's arguments."""
    declarations = ",\n".join(parameter.declaration() for parameter in function.parameters)
    definition = f"static inline void $_row(\n{block(declarations)})\n{{\n{block(function.body)}\n}}\n"
    lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(f"$_row({', '.join(arguments)});"), "}"]
    return CFunction(
        parameters=(*function.parameters, *ROW_PARAMETERS),
        body="\n".join(lines),
        helpers="\n".join(text for text in (function.helpers, definition) if text),
        includes=function.includes,
    )


# Convolutions of one pixel as dense layers, and the reverse, so that kernels of either kind may compute them.


def as_dense(operator: Operator) -> QDense | None:
    """Return a quantized convolution from one pixel to one pixel as a dense layer; None for any other operator."""
    if type(operator) is not QConv2d or operator.groups != 1 or operator.weight.shape[1:3] != (1, 1):
        return None
    if any(prod(tensor.shape[:3]) != 1 for tensor in (operator.inputs[0], operator.output)):
        return None
    return QDense(
        inputs=operator.inputs, outputs=operator.outputs,
        weight=operator.weight.reshape(operator.weight.shape[0], -1), weight_scale=operator.weight_scale,
        bias=operator.bias, low=operator.low, high=operator.high, rounding=operator.rounding,
    )  # fmt: skip


def as_pointwise(operator: Operator) -> QConv2d | None:
    """Return a quantized dense layer on several vectors [1, N, C] as the 1x1 convolution of an image of one column.

    Returns None for any other operator, and for the roundings of TensorFlow Lite.
    """
    if type(operator) is not QDense or operator.rounding != "onnx":
        return None
    shape = operator.output.shape
    if len(shape) != 3 or shape[0] != 1 or shape[1] < 2:
        return None

    def image(tensor: TensorType) -> TensorType:
        return replace(tensor, shape=(1, shape[1], 1, tensor.shape[-1]))

    return QConv2d(
        inputs=(image(operator.inputs[0]),), outputs=(image(operator.output),),
        weight=operator.weight[:, None, None, :], weight_scale=operator.weight_scale, bias=operator.bias,
        window=Window(kernel=(1, 1)), low=operator.low, high=operator.high, rounding=operator.rounding,
    )  # fmt: skip
