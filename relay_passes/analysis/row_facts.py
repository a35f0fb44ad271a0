"""Facts about the operators of a function run by rows, which a search for splits asks for."""

from __future__ import annotations

from functools import cache

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.solvers.split.segments import ROWS_PER_CALL, RowFacts
from tvm_ext.core.operator_costs import CallCost


def row_facts(operators: OperatorGraph) -> RowFacts:
    """Facts about the operators run by rows; their costs are asked for where they are needed."""

    @cache
    def costs(index: int, input_rows: int, some: tuple[int, ...]) -> dict[int, CallCost]:
        composite = operators.composites[index]
        assert composite is not None, "what has rows is a composite"
        return dict(zip(some, operators.backend.call_costs(composite, some, input_rows), strict=True))

    return RowFacts(
        operators=tuple(operators.rows), accumulations=tuple(operators.accumulations),
        calls=lambda index, rows, input_rows: (
            costs(index, input_rows, ROWS_PER_CALL if rows in ROWS_PER_CALL else (rows,))[rows]
        ),
        reading=frozenset(operators.reading),
    )  # fmt: skip
