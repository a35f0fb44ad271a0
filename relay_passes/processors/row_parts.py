"""Split an operator's result among several processors: where to cut it, and what each part computes.

An image is cut into rows, and the vector that a dense layer computes into channels. Both are axis 1. Operators that run
row by row in series are cut together (`sequence_parts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal, Protocol

from tvm import relax

from relay_passes.analysis.output_channels import channels_of, computing_channels
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
    is_inner: whether only later parts of a sequence on the same processor read the rows. Parts on several processors
    then overlap where each of them computes a halo.
    """

    processor: int
    rows: Rows
    unit: Literal["rows", "channels"]
    function: relax.Function
    reads: tuple[Rows | None, ...]
    nanoseconds: int
    is_inner: bool = False


Chain = tuple[RowPart, ...]
"""Parts that a processor runs one after the other: of one operator, or one of each operator of a sequence."""


class Cuttable(Protocol):
    """Operators whose last result can be computed in parts."""

    @property
    def num_rows(self) -> int:
        """Rows, or channels, of the last result."""
        ...

    def chain(self, rows: Rows, processor: int, cost: ProcessorCosts) -> Chain | None:
        """Return the parts that compute some rows on a processor, or None where they cannot be computed alone, or
        floats would be added up in another order."""
        ...


@dataclass(frozen=True, kw_only=True)
class CuttableLayer:
    """A composite that can compute some rows, or channels, alone.

    bands: the rows of the operands that each of its rows reads.
    """

    composite: relax.Function
    bands: ColumnOperator
    unit: Literal["rows", "channels"]
    function: Callable[[Rows], relax.Function | None]

    @property
    def num_rows(self) -> int:
        return self.bands.num_columns

    def chain(self, rows: Rows, processor: int, cost: ProcessorCosts) -> Chain | None:
        if any(reader and reader.read(rows) == (0, 0) for reader in self.bands.readers):
            return None  # only padding would be read
        function = self.function(rows)
        time = cost.nanoseconds(function) if function is not None else None
        if function is None or time is None or not same_sums(self.composite, function, cost):
            return None
        reads = tuple(columns_read(self.bands, position, rows) for position in range(len(self.bands.readers)))
        part = RowPart(
            processor=processor, rows=rows, unit=self.unit, function=function, reads=reads, nanoseconds=time
        )  # fmt: skip
        return (part,)


def cuttable(composite: relax.Function, cost: ProcessorCosts) -> CuttableLayer | None:
    """Return how a composite can be cut, or None where it only runs whole."""
    bands = cost.backend.footprint(composite).bands
    if bands is not None:
        make = partial(computing_strip, composite, bands, axis=ROW_AXIS)
        return CuttableLayer(composite=composite, bands=bands, unit="rows", function=make)
    channels = channels_of(composite, cost.backend.elementwise)
    if channels is None:
        return None
    make = partial(computing_channels, composite)
    return CuttableLayer(composite=composite, bands=channels, unit="channels", function=make)


def split_rows(
    layer: Cuttable, costs: Sequence[ProcessorCosts], speeds: Sequence[tuple[int, int]]
) -> tuple[Chain, ...] | None:
    """Return the parts that end soonest, a chain for each processor, or None where there is no cut.

    speeds: the processors, and the time of each for all rows.
    """
    best: tuple[Chain, ...] | None = None
    tried: set[tuple[int, ...]] = set()
    ends = _balanced(layer.num_rows, [time for _, time in speeds])
    while ends and ends not in tried and len(tried) < MOST_CUTS:
        tried.add(ends)
        chains = _chains(layer, costs, [processor for processor, _ in speeds], ends)
        if chains is None:
            break
        if best is None or _slowest(chains) < _slowest(best):
            best = chains
        ends = _moved(chains, ends)
    return best


def chain_time(chain: Chain) -> int:
    """Return the nanoseconds of all parts of a chain."""
    return sum(part.nanoseconds for part in chain)


def same_sums(whole: relax.Function, part: relax.Function, cost: ProcessorCosts) -> bool:
    """Return True where no bit can differ: for integers, or for floats that the same kernel adds up."""
    footprint = cost.backend.footprint(part)
    return not footprint.computes_floats or footprint.kernel == cost.backend.footprint(whole).kernel


def _balanced(num_rows: int, times: Sequence[int]) -> tuple[int, ...] | None:
    """Return the last rows (exclusive) of each processor by its speed, or None where a processor would have no row."""
    rates = [1 / max(1, time) for time in times]
    ends = [round(num_rows * sum(rates[: number + 1]) / sum(rates)) for number in range(len(rates))]
    for number in range(len(ends)):  # each processor gets at least one row
        ends[number] = max(ends[number], number + 1)
    ends = [min(end, num_rows - (len(ends) - 1 - number)) for number, end in enumerate(ends)]
    return tuple(ends) if num_rows >= len(ends) else None


def _moved(chains: Sequence[Chain], ends: tuple[int, ...]) -> tuple[int, ...]:
    """Move a row from the slowest chain to its faster neighbour, or return the same ends where it has only one row."""
    times = [chain_time(chain) for chain in chains]
    slowest = max(range(len(chains)), key=lambda number: (times[number], -number))
    begin, end = chains[slowest][-1].rows
    beside = [number for number in (slowest - 1, slowest + 1) if 0 <= number < len(chains)]
    faster = min(beside, key=lambda number: (times[number], number))
    if end - begin == 1:
        return ends
    moved = list(ends)
    if faster > slowest:
        moved[slowest] -= 1
    else:
        moved[faster] += 1
    return tuple(moved)


def _chains(
    layer: Cuttable, costs: Sequence[ProcessorCosts], processors: Iterable[int], ends: tuple[int, ...]
) -> tuple[Chain, ...] | None:
    """Return the chains that compute these rows, or None where one of them is impossible."""
    ranges = zip(processors, pairwise((0, *ends)), strict=True)
    found = [layer.chain(rows, processor, costs[processor]) for processor, rows in ranges]
    chains = tuple(chain for chain in found if chain is not None)
    return chains if len(chains) == len(found) else None


def _slowest(chains: Sequence[Chain]) -> int:
    return max(map(chain_time, chains))
