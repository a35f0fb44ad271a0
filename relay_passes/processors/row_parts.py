"""Split an operator's result among several processors: where to cut it, and what each part computes.

An image is cut into rows, and the vector that a dense layer computes into channels. Both are axis 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

from tvm import relax

from relay_passes.analysis.attention_heads import channels_of, computing_channels
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.memory.strip_composites import ROW_AXIS, computing_strip
from relay_passes.solvers.split.patches import columns_read
from tvm_ext.core.row_access import ColumnOperator

Rows = tuple[int, int]
"""Half-open range of rows, or of channels."""

MOST_CUTS = 4
"""Number of cuts of a layer that are priced for each set of processors."""


@dataclass(frozen=True, kw_only=True)
class RowPart:
    """Rows of a result on one processor.

    unit: channels, where the result is cut into channels instead of rows.
    function: computes the rows.
    reads: the rows of each operand that it reads, None for all.
    """

    processor: int
    rows: Rows
    unit: Literal["rows", "channels"]
    function: relax.Function
    reads: tuple[Rows | None, ...]
    nanoseconds: int


@dataclass(frozen=True, kw_only=True)
class Cuttable:
    """A composite that can compute some rows, or channels, alone.

    bands: the rows of the operands that each of its rows reads.
    """

    composite: relax.Function
    bands: ColumnOperator
    unit: Literal["rows", "channels"]
    function: Callable[[Rows], relax.Function | None]


def cuttable(composite: relax.Function, cost: ProcessorCosts) -> Cuttable | None:
    """Return how a composite can be cut, or None where it only runs whole."""
    bands = cost.backend.footprint(composite).bands
    if bands is not None:
        make = partial(computing_strip, composite, bands, axis=ROW_AXIS)
        return Cuttable(composite=composite, bands=bands, unit="rows", function=make)
    channels = channels_of(composite, cost.backend.elementwise)
    if channels is None:
        return None
    make = partial(computing_channels, composite)
    return Cuttable(composite=composite, bands=channels, unit="channels", function=make)


def split_rows(
    layer: Cuttable, costs: Sequence[ProcessorCosts], speeds: Sequence[tuple[int, int]]
) -> tuple[RowPart, ...] | None:
    """Return the parts of a layer that end soonest, or None where it cannot be cut.

    speeds: the processors, and the time of each for the whole layer.
    """
    best: tuple[RowPart, ...] | None = None
    tried: set[tuple[int, ...]] = set()
    ends = _balanced(layer.bands.num_columns, [time for _, time in speeds])
    while ends and ends not in tried and len(tried) < MOST_CUTS:
        tried.add(ends)
        parts = _parts(layer, costs, [processor for processor, _ in speeds], ends)
        if parts is None:
            break
        if best is None or _slowest(parts) < _slowest(best):
            best = parts
        ends = _moved(parts, ends)
    return best


def _balanced(num_rows: int, times: Sequence[int]) -> tuple[int, ...] | None:
    """Return the last rows (exclusive) of each processor by its speed, or None where a processor would have no row."""
    rates = [1 / max(1, time) for time in times]
    ends = [round(num_rows * sum(rates[: number + 1]) / sum(rates)) for number in range(len(rates))]
    for number in range(len(ends)):  # each processor gets at least one row
        ends[number] = max(ends[number], number + 1)
    ends = [min(end, num_rows - (len(ends) - 1 - number)) for number, end in enumerate(ends)]
    return tuple(ends) if num_rows >= len(ends) else None


def _moved(parts: Sequence[RowPart], ends: tuple[int, ...]) -> tuple[int, ...]:
    """Move a row from the slowest part to its faster neighbour, or return the same ends where it has only one row."""
    slowest = max(range(len(parts)), key=lambda number: (parts[number].nanoseconds, -number))
    begin, end = parts[slowest].rows
    beside = [number for number in (slowest - 1, slowest + 1) if 0 <= number < len(parts)]
    faster = min(beside, key=lambda number: (parts[number].nanoseconds, number))
    if end - begin == 1:
        return ends
    moved = list(ends)
    if faster > slowest:
        moved[slowest] -= 1
    else:
        moved[faster] += 1
    return tuple(moved)


def _parts(
    layer: Cuttable, costs: Sequence[ProcessorCosts], processors: Iterable[int], ends: tuple[int, ...]
) -> tuple[RowPart, ...] | None:
    """Return the parts with these rows, or None where a part is impossible or would add up floats in another order."""
    found: list[RowPart] = []
    bands = layer.bands
    for processor, rows in zip(processors, pairwise((0, *ends)), strict=True):
        cost = costs[processor]
        if any(reader and reader.read(rows) == (0, 0) for reader in bands.readers):
            return None  # only padding would be read
        function = layer.function(rows)
        time = cost.nanoseconds(function) if function is not None else None
        if function is None or time is None or not _same_sums(layer.composite, function, cost):
            return None
        reads = tuple(columns_read(bands, position, rows) for position in range(len(bands.readers)))
        found.append(
            RowPart(
                processor=processor, rows=rows, unit=layer.unit, function=function, reads=reads, nanoseconds=time
            )
        )  # fmt: skip
    return tuple(found)


def _same_sums(whole: relax.Function, part: relax.Function, cost: ProcessorCosts) -> bool:
    """Return True where no bit can differ: for integers, or for floats that the same kernel adds up."""
    footprint = cost.backend.footprint(part)
    return not footprint.computes_floats or footprint.kernel == cost.backend.footprint(whole).kernel


def _slowest(parts: Sequence[RowPart]) -> int:
    return max(part.nanoseconds for part in parts)
