"""Predicted run time of a model on a platform, from instructions, memory traffic and transfers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Self

from tvm_ext.core.options import CompileFor
from tvm_ext.core.platform import Link, Memory, Platform
from tvm_ext.core.row_access import ColumnOperator
from tvm_ext.core.row_sequence import RowAccumulation, RowOperator


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Accesses to a memory, as totals, or as averages per byte or instruction.

    bursts: accesses that do not continue where the last access ended.
    """

    transactions: float
    bursts: float
    num_bytes: float

    def times(self, count: float) -> Traffic:
        """Return the traffic multiplied by a count."""
        return Traffic(
            transactions=self.transactions * count, bursts=self.bursts * count, num_bytes=self.num_bytes * count
        )


WORDS = Traffic(transactions=0.25, bursts=0.0, num_bytes=1.0)
"""Traffic of a byte where all bytes are accessed as consecutive words."""
DOUBLE_WORDS = Traffic(transactions=0.125, bursts=0.0, num_bytes=1.0)
"""Traffic of a byte where 8 bytes are accessed at once."""
NONE = Traffic(transactions=0.0, bursts=0.0, num_bytes=0.0)


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """Time of a kernel on a core.

    instructions: executed for each instruction that the kernel's own model counts; the modelled instructions of its
    implementations include this factor.
    cycles: for each modelled instruction, including loads and stores, if all memories were as fast as the core.
    input, output, constants, scratch: traffic for each byte that the kernel is modelled to read or write there.
    stack, code: traffic of its own data in the memories of stack and code, for each modelled instruction.
    """

    instructions: float = 1.0
    cycles: float = 1.0
    input: Traffic = WORDS
    output: Traffic = WORDS
    constants: Traffic = WORDS
    scratch: Traffic = WORDS
    stack: Traffic = NONE
    code: Traffic = NONE

    @classmethod
    def of(cls, access: Traffic, *, cycles: float = 1.0) -> Self:
        """Return the time of a kernel that accesses the bytes of all its operands alike."""
        return cls(cycles=cycles, input=access, output=access, constants=access, scratch=access)


UNIFORM = KernelTime()
"""The default for kernels without measurements: an instruction per cycle, and accesses by words."""


@dataclass(frozen=True, kw_only=True)
class CoreTimes:
    """Times of kernels on cores, from a target's folder for each core.

    cpus: names of the core.
    cycles: for each executed instruction, of kernels without an entry.
    """

    cpus: tuple[str, ...]
    cycles: float
    kernels: Mapping[str, KernelTime] = field(default_factory=dict[str, KernelTime])


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Memory that a composite needs besides its inputs and outputs, and its cost when it runs whole.

    instructions: modelled; they rank candidates, and are never reported as a measurement.
    rows: how its rows depend on its parameters' rows, None where it only runs whole.
    columns: the same for columns, None where it cannot be cut into column strips.
    bands: the same for rows, where it is to compute some rows alone.
    accumulation: how it adds up its only parameter row by row, None where it needs the whole parameter at once.
    shared_bytes: by parameter, the bytes that the output shares with it where it is read for the last time.
    kernel: that computes it.
    computes_floats: with an FPU, or slowly without.
    read_bytes: by parameter, the modelled bytes read in a run.
    weights_read_bytes: the same for its `weights_bytes`.
    scratch_access_bytes: bytes read and written of its scratch.
    weight_bits: in which its weights are stored.
    writes_apart: whether it can write pixels with gaps between them, so that its result may be part of another.
    """

    instructions: int
    rows: RowOperator | None = None
    columns: ColumnOperator | None = None
    bands: ColumnOperator | None = None
    accumulation: RowAccumulation | None = None
    scratch_bytes: int = 0
    shared_bytes: Mapping[int, int] = field(default_factory=dict[int, int])
    kernel: str = ""
    computes_floats: bool = False
    read_bytes: Mapping[int, int] = field(default_factory=dict[int, int])
    weights_bytes: int = 0
    weights_read_bytes: int = 0
    scratch_access_bytes: int = 0
    weight_bits: int = 8
    writes_apart: bool = False


@dataclass(frozen=True, kw_only=True)
class CallCost:
    """Needs and costs of a composite that runs with a number of rows per call.

    added_instructions: in all, beyond those of its whole run, by the kernel's own estimate of both.
    """

    scratch_bytes: int
    added_instructions: int


IN_ROWS = "_in_rows"
"""End of the name of a kernel that computes rows by calls of another kernel, whose times it has."""
CALL_CYCLES = 24
COPY_INSTRUCTIONS_A_BYTE = 0.5


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event of a run: `run` for some cycles, `start` a transfer of some cycles, or `wait` for transfers.

    number: of the transfer. A wait lasts until this transfer and all earlier ones are done.
    unit: the unit that works beside the processor: an accelerator's name, or empty for the DMA.
    """

    kind: Literal["run", "start", "wait"]
    cycles: float = 0.0
    number: int = 0
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class TimeModel:
    """Predicted cycles on one of a platform's processors.

    processor: its name; empty for the first processor.
    kernels: times of its kernels.
    other: time of kernels without an entry.
    optimize: what the kernels are compiled for, of which these are the times.
    """

    platform: Platform
    processor: str = ""
    kernels: Mapping[str, KernelTime] = field(default_factory=dict[str, KernelTime])
    other: KernelTime = UNIFORM
    optimize: CompileFor = "speed"

    def kernel(self, name: str) -> KernelTime:
        """Return the time of a kernel. A kernel in rows without an entry has the time of the kernel that it calls."""
        return self.kernels.get(name) or self.kernels.get(name.removesuffix(IN_ROWS), self.other)

    def compute_cycles(self, kernel: str, instructions: float) -> float:
        """Return the cycles of a kernel's instructions and of its stack, as if its operands were in registers."""
        found, board = self.kernel(kernel), self.platform.board
        cycles = instructions * found.cycles
        if board:
            for memory, own in ((board.data_memory, found.stack), (board.code_memory, found.code)):
                if self.reaches(memory):
                    cycles += self.wait_cycles(memory, own.times(instructions))
        return cycles

    def read_cycles(self, memory: str, num_bytes: float, access: Traffic = WORDS) -> float:
        """Return the cycles that a memory adds when bytes of an operand are read.

        access: traffic per byte.
        Raises KeyError where the processor does not reach the memory.
        """
        return self.wait_cycles(memory, _traffic(num_bytes, access))

    def write_cycles(self, memory: str, num_bytes: float, access: Traffic = WORDS) -> float:
        """Return the cycles that a memory adds when bytes are written. The memory must be a RAM."""
        return self.wait_cycles(memory, _traffic(num_bytes, access), is_store=True)

    def wait_cycles(self, memory: str, traffic: Traffic, *, is_store: bool = False) -> float:
        """Return the cycles that a memory adds to the instructions, which include a cycle for each transaction.

        A burst starts with the memory's latency, and then bytes follow at its rate. Caches are not modelled. Raises
        KeyError where the processor does not reach the memory.
        """
        link, held = self._access(memory)
        rate = min(link.bytes_per_cycle, held.write_bytes_per_cycle if is_store else held.read_bytes_per_cycle)
        beyond = max(traffic.num_bytes / rate - traffic.transactions, 0.0) if traffic.num_bytes else 0.0
        return beyond + traffic.bursts * self._latency(link, held)

    def has_dma(self, source: str, target: str) -> bool:
        """Return True where a transfer continues while the processor computes."""
        link = self.platform.link_between(source, target)
        return link is not None and link.dma

    def transfer_cycles(self, source: str, target: str, num_bytes: int) -> float:
        """Return the cycles from the start to the end of a transfer that nothing delays."""
        link = self.platform.link_between(source, target)
        if link is None:
            copying = self.read_cycles(source, num_bytes) + self.write_cycles(target, num_bytes)
            return copying + num_bytes * COPY_INSTRUCTIONS_A_BYTE * self.other.cycles
        ends = self.platform.memory(source), self.platform.memory(target)
        rate = min(link.bytes_per_cycle, ends[0].read_bytes_per_cycle, ends[1].write_bytes_per_cycle)
        return num_bytes / rate + link.latency_cycles

    def reaches(self, memory: str) -> bool:
        """Return True where the processor reads and writes the memory."""
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
    """Return the traffic of an operand's bytes, with at least one burst."""
    found = access.times(num_bytes)
    return replace(found, bursts=max(found.bursts, 1.0)) if num_bytes else found


def finish_cycles(events: Iterable[Event]) -> float:
    """Return the cycle at which the last event ends, for a processor and units that each work in order."""
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
