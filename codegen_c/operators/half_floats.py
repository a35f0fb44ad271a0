"""Operators whose activations are float16 in memory: computed in float32, rounded where the model's operators end.

Fields as in the operators of float32, of which they are forms. inputs, outputs: float16. `finish` rounds between
operators by its function `half`; the kernel rounds the last result.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen_c.operators.kinds import Conv2d, Dense, Elementwise, Operator, Pool2d, Softmax


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfConv2d(Conv2d):
    """Conv2d of float16."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfDense(Dense):
    """Dense of float16."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfPool2d(Pool2d):
    """Pool2d of float16."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfElementwise(Elementwise):
    """Elementwise of float16."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfSoftmax(Softmax):
    """Softmax of float16."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfCast(Operator):
    """float16 to float32, exactly, or float32 to the nearest float16."""


HALF_FORMS: dict[type[Operator], type[Operator]] = {
    Conv2d: HalfConv2d, Dense: HalfDense, Pool2d: HalfPool2d, Elementwise: HalfElementwise, Softmax: HalfSoftmax,
}  # fmt: skip
"""Form of each operator of float32."""
