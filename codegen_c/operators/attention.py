"""Operators that attention is made of, as plain data: products of two activations, and vectors brought to one length.

Fields and conventions as in `operators/kinds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen_c.operators.kinds import Array, Operator, QSoftmax, Rounding
from codegen_c.operators.scalar import IDENTITY, ScalarProgram


@dataclass(frozen=True, kw_only=True)
class MatmulShape:
    """Products of vectors: output [row, head, n] is the sum over c of first [row, head, c] * second [head, c, n].

    heads_inside: the first tensor and the output keep a row's heads together, [rows, heads, ...]; else [heads, rows,
    ...]. steps: elements of the second tensor from one head, column and c to the next, 0 where heads share a matrix.
    """

    rows: int
    heads: int
    depth: int
    columns: int
    heads_inside: bool
    steps: tuple[int, int, int]

    @property
    def outer(self) -> tuple[int, int]:
        """The first two axes of the first tensor and of the output."""
        return (self.rows, self.heads) if self.heads_inside else (self.heads, self.rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Matmul(Operator):
    """Products of the first two float32 inputs, each through `finish`, which may read further ones."""

    shape: MatmulShape
    finish: ScalarProgram = IDENTITY


@dataclass(frozen=True, kw_only=True, eq=False)
class QMatmul(Operator):
    """Products of two QDQ tensors, times `scale`."""

    shape: MatmulShape
    scale: float
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class Normalize(Operator):
    """float32 vectors along the last axis, each divided by its length; fields as in QNormalize."""

    weight: Array
    bias: Array
    epsilon: float
    is_centered: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class QNormalize(Operator):
    """Vectors of a QDQ tensor along its last axis, each divided by its length: LayerNorm, and RMSNorm.

    weight, bias: float32[C], of the results. is_centered: the vector's mean is taken off first, as LayerNorm does.
    """

    weight: Array
    bias: Array
    epsilon: float
    is_centered: bool
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, eq=False)
class QAffine(Operator):
    """A QDQ tensor times `factors`, plus `addends`: position embeddings, masks, the cosines of rotary embeddings.

    factors, addends: float64 arrays, finite, that repeat to the output's shape, which is the input's.
    """

    factors: Array
    addends: Array
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class QMaskedSoftmax(QSoftmax):
    """QSoftmax that leaves elements out, which are given a probability of zero.

    mask: bool, repeats to the input's shape, True for what is left out. Every vector keeps an element.
    """

    mask: Array
