"""Predicted time of composites on each processor that may run them, by its kernels, its clock and its memories.

Loads and stores are instructions of the kernels, and a memory adds only the cycles by which it is slower. So where no
memory is slower, cores are compared by the cycles of their instructions.
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


@dataclass(frozen=True, kw_only=True)
class ProcessorCosts:
    """A core or an accelerator, its compiler, and its time model.

    runs_floats: whether it may compute floats, in hardware or in software. Without, it does not even move floats.

    All tensors are assumed to lie in the platform's default memory.
    """

    processor: Processor
    backend: Backend
    time: TimeModel
    runs_floats: bool

    def nanoseconds(self, composite: relax.Function) -> int | None:
        """Return the predicted time of one run, or None where the processor cannot run the composite."""
        cycles = self.cycles(composite)
        return None if cycles is None else self.from_cycles(cycles)

    def cycles(self, composite: relax.Function) -> float | None:
        """Return the predicted cycles of one run, or None where the processor cannot run the composite."""
        if self.backend.refuses(composite) is not None:
            return None
        cost, time, home = self.backend.footprint(composite), self.time, self.time.platform.activations
        if self.is_offload:  # its cycles come from the platform and include memories
            return cost.instructions
        if not self.runs_floats and (cost.computes_floats or _holds_floats(composite)):
            return None
        cycles = time.compute_cycles(cost.kernel, cost.instructions)
        kernel, weights = time.kernel(cost.kernel), time.platform.weights
        cycles += sum(time.write_cycles(home, _num_bytes(kind), kernel.output) for kind in _results(composite))
        cycles += sum(time.read_cycles(home, num_bytes, kernel.input) for num_bytes in cost.read_bytes.values())
        cycles += time.read_cycles(home, cost.scratch_access_bytes, kernel.scratch)
        cycles += time.read_cycles(weights, cost.weights_read_bytes, kernel.constants)
        return cycles

    def memory_bytes(self, composite: relax.Function) -> int:
        """Return the bytes of a composite's inputs, results and scratch."""
        kinds = [*(param.ty for param in composite.params), *_results(composite)]
        return sum(map(_num_bytes, kinds)) + self.backend.footprint(composite).scratch_bytes

    @property
    def is_offload(self) -> bool:
        """True for an accelerator, which the first core starts and waits for."""
        return self.processor.kind == "offload"

    def from_cycles(self, cycles: float) -> int:
        """Return the time of a number of the processor's cycles."""
        return ceil(cycles * NANOSECONDS / self.processor.clock_hz)


def _holds_floats(composite: relax.Function) -> bool:
    """Return True where a composite reads or writes floats."""
    kinds = [*(param.ty for param in composite.params), *_results(composite)]
    return any("float" in str(kind.dtype) for kind in kinds)


def _results(composite: relax.Function) -> list[relax.TensorType]:
    """Return the types of the tensors that a composite computes."""
    types = [result.ty for result in outputs(composite)]
    return [kind for ty in types for kind in (ty.fields if isinstance(ty, relax.TupleType) else [ty])]


def _num_bytes(kind: relax.TensorType) -> int:
    shape = [int(extent) for extent in kind.shape.values]
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(str(kind.dtype)).itemsize
