"""Kernels that compute each vector along the last axis by itself, run by rows: a call of the kernel for each row.

A row is all vectors of one row of an image, or one vector of any other tensor (`vector_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from codegen_c.c_text.text import block, times
from codegen_c.kernels.contract import CFunction, Implementation, Spatial, StoredRows
from codegen_c.kernels.shared.window import ROW_PARAMETERS, slot
from codegen_c.operators.kinds import Operator
from tvm_ext.core.row_access import RowAccess

ROW_INSTRUCTIONS = 20
"""Instructions of the call for one row."""

MakeRow = Callable[[int], Implementation]
"""The kernel for so many vectors."""


def in_turn(operator: Operator, make: MakeRow) -> Callable[[StoredRows], Implementation] | None:
    """The kernel by rows; None for an operator of a single row."""
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
        kernel=f"{row.kernel}_in_rows",
        function=row_by_row(function, arguments),
        instructions=rows * (row.instructions + ROW_INSTRUCTIONS),
        spatial=Spatial(output_rows=rows, inputs=(RowAccess.same(rows),)),
        in_rows=None,
    )


def row_by_row(function: CFunction, arguments: Sequence[str]) -> CFunction:
    """A function of rows [row_begin, row_end) that calls that of one, with arguments that row h has."""
    declarations = ",\n".join(parameter.declaration() for parameter in function.parameters)
    definition = f"static inline void $_row(\n{block(declarations)})\n{{\n{block(function.body)}\n}}\n"
    lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(f"$_row({', '.join(arguments)});"), "}"]
    return CFunction(
        parameters=(*function.parameters, *ROW_PARAMETERS),
        body="\n".join(lines),
        helpers="\n".join(text for text in (function.helpers, definition) if text),
        includes=function.includes,
    )
