"""Operands of segments that die in them, over which the last result may be written as rows of them are done with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relay_passes.solvers.graph import Graph


@dataclass(frozen=True, kw_only=True, eq=False)
class Dying:
    """Values that segments with one end read from before them, and nobody behind them.

    values: these. begins: for each, [first, last) of these segments' begins. sizes, row_bytes: int64[values]. needed:
    int64[values, calls of the segments' last operator], the first row that is still read when such a call begins.
    """

    values: tuple[int, ...]
    begins: tuple[tuple[int, int], ...]
    sizes: np.ndarray
    row_bytes: np.ndarray
    needed: np.ndarray

    def distances(self, written: np.ndarray) -> np.ndarray:
        """Bytes by which a result has to lie before each value; written: bytes of it, by call, when that one ends."""
        ahead = written - self.needed * self.row_bytes[:, None]
        return np.maximum(0, ahead.max(axis=1, initial=0))


@dataclass(frozen=True, kw_only=True, eq=False)
class DyingOperands:
    """The operands of a graph by their readers.

    made, last: of a value, the node that makes it, -1 for an input, and the last one that reads it. readers: of a
    value, (node, position in what it reads) of those that do, in order. needed_from: of a node and such a position,
    rows there are, and by rows that the node has made the first one that it still reads.
    """

    graph: Graph
    made: Mapping[int, int]
    last: Mapping[int, int]
    readers: Mapping[int, Sequence[tuple[int, int]]]
    needed_from: Mapping[tuple[int, int], tuple[int, np.ndarray]]

    def of(self, begin: int, end: int, made: np.ndarray) -> Dying:
        """Those of segments that begin at `begin` or later.

        made: int[calls of the last operator, operators], rows that each operator has made when such a call begins.
        """
        found = [
            (value, *one)
            for value, readers in self.readers.items()
            if begin <= self.last[value] < end
            for one in self._of_value(value, readers, begin, made)
        ]
        return Dying(
            values=tuple(value for value, *_ in found),
            begins=tuple(begins for _, begins, *_ in found),
            sizes=np.array([size for *_, size, _, _ in found], np.int64),
            row_bytes=np.array([row_bytes for *_, row_bytes, _ in found], np.int64),
            needed=np.array([needed for *_, needed in found], np.int64).reshape(len(found), len(made)),
        )

    def _of_value(
        self, value: int, readers: Sequence[tuple[int, int]], begin: int, made: np.ndarray
    ) -> Iterator[tuple[tuple[int, int], int, int, np.ndarray]]:
        """Begins, size, bytes of a row and what is needed of it, by the first of its readers in the segment."""
        size, earliest = self.graph.sizes[value], max(begin, self.made.get(value, -1) + 1)
        needed, heights = None, set[int]()
        for at in range(len(readers) - 1, -1, -1):
            node, _ = place = readers[at]
            if node < begin:
                return
            rows, needed_from = self.needed_from[place]
            heights.add(rows)
            one = needed_from[made[:, node - begin]]
            needed = one if needed is None else np.minimum(needed, one)
            first = max(earliest, readers[at - 1][0] + 1 if at else 0)
            if first <= node and len(heights) == 1 and size % rows == 0:
                yield (first, node + 1), size, size // rows, needed
