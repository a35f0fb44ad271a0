"""Time of a kernel on a core as data: cycles for each modelled instruction, accesses for each modelled byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Accesses to a memory. bursts: those that do not go on where the last one ended.

    Counted, or on the average of a byte or an instruction.
    """

    transactions: float
    bursts: float
    num_bytes: float

    def times(self, count: float) -> Traffic:
        """So many times the traffic."""
        return Traffic(
            transactions=self.transactions * count, bursts=self.bursts * count, num_bytes=self.num_bytes * count
        )


WORDS = Traffic(transactions=0.25, bursts=0.0, num_bytes=1.0)
"""A byte where all are moved as words, one behind the other."""
DOUBLE_WORDS = Traffic(transactions=0.125, bursts=0.0, num_bytes=1.0)
"""The same of 8 bytes at once."""
NONE = Traffic(transactions=0.0, bursts=0.0, num_bytes=0.0)


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """Time of a kernel on a core.

    cycles: for each modelled instruction, those of its loads and stores among them, were all memories as fast as the
    core. input, output, constants, scratch: traffic for each byte that the kernel is modelled to read or write there.
    stack, code: traffic of its own data in the memories of stack and code, for each modelled instruction.
    """

    cycles: float = 1.0
    input: Traffic = WORDS
    output: Traffic = WORDS
    constants: Traffic = WORDS
    scratch: Traffic = WORDS
    stack: Traffic = NONE
    code: Traffic = NONE

    @classmethod
    def of(cls, access: Traffic, *, cycles: float = 1.0) -> Self:
        """A kernel that moves all of its operands' bytes alike."""
        return cls(cycles=cycles, input=access, output=access, constants=access, scratch=access)


UNIFORM = KernelTime()
"""A modelled instruction a cycle, and words; what is not measured is taken to have it."""


@dataclass(frozen=True, kw_only=True)
class CoreTimes:
    """Times of kernels on cores, as a target's folder has them for each core.

    cpus: names of the core. cycles: for each executed instruction, of kernels that are not there.
    """

    cpus: tuple[str, ...]
    cycles: float
    kernels: Mapping[str, KernelTime] = field(default_factory=dict[str, KernelTime])
