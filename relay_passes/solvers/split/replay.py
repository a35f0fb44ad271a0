"""A segment as its calls run, from which all shorter ones with the same end are read off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_ext.core.row_rings import RowRings
from tvm_ext.core.row_sequence import RowAccumulation, RowSequence


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """The longest segment with one end. begin: of it, in the order.

    made: int[calls of the last operator, operators], rows that each one has made when such a call begins; written:
    rows of the last one when it ends. accumulation: of the last one, where it adds up the rows of what it reads.
    """

    begin: int
    accumulation: RowAccumulation | None
    sequence: RowSequence
    rings: RowRings
    num_calls: tuple[int, ...]
    made: np.ndarray
    written: np.ndarray
