"""The result of lowering a fused operator: a C function with its constants, or the reason why C cannot express it.

This module does not import tvm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from codegen_c.kernels.contract import CFunction
from codegen_c.kernels.work import Work

SCRATCH_ALIGNMENT_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class LoopForm:
    """Loops as a function for some processors, and its operations by kind.

    least_work: operations of the run that data end first; None if all runs take the same.
    """

    function: CFunction
    work: Work
    least_work: Work | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class PlainC:
    """A fused operator as C.

    function: its parameters are inputs, outputs, constants and scratch (only if scratch_bytes > 0), in this order; an
    input that the result does not depend on is a parameter, too.
    constants: name and data of each constant parameter.
    scratch_bytes: size of the scratch memory, which is aligned to SCRATCH_ALIGNMENT_BYTES.
    macs: multiply-accumulates of one call. work: its operations by kind. least_macs, least_work: of the run that data
    end first; None if all runs take the same.
    for_vectors, small: forms for processors whose compilers vectorize loops, and for builds where size matters more
    than speed; None if they equal the function.
    in_place: indices of inputs whose memory output 0 may take, element for element, because each element is read for
    the last time before the output element of the same position is written. This does not hold for a call that passes
    the same memory as a second input, too.
    integers_only: no parameter, variable or intermediate value is a float.
    correctly_rounded: every processor computes the same bytes, because each result is rounded once.
    """

    function: CFunction
    constants: tuple[tuple[str, np.ndarray], ...] = ()
    scratch_bytes: int = 0
    macs: int = 0
    work: Work = field(default_factory=dict[str, int])
    least_macs: int | None = None
    least_work: Work | None = None
    for_vectors: LoopForm | None = None
    small: LoopForm | None = None
    in_place: tuple[int, ...] = ()
    integers_only: bool = False
    correctly_rounded: bool = False

    def form(self, *, has_vectors: bool, is_small: bool) -> LoopForm:
        """Return the form of the function for a processor."""
        other = self.small if is_small else self.for_vectors if has_vectors else None
        return other or LoopForm(function=self.function, work=self.work, least_work=self.least_work)


@dataclass(frozen=True, kw_only=True)
class NoPlainC:
    """The reason why a fused operator has no C. operators: its Relax operators; reason: a text for the user."""

    operators: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Helper:
    """A `static inline` C function that a body calls; `$` in name and text stands for the caller's name."""

    name: str
    text: str


class CannotLowerError(Exception):
    """Internal: lowering met an operation that C cannot express; `lower_composite` returns a NoPlainC instead."""
