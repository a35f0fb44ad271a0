"""Predicted time of composites on each processor that may run them: its own kernels, clock, and way to the memories.

Loads and stores are instructions of the kernels, a cycle for each word; a memory adds what it is slower than that. So
where it is not, cores are compared by the instructions that they execute.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from tvm import relax

from relay_passes.backend import Backend
from relay_passes.dataflow import outputs
from tvm_ext.core.platform import Processor
from tvm_ext.core.time_model import TimeModel

NANOSECONDS = 1_000_000_000
WORD_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class ProcessorCosts:
    """A core or an accelerator, what compiles for it, and the model of its time.

    runs_floats: it may compute floats, in hardware or not; without, it does not move them about either.
    All tensors are taken to lie in the platform's default memory.
    """

    processor: Processor
    backend: Backend
    time: TimeModel
    runs_floats: bool

    def nanoseconds(self, composite: relax.Function) -> int | None:
        """Predicted time of one run; None where the processor cannot run it."""
        if self.backend.refuses(composite) is not None:
            return None
        cost, time, home = self.backend.footprint(composite), self.time, self.time.platform.activations
        if self.is_offload:  # its cycles are the platform's, memories among them
            return self.from_cycles(cost.instructions)
        if not self.runs_floats and (cost.computes_floats or _holds_floats(composite)):
            return None
        cycles = time.compute_cycles(cost.kernel, cost.instructions)
        written = [_num_bytes(kind) for kind in _results(composite)]
        cycles += sum(_beyond_words(time.write_cycles(home, num_bytes), num_bytes) for num_bytes in written)
        reads = [(home, num_bytes) for num_bytes in (*cost.read_bytes.values(), cost.scratch_access_bytes)]
        for memory, num_bytes in [*reads, (time.platform.weights, cost.weights_read_bytes)]:
            cycles += _beyond_words(time.read_cycles(memory, num_bytes), num_bytes) if num_bytes else 0
        return self.from_cycles(cycles)

    @property
    def is_offload(self) -> bool:
        """True of an accelerator, which the first core starts and waits for."""
        return self.processor.kind == "offload"

    def from_cycles(self, cycles: float) -> int:
        """Time of so many cycles of the processor."""
        return ceil(cycles * NANOSECONDS / self.processor.clock_hz)


def _holds_floats(composite: relax.Function) -> bool:
    """True where it reads or makes floats."""
    kinds = [*(param.ty for param in composite.params), *_results(composite)]
    return any("float" in str(kind.dtype) for kind in kinds)


def _results(composite: relax.Function) -> list[relax.TensorType]:
    """Types of the tensors that it makes."""
    types = [result.ty for result in outputs(composite)]
    return [kind for ty in types for kind in (ty.fields if isinstance(ty, relax.TupleType) else [ty])]


def _beyond_words(cycles: float, num_bytes: int) -> float:
    """Cycles of an access beyond those of the instructions that make it."""
    return max(0.0, cycles - num_bytes / WORD_BYTES)


def _num_bytes(kind: relax.TensorType) -> int:
    shape = [int(extent) for extent in kind.shape.values]
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(str(kind.dtype)).itemsize
