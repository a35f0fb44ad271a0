"""A rule of an operator over time: which rows of its operands the rows of its result are computed from, and how.

A row is one place along the axis of time. Row r of a result reads rows r * stride + first + tap * dilation of an
operand, for each of `taps`; rows outside of the operand are the operator's own padding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import tvm
from tvm import relax

from relay_passes.dataflow import array_of


@dataclass(frozen=True, kw_only=True)
class Slide:
    """Rows that each row of a result reads: of every operand over time the same."""

    stride: int = 1
    first: int = 0
    taps: int = 1
    dilation: int = 1

    def begin(self, row: int) -> int:
        return row * self.stride + self.first

    def end(self, row: int) -> int:
        """One behind the last row that a row reads."""
        return self.begin(row) + (self.taps - 1) * self.dilation + 1


Make = Callable[[Sequence[relax.Expr], Slide, tuple[int, int]], relax.Expr]
"""The operator on other rows: operands, the slide over these (stride and dilation), padding before and behind."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An operator over time. operands: places of its arguments that are over time. axis: of the result's.

    rows: of the result, over the whole window. make: the operator for some rows. fill: what its own padding is, where
    rows may be nothing else; None where they may not. is_view: whether it may as well be computed wherever it is read.
    """

    operands: tuple[int, ...]
    axis: int
    rows: int
    slide: Slide
    make: Make
    fill: float | None = None
    is_view: bool = False


@dataclass(frozen=True, kw_only=True)
class Unruly:
    """Why an operator cannot go along with time: it is computed for the whole window in each run."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Known:
    """Facts about values: the axis of time of those over time; those that are made of constants alone."""

    axes: Mapping[relax.Var, int]
    constants: Set[relax.Var]

    def is_constant(self, expr: relax.Expr) -> bool:
        return array_of(expr) is not None or isinstance(expr, tvm.ir.expr.Constant) or expr in self.constants


def same_call(call: relax.Call) -> Make:
    """The operator as it is, on other operands: it asks neither for the slide nor for padding."""

    def make(arguments: Sequence[relax.Expr], _slide: Slide, _padding: tuple[int, int]) -> relax.Expr:
        return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)

    return make
