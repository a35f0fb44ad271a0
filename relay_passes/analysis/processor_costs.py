"""Predicted time of composites on each processor that may run them: its own kernels, clock, and way to the memories."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from tvm import relax

from relay_passes.backend import Backend
from relay_passes.dataflow import outputs, static_shape
from tvm_ext.core.platform import Processor
from tvm_ext.core.time_model import TimeModel

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class ProcessorCosts:
    """A core, what compiles for it, and the model of its time. runs_floats: it may compute floats, in hardware or not.

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
        if cost.computes_floats and not self.runs_floats:
            return None
        cycles = time.compute_cycles(cost.kernel, cost.instructions)
        cycles += sum(time.read_cycles(home, num_bytes) for num_bytes in cost.read_bytes.values())
        cycles += sum(time.write_cycles(home, _num_bytes(result)) for result in outputs(composite))
        if cost.weights_bytes:
            cycles += time.read_cycles(time.platform.weights, cost.weights_read_bytes)
        if cost.scratch_bytes:
            cycles += time.read_cycles(home, cost.scratch_access_bytes)
        return self.from_cycles(cycles)

    def from_cycles(self, cycles: float) -> int:
        """Time of so many cycles of the processor."""
        return ceil(cycles * NANOSECONDS / self.processor.clock_hz)


def _num_bytes(result: relax.Expr) -> int:
    return int(np.prod(static_shape(result), dtype=np.int64)) * np.dtype(str(result.ty.dtype)).itemsize
