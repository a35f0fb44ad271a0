"""Parts of an order of operators that run together, as what they need and cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tvm_ext.core.row_access import Columns

HELD_INPUT_COST = 1 << 40
"""Instructions that a streamed input costs which is taken in whole: more than any cut that takes it by rows."""


class Segment(NamedTuple):
    """Operators [begin, end) of the order, run together; rows_per_call is 0 for one that runs whole.

    cost: modelled instructions that it adds; overhead: of these, all that are not in kernels.
    input_rows: rows that the last one adds up as they come; 0 where it does not.
    held_inputs: number of streamed inputs that it holds whole.
    strips: of its result's columns, for each of which it runs once; none for one that runs once.
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
    """All segments with one end, shortest first; begins, num_bytes and prices: of each, int64[segments]."""

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
