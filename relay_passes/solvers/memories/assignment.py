"""Decisions about several memories: the memories of values and scratch, and the copies of weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Stay:
    """A copy of a value in a memory: prefetched ahead of step `start`, first read by `first`, last by `last`."""

    memory: str
    start: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Place:
    """The memories of a value.

    It is written to `born` and read there until step `born_last`. Later it is read from its stays, or from the default
    memory.
    """

    born: str
    born_last: int
    stays: tuple[Stay, ...] = ()

    def memory_at(self, step: int, home: str) -> str:
        """Return the memory of the copy that a step reads."""
        if step <= self.born_last:
            return self.born
        return next((stay.memory for stay in self.stays if stay.first <= step <= stay.last), home)


@dataclass(frozen=True, kw_only=True)
class WeightsCopy:
    """A copy of a step's weights in another memory, from ahead of step `start` on."""

    memory: str
    start: int


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """All decisions.

    places: of values.
    weights: of steps whose weights are copied.
    scratch: memories other than the default memory, by step.
    """

    places: tuple[Place, ...]
    weights: Mapping[int, WeightsCopy]
    scratch: Mapping[int, str]


@dataclass(frozen=True, kw_only=True)
class ValueTransfer:
    """A transfer of a value between steps.

    due: the step ahead of which the transfer is awaited.
    processor: the core that copies where no DMA does, empty for the first core.
    """

    value: int
    source: str
    target: str
    start: int
    due: int
    spills: bool = False
    processor: str = ""
