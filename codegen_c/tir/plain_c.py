"""The result of lowering a composite: a C function with its constants, or the reason why there is none.

Knows nothing of tvm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from codegen_c.kernels.contract import CFunction
from codegen_c.kernels.work import Work

SCRATCH_ALIGNMENT_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class LoopForm:
    """Loops as a function for some processors, and its operations by kind."""

    function: CFunction
    work: Work


@dataclass(frozen=True, kw_only=True, eq=False)
class PlainC:
    """A composite as C.

    function: parameters are inputs, outputs, constants, scratch (only where scratch_bytes > 0), in this
        order; an input that the result does not depend on is still there.
    constants: name and data of each constant parameter.
    scratch_bytes: wanted at the scratch pointer, which is aligned to SCRATCH_ALIGNMENT_BYTES.
    macs: multiply-accumulates of one call. work: its operations by kind.
    for_vectors, small: the same for processors whose compilers make vectors of loops, and where size matters more than
        speed; None where they are no other.
    in_place: indices of inputs whose memory output 0 may take, element for element, because each element
        is read for the last time before the output element of the same position is written. It does not hold
        for a call that passes that memory as a second input too.
    integers_only: no parameter, variable or intermediate value is a float.
    correctly_rounded: every processor computes the same bytes, for each result is rounded once.
    """

    function: CFunction
    constants: tuple[tuple[str, np.ndarray], ...] = ()
    scratch_bytes: int = 0
    macs: int = 0
    work: Work = field(default_factory=dict[str, int])
    for_vectors: LoopForm | None = None
    small: LoopForm | None = None
    in_place: tuple[int, ...] = ()
    integers_only: bool = False
    correctly_rounded: bool = False

    def form(self, *, has_vectors: bool, is_small: bool) -> LoopForm:
        """The function for a processor."""
        other = self.small if is_small else self.for_vectors if has_vectors else None
        return other or LoopForm(function=self.function, work=self.work)


@dataclass(frozen=True, kw_only=True)
class NoPlainC:
    """Refusal of a composite that has no C. operators: relax names of its operators; reason: in words for the user."""

    operators: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Helper:
    """A `static inline` C function that a body calls; `$` in name and text stands for the caller's name."""

    name: str
    text: str


class CannotLowerError(Exception):
    """Internal: raised where lowering meets what C cannot express; `lower_composite` turns it into a NoPlainC."""
