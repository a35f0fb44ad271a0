"""Features of segments of an order for a learned cost model of cuts. They are plain numbers without units."""

from __future__ import annotations

import numpy as np

from relay_passes.solvers.memories.cuts import SegmentTimes
from relay_passes.solvers.split.segment import Ending

NUM_FACTS = 13
LEAST = 1e-6
"""Added to fractions before their logarithm is taken, so that zero has one."""


def facts_of(times: SegmentTimes, ending: Ending) -> np.ndarray:
    """Return float32[segments, NUM_FACTS] for the segments with one end: what they need, wait for and copy."""
    room, length = max(times.room, 1), ending.end - ending.begins
    cycles = np.maximum(times.between(times.cycles, ending), 1.0)
    near, home = times.between(times.near, ending), times.between(times.home, ending)
    weights = times.between(times.weights, ending)
    by_rows = np.array([segment.rows_per_call for segment in ending.segments])
    facts = [
        np.log2(np.maximum(ending.num_bytes, 1) / room), np.log2(np.maximum(weights, 1) / room),
        np.log2((home - near) / cycles + LEAST), np.log2(near / cycles + LEAST),
        times.between(times.weights_home, ending) / np.maximum(home, LEAST),
        ending.prices * times.per_instruction / cycles, np.log2(length), by_rows, ending.begins / len(times.cycles),
        *(np.full(len(length), number) for number in times.of_platform()),
    ]  # fmt: skip
    return np.stack(facts, axis=1).astype(np.float32)
