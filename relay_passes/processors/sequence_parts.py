"""Split operators that run row by row in series among several processors: each runs its own rows through its own rings.

    y = c2(c1(x)), rows of y 0 to 15 of c2 and c1 in series
      ->  core 0: rows 0 to 7 of c2 and 0 to 8 of c1, from rows 0 to 9 of x
          core 1: rows 8 to 15 of c2 and 7 to 15 of c1, from rows 6 to 15 of x

The last result is cut without overlap. The rows of inner results at a seam, here rows 7 and 8 of c1, are computed on
both cores: a core would otherwise have to wait for rows that the other core computes last. They are the price of the
cut, and part of its predicted time. The rings of a core have as many rows as those of a single core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.memory.strip_composites import ROW_AXIS, computing_strip
from relay_passes.processors.row_parts import Chain, RowPart, Rows, same_sums
from relay_passes.solvers.graph import Graph
from relay_passes.solvers.split.patches import columns_made, columns_read
from tvm_ext.core.decisions.composites import RowSplit, StreamDirection
from tvm_ext.core.row_access import ColumnOperator


@dataclass(frozen=True, kw_only=True)
class CuttableSequence:
    """Operators [begin, end) of a graph that run in series, and whose rows can be computed in parts.

    bands: by node of the graph, the rows of the operands that each row of its result reads; None outside the sequence.
    """

    operators: OperatorGraph
    begin: int
    end: int
    bands: Sequence[ColumnOperator | None]

    @cached_property
    def graph(self) -> Graph:
        return self.operators.graph()

    @property
    def num_rows(self) -> int:
        return self._band(self.end - 1).num_columns

    def chain(self, rows: Rows, processor: int, cost: ProcessorCosts) -> Chain | None:
        made = columns_made(self.graph, self.bands, self.begin, self.end, rows)
        if made[-1] != rows:  # some rows would read only padding
            return None
        parts: list[RowPart] = []
        for index, some in zip(range(self.begin, self.end), made, strict=True):
            part = self._part(index, some, rows, processor, cost)
            if part is None:
                return None
            parts.append(part)
        return tuple(parts)

    def _part(
        self, index: int, made: Rows | None, ending: Rows, processor: int, cost: ProcessorCosts
    ) -> RowPart | None:
        """Return an operator of the sequence for some rows of its result, None for all; None where it is impossible.

        ending: the rows of the last result, which name the sequence.
        """
        whole, band = self.operators.composites[index], self._band(index)
        assert whole is not None, "rows are those of composites"
        rows = made or (0, band.num_columns)
        function = computing_strip(whole, band, rows, axis=ROW_AXIS) if made else whole
        time = cost.nanoseconds(function) if function is not None else None
        if function is None or time is None or not same_sums(whole, function, cost):
            return None
        by_rows = cost.backend.footprint(function).rows
        if by_rows is None or by_rows.num_rows != rows[1] - rows[0]:  # a single row may be a vector of channels
            return None
        split = RowSplit.read(function)
        named = replace(split, sequence=f"{split.sequence}_rows_{ending[0]}_{ending[1]}")
        reads = tuple(columns_read(band, position, made) for position in range(len(band.readers)))
        return RowPart(
            processor=processor, rows=rows, unit="rows", function=named.write(function), reads=reads, nanoseconds=time,
            is_inner=index < self.end - 1,
        )  # fmt: skip

    def _band(self, index: int) -> ColumnOperator:
        band = self.bands[index]
        assert band is not None, "every operator of the sequence has rows"
        return band


def cuttable_sequence(operators: OperatorGraph, unit: Sequence[int]) -> CuttableSequence | None:
    """Return how the operators of a sequence can be cut into rows, or None where one processor has to run them.

    This is so where the sequence adds up rows, where an inner result is also read outside, and where functions of the
    application pass rows.
    """
    begin, end = unit[0], unit[-1] + 1
    if end - begin != len(unit) or len(unit) == 1 or _reaches_outside(operators, range(begin, end)):
        return None
    bands: list[ColumnOperator | None] = [None] * len(operators.steps)
    for index in unit:
        composite, by_rows = operators.composites[index], operators.rows[index]
        band = operators.backend.footprint(composite).bands if composite is not None else None
        arguments = operators.steps[index][0].value.args
        if (
            band is None
            or by_rows is None
            or by_rows.num_rows != band.num_columns
            or len(operators.steps[index]) > 1
            or len(arguments) != len(operators.nodes[index].reads)
            or not all(isinstance(argument, relax.Var) for argument in arguments)
            or RowSplit.read(composite).input_rows
            or StreamDirection.read(composite).direction
        ):
            return None
        bands[index] = band
    return CuttableSequence(operators=operators, begin=begin, end=end, bands=bands)


def _reaches_outside(operators: OperatorGraph, unit: range) -> bool:
    """Return True if a result other than the last one is read outside of the sequence, or is an output."""
    graph = operators.graph()
    inner = {value for index in unit[:-1] for value in graph.nodes[index].writes}
    outside = {value for index, node in enumerate(graph.nodes) if index not in unit for value in node.reads}
    return bool(inner & (outside | graph.outputs))
