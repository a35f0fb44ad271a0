"""Rows of tensors that are no images: a vector is cut into runs of its channels, others along their first axes.

The writer and the readers of a vector [..., C] must agree on its rows, so they follow from C alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from codegen_c.operators.kinds import Convert, Elementwise, HalfCast, Operator, QBinary, QUnary, TensorType

RUNS = (32, 16, 8, 4)
"""Channels of one run of a vector: the largest that divides it into several. Blocks of four never straddle runs."""
ELEMENTWISE = (QUnary, QBinary, Elementwise, Convert, HalfCast)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """`count` rows of `length` elements; is_vector: whether they are runs of the last axis."""

    count: int
    length: int
    is_vector: bool


def rows_of(shape: Sequence[int]) -> Rows | None:
    """Rows of a tensor [..., C]; None for images, which have their own, and for vectors that no run divides."""
    if not shape or len(shape) == 4:
        return None
    vectors, channels = prod(shape[:-1]), shape[-1]
    if vectors > 1:
        return Rows(count=vectors, length=channels, is_vector=False)
    run = next((run for run in RUNS if channels % run == 0 and channels > run), None)
    return Rows(count=channels // run, length=run, is_vector=True) if run else None


def as_image(operator: Operator) -> Operator | None:
    """An element-wise operator with its tensors as images of their rows, one pixel each; None where it has no rows."""
    rows = rows_of(operator.output.shape)
    alike = all(kind.shape == operator.output.shape for kind in operator.inputs)
    if rows is None or not isinstance(operator, ELEMENTWISE) or not alike:
        return None
    if rows.is_vector and isinstance(operator, Elementwise | QUnary) and operator.finish.channel_constants:
        return None  # its constants are one for each channel of the last axis, here of a run

    def image(kind: TensorType) -> TensorType:
        return replace(kind, shape=(1, rows.count, 1, rows.length))

    return replace(operator, inputs=tuple(map(image, operator.inputs)), outputs=(image(operator.output),))
