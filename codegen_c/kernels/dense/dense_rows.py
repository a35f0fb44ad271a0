"""Dense layers in parts: by rows of the result, or by rows of the input whose products are accumulated.

A result of one vector is computed by runs of channels (`vector_rows`), each run as a layer of its own on a part of the
constants; a result of several vectors is computed by vectors. A layer that takes its input in parts starts its sums at
the bias, or at the sums of earlier calls, and adds products in the order of the whole layer: no bit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

import numpy as np

from codegen_c.c_text.text import block, times
from codegen_c.kernels.contract import Implementation, Spatial, StoredRows
from codegen_c.kernels.shared.vector_rows import Rows, row_by_row, rows_of
from codegen_c.kernels.shared.window import slot
from codegen_c.operators.kinds import Dense, QDense
from tvm_ext.core.row_access import RowAccess
from tvm_ext.core.time_model import IN_ROWS

ROW_INSTRUCTIONS = 30
"""Instructions of the call for one row."""

MakeInRows = Callable[[StoredRows], Implementation]
Layer = TypeVar("Layer", Dense, QDense)


def one_row(operator: Layer, rows: Rows) -> Layer:
    """Return the layer with the shapes of one row of its result."""
    depth = operator.weight.shape[1]
    shapes = [(depth,), *[(rows.length,)] * (len(operator.inputs) - 1)]
    inputs = tuple(replace(kind, shape=shape) for kind, shape in zip(operator.inputs, shapes, strict=True))
    outputs = (replace(operator.output, shape=(rows.length,)),)
    return replace(operator, inputs=inputs, outputs=outputs, weight=operator.weight[: rows.length])


def in_rows(operator: Layer, make_row: Callable[[Layer, Rows], Implementation]) -> MakeInRows | None:
    """Return the layer by rows of its result; None if the result has no rows.

    make_row: returns the kernel of `one_row`, with the constants and the reference of the whole layer.
    """
    rows = rows_of(operator.output.shape)
    if rows is None:
        return None
    return lambda stored: _in_rows(operator, rows, make_row(one_row(operator, rows), rows), stored)


def _in_rows(operator: Dense | QDense, rows: Rows, row: Implementation, stored: StoredRows) -> Implementation:
    function, depth = row.function, operator.weight.shape[1]
    sizes = iter([array.size // rows.count for _, array in row.constants])
    inputs = iter(range(len(operator.inputs)))
    arguments: list[str] = []
    for parameter in function.parameters:
        first = ""
        if parameter.role == "input":
            index = next(inputs)
            length = rows.length if index else 0 if rows.is_vector else depth
            first = times(slot("h", stored.input(index)), length) if length else ""
        elif parameter.role == "output":
            first = times(slot("h", stored.output), rows.length)
        elif parameter.role == "constant" and (size := next(sizes)) and rows.is_vector:
            first = times("h", size)
        arguments.append(f"&{parameter.name}[{first}]" if first else parameter.name)
    first_input = RowAccess.whole(rows.count) if rows.is_vector else RowAccess.same(rows.count)
    others = (RowAccess.same(rows.count),) * (len(operator.inputs) - 1)
    return replace(
        row,
        kernel=f"{row.kernel}{IN_ROWS}",
        function=row_by_row(function, arguments),
        macs=operator.output.num_elements * depth,
        instructions=rows.count * (row.instructions + ROW_INSTRUCTIONS),
        spatial=Spatial(output_rows=rows.count, inputs=(first_input, *others)),
        accumulating=None,
    )


def row_counts(operator: Dense | QDense) -> tuple[int, ...]:
    """Return the numbers of equal parts in which the only vector of a layer can come; () for none."""
    depth = operator.weight.shape[1]
    if prod(operator.output.shape[:-1]) != 1 or len(operator.inputs) != 1:
        return ()
    return tuple(count for count in range(2, depth + 1) if depth % count == 0)


def num_calls(row_count: int, stored: StoredRows) -> int:
    """Return the number of calls that take all parts."""
    return -(-row_count // min(stored.at_once or row_count, row_count))


def over_parts(row_count: int, depth: int, ctype: str, stored: StoredRows, each: Sequence[str]) -> list[str]:
    """Return a loop over the parts of a call, with a pointer `x` to the elements of each part."""
    part = depth // row_count
    place = times(slot("h", stored.input(0)), part)
    return [
        "for (int32_t h = row_begin; h < row_end; ++h) {",
        block([f"const {ctype} *x = &input[{place}];", *each]),
        "}",
    ]


def runs_of(array: np.ndarray, rows: Rows) -> Iterator[np.ndarray]:
    """Yield a layer's weights, split as its result is."""
    yield from np.split(array, rows.count) if rows.is_vector else (array,)
