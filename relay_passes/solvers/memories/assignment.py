"""Decisions about several memories: places of values, copies of weights, places of scratch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Stay:
    """A copy of a value in a memory: fetched before step `start`, first read by `first`, last by `last`."""

    memory: str
    start: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Place:
    """Memories of a value: made in `born` and read there until step `born_last`, later from its stays or home."""

    born: str
    born_last: int
    stays: tuple[Stay, ...] = ()

    def memory_at(self, step: int, home: str) -> str:
        """Memory of the copy that a step reads."""
        if step <= self.born_last:
            return self.born
        return next((stay.memory for stay in self.stays if stay.first <= step <= stay.last), home)


@dataclass(frozen=True, kw_only=True)
class WeightsCopy:
    """A step's weights in another memory, from before step `start` on."""

    memory: str
    start: int


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """All decisions: of values, of steps' weights that are copied, of scratch that is not at home."""

    places: tuple[Place, ...]
    weights: Mapping[int, WeightsCopy]
    scratch: Mapping[int, str]


@dataclass(frozen=True, kw_only=True)
class ValueTransfer:
    """A transfer of a value between steps. due: the step before which it is waited for. processor: the core that
    copies, where no DMA does; empty for the first one."""

    value: int
    source: str
    target: str
    start: int
    due: int
    spills: bool = False
    processor: str = ""
