"""Predicted run time of a model on a platform: instructions, memory, and transfers beside them.

    cycles of a step = modelled instructions * cycles that one takes in its kernel on this core
                       + for each operand: wait cycles of its memory
    wait cycles      = bytes / rate, beyond a cycle for each transaction + latency of each burst

Loads and stores are among the instructions, a cycle for each transaction; a memory adds what it is slower than that.
Rates are the lower of what the memory and the link between processor and memory give. Bytes are those that the
kernel's loops read and write, again and again where they do (`codegen_c.kernels.contract.Passes`): no cache is
modelled. Transactions, and bursts of those that go on where the last one ended, are so many for each such byte.

    cycles of a transfer = bytes / lowest rate on the way + latency of the link

A DMA moves one transfer after the other, in the order in which they start, beside the processor, and slows nothing
down but itself; where no DMA joins two memories the processor copies: it reads, writes, and executes
COPY_INSTRUCTIONS_A_BYTE. To start a transfer, or to wait for one, costs CALL_CYCLES.

Cycles and traffic of kernels (`KernelTime`) are fitted to what `tvm-ext profile` estimates of executed instructions
and counts of accesses, by `benchmarks/kernel_times.py`; the profile has the same wait cycles. QEMU models no memory
timing. So all that comes out of here is a prediction, and is to be called one wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from tvm_ext.core.kernel_time import UNIFORM, WORDS, KernelTime, Traffic
from tvm_ext.core.platform import Link, Memory, Platform

CALL_CYCLES = 24
COPY_INSTRUCTIONS_A_BYTE = 0.5


@dataclass(frozen=True, kw_only=True)
class Event:
    """Next step of a run: `run` for so many cycles, `start` a transfer of so many, `wait` until transfer `number` and
    all before it are done.

    unit: what works beside the processor: an accelerator's name, or empty for the DMA.
    """

    kind: Literal["run", "start", "wait"]
    cycles: float = 0.0
    number: int = 0
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class TimeModel:
    """Predicted cycles on one of a platform's processors.

    processor: its name; empty for the first one. kernels: times of its kernels; other: of those that are not there.
    """

    platform: Platform
    processor: str = ""
    kernels: Mapping[str, KernelTime] = field(default_factory=dict[str, KernelTime])
    other: KernelTime = UNIFORM

    def kernel(self, name: str) -> KernelTime:
        """Time of a kernel."""
        return self.kernels.get(name, self.other)

    def compute_cycles(self, kernel: str, instructions: float) -> float:
        """Cycles of a kernel's instructions, and of what it keeps on the stack, were its operands in registers."""
        found, board = self.kernel(kernel), self.platform.board
        cycles = instructions * found.cycles
        if board:
            for memory, own in ((board.data_memory, found.stack), (board.code_memory, found.code)):
                if self.reaches(memory):
                    cycles += self.wait_cycles(memory, own.times(instructions))
        return cycles

    def read_cycles(self, memory: str, num_bytes: float, access: Traffic = WORDS) -> float:
        """Cycles that a memory adds where so many bytes of an operand are read.

        access: traffic of one of them. Raises KeyError where the processor does not reach the memory.
        """
        return self.wait_cycles(memory, _traffic(num_bytes, access))

    def write_cycles(self, memory: str, num_bytes: float, access: Traffic = WORDS) -> float:
        """The same where they are written; memory must be ram."""
        return self.wait_cycles(memory, _traffic(num_bytes, access), is_store=True)

    def wait_cycles(self, memory: str, traffic: Traffic, *, is_store: bool = False) -> float:
        """Cycles that a memory adds to those of the instructions: each transaction has one cycle in theirs.

        A burst begins with the memory's latency; bytes then come, or go, at its rate. Nothing is cached. Raises
        KeyError where the processor does not reach the memory.
        """
        link, held = self._access(memory)
        rate = min(link.bytes_per_cycle, held.write_bytes_per_cycle if is_store else held.read_bytes_per_cycle)
        beyond = max(traffic.num_bytes / rate - traffic.transactions, 0.0) if traffic.num_bytes else 0.0
        return beyond + traffic.bursts * self._latency(link, held)

    def has_dma(self, source: str, target: str) -> bool:
        """True where a transfer goes on while the processor computes."""
        link = self.platform.link_between(source, target)
        return link is not None and link.dma

    def transfer_cycles(self, source: str, target: str, num_bytes: int) -> float:
        """Cycles from start to end of a transfer, nothing else in the way."""
        link = self.platform.link_between(source, target)
        if link is None:
            copying = self.read_cycles(source, num_bytes) + self.write_cycles(target, num_bytes)
            return copying + num_bytes * COPY_INSTRUCTIONS_A_BYTE * self.other.cycles
        ends = self.platform.memory(source), self.platform.memory(target)
        rate = min(link.bytes_per_cycle, ends[0].read_bytes_per_cycle, ends[1].write_bytes_per_cycle)
        return num_bytes / rate + link.latency_cycles

    def reaches(self, memory: str) -> bool:
        """True where the processor reads and writes the memory."""
        return memory in self._reached

    def _access(self, memory: str) -> tuple[Link, Memory]:
        return self._reached[memory]

    @cached_property
    def _reached(self) -> dict[str, tuple[Link, Memory]]:
        ways = ((self._link(memory.name), memory) for memory in self.platform.memories)
        return {memory.name: (link, memory) for link, memory in ways if link is not None}

    def _link(self, memory: str) -> Link | None:
        return self.platform.reached_by(self.platform.processor_named(self.processor).name, memory)

    @staticmethod
    def _latency(link: Link, memory: Memory) -> int:
        return max(link.latency_cycles, memory.latency_cycles)


def _traffic(num_bytes: float, access: Traffic) -> Traffic:
    """Traffic of an operand's bytes: one burst at the least."""
    found = access.times(num_bytes)
    return replace(found, bursts=max(found.bursts, 1.0)) if num_bytes else found


def finish_cycles(events: Iterable[Event]) -> float:
    """Cycle at which the last event is over: one processor, and units beside it that each work in order."""
    now = 0.0
    free: dict[str, float] = {}
    ends: dict[tuple[str, int], float] = {}
    for event in events:
        if event.kind == "run":
            now += event.cycles
        elif event.kind == "start":
            now += CALL_CYCLES
            free[event.unit] = max(now, free.get(event.unit, 0.0)) + event.cycles
            ends[event.unit, event.number] = free[event.unit]
        else:
            now = max(now + CALL_CYCLES, ends.get((event.unit, event.number), 0.0))
    return now
