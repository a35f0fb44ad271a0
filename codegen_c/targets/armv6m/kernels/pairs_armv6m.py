"""Weights for products of pairs: runs of taps whose sums separate, as `tvm_ext_armv6m_product.h` reads them.

A word holds two activations x + y * 2^16; such words times weights add up to the sums of both, as long as the lower one
stays within 16 bits. Runs are as long as that is certain, whatever the activations: from the weights alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.operators.kinds import Array, TensorType

PAIRS = 4
"""Words side by side, 8 pixels."""
LARGEST = (1 << 15) - 1
MOST_TAPS = 127
"""Longest run, so that a byte says how long it is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeparableRuns:
    """Runs of weights, channel after channel.

    stream: int8: of each run -1 less the number of its weights, and these; -1 behind the last run of a channel.
    num_runs: int64[K].
    """

    stream: Array
    num_runs: Array

    @classmethod
    def of(cls, weight: Array) -> Self:
        """weight: int8[K, ...]."""
        taps = weight.reshape(weight.shape[0], -1)
        begins = _run_begins(taps)
        num_runs = begins.sum(axis=1)
        length = taps.shape[1]
        # A byte before each run, and one behind each channel.
        place = np.arange(length) + begins.cumsum(axis=1)
        first = np.concatenate([[0], np.cumsum(length + num_runs + 1)])
        stream = np.full(first[-1], -1, np.int8)
        stream[place + first[:-1, np.newaxis]] = taps
        channel, tap = np.nonzero(begins)
        end = np.append(tap[1:], length)
        end[np.append(channel[1:] != channel[:-1], True)] = length
        stream[place[channel, tap] + first[channel] - 1] = -1 - (end - tap)
        return cls(stream=stream, num_runs=num_runs)

    @property
    def offset(self) -> Array:
        """Surplus of the C code's sums, int64[K]: 2^15 for each run."""
        return self.num_runs.astype(np.int64) << 15

    def instructions(self) -> int:
        """Modelled instructions of all channels of 8 pixels, before they are requantized."""
        num_taps = len(self.stream) - int(self.num_runs.sum()) - len(self.num_runs)
        return 12 * num_taps + 40 * int(self.num_runs.sum()) + 52 * len(self.num_runs)


def _run_begins(taps: Array) -> Array:
    """Taps that begin a run, bool[K, T]: from each on as many as any activations from -128 to 127 leave in 16 bits."""
    channels, length = (int(extent) for extent in taps.shape)
    wide = taps.astype(np.int64)
    positive, negative = np.maximum(wide, 0), np.maximum(-wide, 0)
    zeros = np.zeros((channels, 1), np.int64)
    highest = np.concatenate([zeros, np.cumsum(127 * positive + 128 * negative, axis=1)], axis=1)
    lowest = np.concatenate([zeros, np.cumsum(128 * positive + 127 * negative, axis=1)], axis=1)
    begins = np.zeros((channels, length + 1), bool)
    place, rows = np.zeros(channels, np.int64), np.arange(channels)
    ends = np.minimum(_ends(highest, LARGEST), _ends(lowest, LARGEST + 1))
    while (place < length).any():
        begins[rows, place] = True
        end = np.minimum(ends[rows, np.minimum(place, length - 1)], place + MOST_TAPS)
        place = np.where(place < length, end, length)
    return begins[:, :length]


def _ends(sums: Array, most: int) -> Array:
    """The last place up to which sums that rise have grown by no more than `most`, from each place on: int64[K, T]."""
    channels, places = (int(extent) for extent in sums.shape)
    apart: Array = (int(sums.max()) + most + 1) * np.arange(channels)[:, np.newaxis]
    ends: Array = np.searchsorted((sums + apart).ravel(), (sums + apart)[:, :-1] + most, side="right") - 1
    return ends - places * np.arange(channels)[:, np.newaxis]


def byte_offset(source: TensorType) -> int:
    """Number taken off activations, so that they are from -128 to 127."""
    return 128 if source.dtype == "uint8" else 0
