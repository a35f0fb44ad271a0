"""Parts of an order of operators that run together, with their needs and costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tvm_ext.core.row_access import Columns

HELD_INPUT_COST = 1 << 40
"""Penalty in instructions for a streamed input that is held whole.

It exceeds the cost of any cut that reads the input by rows.
"""


class Segment(NamedTuple):
    """Operators [begin, end) of the order that run together.

    rows_per_call: 0 for an operator that runs whole.
    cost: modelled instructions that the segment adds.
    overhead: the part of these that is not in kernels.
    input_rows: rows that the last operator adds up as they arrive; 0 where it does not add up rows.
    held_inputs: the number of streamed inputs that it holds whole.
    strips: of its result's columns, for each of which it runs once; empty for a segment that runs once.
    """

    begin: int
    end: int
    rows_per_call: int
    num_bytes: int
    cost: int
    overhead: int = 0
    input_rows: int = 0
    held_inputs: int = 0
    strips: tuple[Columns, ...] = ()

    @property
    def price(self) -> int:
        return self.cost + HELD_INPUT_COST * self.held_inputs


@dataclass(frozen=True, kw_only=True, eq=False)
class Ending:
    """All segments with one end, shortest first.

    begins, num_bytes, prices: of each segment, int64[segments].
    """

    end: int
    segments: tuple[Segment, ...]
    begins: np.ndarray
    num_bytes: np.ndarray
    prices: np.ndarray

    @classmethod
    def of(cls, end: int, segments: Iterable[Segment]) -> Ending:
        found = tuple(sorted(segments, key=lambda segment: -segment.begin))
        numbers = np.array([(one.begin, one.num_bytes, one.price) for one in found], np.int64)
        return cls(end=end, segments=found, begins=numbers[:, 0], num_bytes=numbers[:, 1], prices=numbers[:, 2])
