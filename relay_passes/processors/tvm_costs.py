"""Predict the time of composites that TVM's own code runs, by rates that the platform states.

An operator takes as long as its multiply-accumulates, or as the bytes that it reads and writes, whichever is longer
(the roofline of Williams, Waterman and Patterson, 2009), plus a call of TVM's virtual machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Protocol

import numpy as np
import tvm
from tvm import relax

from relay_passes.analysis.processor_costs import NANOSECONDS
from relay_passes.dataflow import bindings, operands, outputs
from relay_passes.processors.outline_backends import Patterns, takes_anchor
from relay_passes.streams.hop_costs import total
from tvm_ext.core.decisions.composites import CompositeKind, QuantizedRounding
from tvm_ext.core.platform import Processor, TvmBackend

_EXACT = "onnx"
"""The only rounding semantics that floats between a dequantize and a quantize reproduce exactly."""


class OperatorCosts(Protocol):
    """Time of operators on a processor."""

    @property
    def processor(self) -> Processor: ...

    def nanoseconds(self, composite: relax.Function) -> int | None:
        """Return the time of one run, or None where the processor cannot run the composite."""
        ...


@dataclass(frozen=True, kw_only=True)
class TvmCosts:
    """Costs of a processor of `kind = "tvm"`.

    patterns: of its BYOC back end; None for the code of a target, which takes every operator.
    nanoseconds_per_byte: of constants that are copied to its own memory in every run.
    """

    processor: Processor
    patterns: Patterns | None = None
    nanoseconds_per_byte: float = 0.0

    @property
    def made_by(self) -> TvmBackend:
        assert self.processor.tvm is not None
        return self.processor.tvm

    def takes(self, composite: relax.Function) -> bool:
        """Return True where the code gives the model's exact result, and neither platform nor patterns exclude it."""
        kinds, kind = self.made_by.operators, CompositeKind.read(composite).kind
        if not bindings(composite):
            return False  # a composite that copies a constant
        if (kinds and kind not in kinds) or QuantizedRounding.read(composite).meaning != _EXACT:
            return False
        return self.patterns is None or takes_anchor(composite, self.patterns)

    def nanoseconds(self, composite: relax.Function) -> int | None:
        if not self.takes(composite):
            return None
        made_by, kind = self.made_by, CompositeKind.read(composite).kind
        rate = next((rate for rate in made_by.rates if rate.operator == kind), made_by)
        seconds = max(total(bindings(composite)) / rate.macs_per_second, moved_bytes(composite) / rate.bytes_per_second)
        copied = constant_bytes(composite) * self.nanoseconds_per_byte
        return ceil((seconds + made_by.seconds_per_call) * NANOSECONDS + copied)


def moved_bytes(composite: relax.Function) -> int:
    """Return the bytes of the operands, results and constants of a composite, each counted once."""
    return sum(_num_bytes(expr.ty) for expr in (*composite.params, *outputs(composite))) + constant_bytes(composite)


def constant_bytes(composite: relax.Function) -> int:
    """Return the bytes of the constants inside a composite."""
    constants = {
        leaf for b in bindings(composite) for leaf in operands(b.value) if isinstance(leaf, tvm.ir.GenericConst)
    }
    return sum(_num_bytes(constant.ty) for constant in constants)


def _num_bytes(kind: object) -> int:
    if isinstance(kind, relax.TupleType):
        return sum(map(_num_bytes, kind.fields))
    if not isinstance(kind, relax.TensorType):
        return 0
    elements = int(np.prod([int(extent) for extent in kind.shape.values], dtype=np.int64))
    return elements * np.dtype(str(kind.dtype)).itemsize
